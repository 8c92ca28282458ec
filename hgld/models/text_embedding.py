"""Embed the names of labels with the text tower of a model, as queries for its images."""

from __future__ import annotations

from pathlib import Path

import torch

from hgld.datasets.manifest import is_manifest, read_manifest
from hgld.errors import ConfigurationError, InputError
from hgld.io.columns import column_names, read_text_columns
from hgld.labels.embed import EmbedConfig, embed_labels
from hgld.labels.encoders import load_encoder
from hgld.models.model_settings import OPEN_CLIP, ModelSource
from hgld.progress import Progress
from hgld.tables.embeddings import write_embeddings


def embed_texts(
    texts: Path,
    out: Path,
    config: EmbedConfig | None = None,
    *,
    progress: Progress | None = None,
) -> int:
    """Write embeddings of the names of labels; see the protocol ``texts`` of ``hgld evaluate``.

    Args:
        texts: Manifest, whose names of labels at all levels are embedded, with spaces for underscores and without
            those that are numbers; or a CSV or Parquet file with the name of each label as id and its words as text;
            or the folder ilias_core of ILIAS, whose descriptions are embedded by their paths.
        out: Embeddings to write: .parquet, .npy or .safetensors; the ids are the names.
    """
    columns = [] if texts.is_dir() else column_names(texts)
    if texts.is_dir():
        files = sorted(texts.glob("*/query/T*.txt"))
        words = {file.relative_to(texts).as_posix(): file.read_text(encoding="utf-8").strip() for file in files}
    elif {"id", "text"} <= {*columns}:
        table = read_text_columns(texts, ["id", "text"])
        words = dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))
        if len(words) < len(table):
            raise InputError(f"{texts}: {len(table) - len(words):,} ids are repeated; give each label one text")
    elif is_manifest(columns):
        names = (name for level in read_manifest(texts).class_names for name in level)
        words = {name: name.replace("_", " ") for name in names if not name.isdecimal()}
    else:
        raise InputError(f"{texts}: the columns are {', '.join(columns)}; expected a manifest, or id and text")
    if not words:
        raise InputError(f"{texts}: has no names of labels that are words; give a table with the columns id and text")
    config = config or EmbedConfig()
    encoder = load_encoder(config.encoder, config.device)
    vectors = embed_labels(list(words.values()), encoder, config.templates, config.batch_size, progress)
    write_embeddings(out, torch.from_numpy(vectors), list(words))
    return len(words)


def text_encoder_of(source: ModelSource | None) -> str:
    """Return the name of the text encoder that belongs to the model of images."""
    name = "a model of unknown origin" if source is None else source.model
    if source is None or not name.startswith(OPEN_CLIP) or source.pretrained == "none":
        raise ConfigurationError(f"{name} has no text tower; texts are for images embedded by {OPEN_CLIP}MODEL/TAG")
    return name if source.pretrained is None else f"{name.partition('/')[0]}/{source.pretrained}"
