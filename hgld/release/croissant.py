"""Metadata of a release in Croissant 1.0, the vocabulary of MLCommons for machine learning datasets.

https://docs.mlcommons.org/croissant/docs/croissant-spec.html, and for the terms on annotation (``rai:``)
https://docs.mlcommons.org/croissant/docs/croissant-rai-spec.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from hgld.errors import InputError

#: The context that Croissant 1.0 prescribes.
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
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
COLUMN_DESCRIPTIONS = {
    "split": "train or index; landmark_id is numbered within it",
    "landmark_id": "id of the landmark in GLDv2, unique within a split",
    "category": "URL of the landmark's category on Wikimedia Commons",
    "supercategory": "class that the landmark is an instance of, in the words of Wikidata or Commons",
    "hierarchical_label": "group (super-category) that annotators assigned to that class",
    "natural_or_human_made": "root of the group: natural or human-made",
    "extra_levels": "levels between the group and the root, finest first",
    "hierarchical_labels": "all groups of the landmark; hierarchical_label is the first",
    "label_source": (
        "instance_of, or photographs if the group was predicted from these; supercategory then repeats the group"
    ),
}
_TYPES = {pa.string(): "sc:Text", pa.int64(): "sc:Integer"}


def croissant_metadata(
    *,
    name: str,
    version: str,
    url: str,
    date: str,
    creators: Sequence[str],
    description: str,
    citation: str,
    annotations: str,
    machine_annotated: bool,
    files: Mapping[str, tuple[str, int]],
    columns: pa.Schema,
    splits: Sequence[str],
) -> dict[str, Any]:
    """Return the Croissant description of a release: its files, and a record set for every split.

    Args:
        name: Name of the dataset.
        version: Version of the dataset, three integers separated by dots.
        url: Page where it is published.
        date: Date of publication, YYYY-MM-DD.
        creators: Names of the creators; none for a dataset that no person decided on, whose creator is hgld.
        description: Description in a sentence or two.
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
        "conformsTo": ["http://mlcommons.org/croissant/1.0", "http://mlcommons.org/croissant/RAI/1.0"],
        "name": name,
        "description": description,
        "url": url,
        "version": version,
        "datePublished": date,
        "license": "https://creativecommons.org/licenses/by/4.0/",
        "creator": [{"@type": "sc:Person", "name": creator} for creator in creators]
        or [{"@type": "sc:Organization", "name": "hgld"}],
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
        "description": f"The landmarks of GLDv2's {split} set, sorted by landmark_id.",
        "key": [{"@id": f"{split}/split"}, {"@id": f"{split}/landmark_id"}],
        "field": fields,
    }
