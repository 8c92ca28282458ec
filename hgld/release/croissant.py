"""Metadata of a release in Croissant 1.1, the vocabulary of MLCommons for machine learning datasets.

https://docs.mlcommons.org/croissant/docs/croissant-spec.html, and for the terms on annotation (``rai:``)
https://docs.mlcommons.org/croissant/docs/croissant-rai-spec.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from hgld.errors import InputError
from hgld.release.settings import ReleaseSettings
from hgld.tables import HIERARCHY
from hgld.tables.schemas import meaning_of

#: The context that Croissant 1.1 prescribes.
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "arrayShape": "cr:arrayShape",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "containedIn": "cr:containedIn",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isArray": "cr:isArray",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "name": {"@container": "@language"},
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
_FORMATS = {
    ".parquet": "application/x-parquet",
    ".csv": "text/csv",
    ".md": "text/markdown",
    "": "text/plain",
}
#: Description of each column of the table ``hierarchy``.
COLUMN_DESCRIPTIONS = {column.name: meaning_of(column) for column in (*HIERARCHY.schema, *HIERARCHY.optional)}
_TYPES = {pa.string(): "sc:Text", pa.int64(): "sc:Integer"}


def croissant_metadata(
    settings: ReleaseSettings,
    *,
    date: str,
    citation: str,
    annotations: str,
    machine_annotated: bool,
    files: Mapping[str, tuple[str, int]],
    columns: pa.Schema,
    splits: Sequence[str],
) -> dict[str, Any]:
    """Return the Croissant description of a release: its files, and a record set for every split.

    Args:
        settings: What the publisher says of the dataset.
        date: Date of publication, YYYY-MM-DD.
        citation: BibTeX.
        annotations: Description of how the labels were made.
        machine_annotated: Whether no person decided on some of the landmarks.
        files: SHA-256 and size in bytes of each file, by path within the release.
        columns: Schema of the Parquet files.
        splits: Splits of the release, each in ``data/<split>.parquet``.
    """
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"],
        "name": settings.name,
        "description": settings.description,
        "url": settings.url,
        "version": settings.version,
        "datePublished": date,
        "license": settings.licence_url,
        "creator": [{"@type": "sc:Person", "name": creator} for creator in settings.creators],
        **({"keywords": list(settings.keywords)} if settings.keywords else {}),
        "citeAs": citation,
        "rai:dataAnnotationProtocol": annotations,
        **({"rai:machineAnnotationTools": ["hgld"]} if machine_annotated else {}),
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": path,
                "name": path,
                "contentUrl": path,
                "contentSize": f"{size} B",
                "encodingFormat": _FORMATS[Path(path).suffix],
                "sha256": digest,
            }
            for path, (digest, size) in files.items()
        ],
        "recordSet": [_record_set(split, columns) for split in splits],
    }


def validate_croissant(path: Path) -> bool:
    """Validate a Croissant file with mlcroissant if that is installed.

    Returns:
        Whether mlcroissant is installed.

    Raises:
        InputError: The file is invalid.
    """
    try:
        import mlcroissant
    except ImportError:
        return False
    try:
        mlcroissant.Dataset(jsonld=path)
    except mlcroissant.ValidationError as error:
        raise InputError(f"{path.name}: invalid Croissant: {error}") from error
    return True


def _record_set(split: str, columns: pa.Schema) -> dict[str, Any]:
    fields = []
    for column in columns:
        is_list = pa.types.is_list(column.type)
        field = {
            "@type": "cr:Field",
            "@id": f"{split}/{column.name}",
            "name": column.name,
            "description": COLUMN_DESCRIPTIONS[column.name],
            "dataType": _TYPES[column.type.value_type if is_list else column.type],
            "source": {"fileObject": {"@id": f"data/{split}.parquet"}, "extract": {"column": column.name}},
        }
        fields.append({**field, "repeated": True} if is_list else field)
    return {
        "@type": "cr:RecordSet",
        "@id": split,
        "name": split,
        "description": f"The {split} landmarks, sorted by landmark_id.",
        "key": [{"@id": f"{split}/split"}, {"@id": f"{split}/landmark_id"}],
        "field": fields,
    }
