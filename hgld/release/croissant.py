"""Describe a release for machines in Croissant 1.1, the vocabulary of MLCommons for datasets.

The vocabulary is at https://docs.mlcommons.org/croissant/docs/croissant-spec.html, and its terms on
annotation (``rai:``) at https://docs.mlcommons.org/croissant/docs/croissant-rai-spec.html.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from hgld.errors import InputError
from hgld.io.files import sha256_of
from hgld.io.licences import licence_url
from hgld.release.facts import (
    CROISSANT,
    MACHINE,
    ReleaseFacts,
    annotations_creators,
    citation,
    safe_names,
    template,
)

#: Croissant types of columns.
_TYPES = {pa.string(): "sc:Text", pa.int64(): "sc:Integer"}
#: Media types of files by suffix.
_FORMATS = {
    ".parquet": "application/x-parquet",
    ".csv": "text/csv",
    ".md": "text/markdown",
    "": "text/plain",
}


def files_in(folder: Path) -> list[str]:
    """Return the paths of all files of a folder, relative to it, sorted."""
    files = [path for path in folder.rglob("*") if not path.is_dir()]
    return sorted(path.relative_to(folder).as_posix() for path in files)


def write_croissant(folder: Path, facts: ReleaseFacts) -> bool:
    """Write the description of a release and its data files.

    Returns:
        Whether mlcroissant is installed and accepted the description.
    """
    text = json.dumps(_croissant_metadata(folder, facts), indent=2, ensure_ascii=False) + "\n"
    (folder / CROISSANT).write_text(text, encoding="utf-8", newline="\n")
    return _is_valid_croissant(folder / CROISSANT)


def _croissant_metadata(folder: Path, facts: ReleaseFacts) -> dict[str, Any]:
    settings = facts.settings
    metadata: dict[str, Any] = {
        "@context": json.loads(template("croissant_context.json")),
        "@type": "sc:Dataset",
        "conformsTo": [
            "http://mlcommons.org/croissant/1.1",
            "http://mlcommons.org/croissant/RAI/1.0",
        ],
        "name": settings.name,
        "description": settings.description,
    }
    if settings.url:
        metadata["url"] = settings.url
    metadata["version"] = settings.version
    metadata["datePublished"] = facts.date
    metadata["license"] = licence_url(settings.licence)
    metadata["creator"] = [{"@type": "sc:Person", "name": creator} for creator in settings.creators]
    if settings.keywords:
        metadata["keywords"] = list(settings.keywords)
    metadata["citeAs"] = citation(settings)
    if facts.origins:
        metadata["rai:dataAnnotationProtocol"] = _annotation_protocol(facts)
    if MACHINE in annotations_creators(facts.origins):
        metadata["rai:machineAnnotationTools"] = ["hgld"]
    metadata["distribution"] = [_file_object(folder, name) for name in files_in(folder)]
    metadata["recordSet"] = [
        _record_set(split, name, facts) for split, name in facts.splits.items()
    ]
    return metadata


def _annotation_protocol(facts: ReleaseFacts) -> str:
    """Describe the origins of the groups, with the number of entities of each origin."""
    sentences = []
    for origin, n in facts.origins.items():
        description = origin.description.format(**facts.words)
        sentences.append(f"{origin.name} ({n:,} {facts.words['entities']}): {description}")
    return " ".join(sentences)


def _file_object(folder: Path, name: str) -> dict[str, Any]:
    path = folder / name
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "contentUrl": name,
        "contentSize": f"{path.stat().st_size} B",
        "encodingFormat": _FORMATS[path.suffix],
        "sha256": sha256_of(path),
    }


def _is_valid_croissant(path: Path) -> bool:
    """Return whether mlcroissant is installed; raise an InputError if it finds the file invalid."""
    try:
        import mlcroissant
    except ImportError:
        return False
    try:
        mlcroissant.Dataset(jsonld=path)
    except mlcroissant.ValidationError as error:
        raise InputError(f"{path.name}: invalid Croissant: {error}") from error
    return True


def _record_set(split: str, name: str, facts: ReleaseFacts) -> dict[str, Any]:
    """Describe the rows of a split, whose file has this name."""
    fields = []
    ids = {}
    for column_name, safe_name in safe_names(facts.columns.names).items():
        ids[column_name] = f"{name}/{safe_name}"
    for column in facts.columns:
        is_list = pa.types.is_list(column.type)
        field: dict[str, Any] = {
            "@type": "cr:Field",
            "@id": ids[column.name],
            "name": column.name,
            "description": facts.column_descriptions[column.name],
            "dataType": _TYPES[column.type.value_type if is_list else column.type],
            "source": {
                "fileObject": {"@id": f"data/{name}.parquet"},
                "extract": {"column": column.name},
            },
        }
        if is_list:
            field["repeated"] = True
        fields.append(field)
    key = facts.columns.names[:2]
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": f"The {split} {facts.words['entities']}, sorted by {key[1]}.",
        "key": [{"@id": ids[column]} for column in key],
        "field": fields,
    }
