"""The metadata of a release in Croissant 1.1, the vocabulary of MLCommons for datasets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from hgld.errors import InputError
from hgld.io.files import sha256_of
from hgld.release.facts import CROISSANT, MACHINE, ReleaseFacts, annotations_creators, citation, safe_names, template

_TYPES = {pa.string(): "sc:Text", pa.int64(): "sc:Integer"}
_FORMATS = {
    ".parquet": "application/x-parquet",
    ".csv": "text/csv",
    ".md": "text/markdown",
    "": "text/plain",
}


def files_in(folder: Path) -> list[str]:
    """Return the paths of all files of a folder, relative to it, sorted."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())


def write_croissant(folder: Path, facts: ReleaseFacts) -> bool:
    """Describe a release and its data files in Croissant 1.1, the vocabulary of MLCommons for datasets.

    https://docs.mlcommons.org/croissant/docs/croissant-spec.html, and for the terms on annotation (``rai:``)
    https://docs.mlcommons.org/croissant/docs/croissant-rai-spec.html

    Returns:
        Whether the file was validated, with mlcroissant if that is installed.

    Raises:
        InputError: The description is invalid.
    """
    text = json.dumps(_croissant_metadata(folder, facts), indent=2, ensure_ascii=False) + "\n"
    (folder / CROISSANT).write_text(text, encoding="utf-8", newline="\n")
    return _is_valid_croissant(folder / CROISSANT)


def _croissant_metadata(folder: Path, facts: ReleaseFacts) -> dict[str, Any]:
    settings, origins = facts.settings, facts.origins
    protocol = " ".join(
        f"{origin.name} ({n:,} {facts.words['entities']}): {origin.description.format(**facts.words)}"
        for origin, n in origins.items()
    )
    return {
        "@context": json.loads(template("croissant_context.json")),
        "@type": "sc:Dataset",
        "conformsTo": ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"],
        "name": settings.name,
        "description": settings.description,
        **({"url": settings.url} if settings.url else {}),
        "version": settings.version,
        "datePublished": facts.date,
        "license": settings.licence_url,
        "creator": [{"@type": "sc:Person", "name": creator} for creator in settings.creators],
        **({"keywords": list(settings.keywords)} if settings.keywords else {}),
        "citeAs": citation(settings),
        **({"rai:dataAnnotationProtocol": protocol} if protocol else {}),
        **({"rai:machineAnnotationTools": ["hgld"]} if MACHINE in annotations_creators(origins) else {}),
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": name,
                "name": name,
                "contentUrl": name,
                "contentSize": f"{(folder / name).stat().st_size} B",
                "encodingFormat": _FORMATS[Path(name).suffix],
                "sha256": sha256_of(folder / name),
            }
            for name in files_in(folder)
        ],
        "recordSet": [_record_set(split, name, facts) for split, name in facts.splits.items()],
    }


def _is_valid_croissant(path: Path) -> bool:
    """Return whether mlcroissant is installed; raise an :class:`InputError` if it finds the file invalid."""
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
    fields = []
    ids = {column: f"{name}/{safe}" for column, safe in safe_names(facts.columns.names).items()}
    for column in facts.columns:
        is_list = pa.types.is_list(column.type)
        field = {
            "@type": "cr:Field",
            "@id": ids[column.name],
            "name": column.name,
            "description": facts.column_descriptions[column.name],
            "dataType": _TYPES[column.type.value_type if is_list else column.type],
            "source": {"fileObject": {"@id": f"data/{name}.parquet"}, "extract": {"column": column.name}},
        }
        fields.append({**field, "repeated": True} if is_list else field)
    key = facts.columns.names[:2]
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": f"The {split} {facts.words['entities']}, sorted by {key[1]}.",
        "key": [{"@id": ids[column]} for column in key],
        "field": fields,
    }
