"""Each unique label once, as a vector of a text encoder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hgld import tables
from hgld.errors import ConfigurationError, InputError
from hgld.labels.encoders import DEFAULT_ENCODER, TextEncoder, load_encoder, local_checkpoint
from hgld.progress import NoProgress, Progress
from hgld.taxonomy.label_identity import label_id

DEFAULT_TEMPLATE = "A picture of a {}"


@dataclass(frozen=True)
class EmbedConfig:
    """How labels become vectors.

    Args:
        encoder: an encoder's name, see :mod:`hgld.labels.encoders`.
        templates: texts with one ``{}`` each, in which the label is put; their vectors are averaged.
        batch_size: texts at a time.
        device: a torch device; by default CUDA where there is one.
    """

    encoder: str = DEFAULT_ENCODER
    templates: Sequence[str] = (DEFAULT_TEMPLATE,)
    batch_size: int = 256
    device: str | None = None

    def __post_init__(self) -> None:
        if not self.templates:
            raise ConfigurationError(f'there is no template; expected one such as "{DEFAULT_TEMPLATE}"')
        for template in self.templates:
            if template.count("{}") != 1:
                raise ConfigurationError(
                    f'the template "{template}" has {template.count("{}")} places for the label; expected '
                    f'exactly one {{}}, as in "{DEFAULT_TEMPLATE}"'
                )
        if self.batch_size < 1:
            raise ConfigurationError(f"the batch size is {self.batch_size}; expected 1 or more")


@dataclass(frozen=True)
class EmbedSummary:
    """How many labels there are, how many of their texts were encoded now, and by what."""

    labels: int
    encoded: int
    dimension: int
    encoder: str


def embed_file(
    clean: Path,
    out: Path,
    config: EmbedConfig | None = None,
    *,
    force: bool = False,
    progress: Progress | None = None,
    load: Callable[[str, str | None], TextEncoder] = load_encoder,
) -> EmbedSummary | None:
    """Write every unique label of a clean table with its landmarks per split and its unit vector.

    Vectors that ``out`` already holds, from the same encoder and templates, are taken over; the encoder is
    not even loaded when there is nothing new.

    Args:
        clean: the clean table.
        out: the table of label embeddings to write, in the order of label_id.
        config: how labels become vectors.
        force: do all the work although ``out`` is there.
        progress: told of every batch.
        load: makes the encoder from its name and device.

    Returns:
        What was done, or None if ``out`` was up to date.

    Raises:
        InputError: ``clean`` is not a clean table, or has no landmarks.
        ConfigurationError: there is no such encoder, or a package that it needs.
        SourceError: the encoder's weights cannot be had.
    """
    config = config or EmbedConfig()
    if not clean.is_file():
        raise InputError(f"{clean}: no such file; hgld clean writes it")
    provenance = tables.Provenance(
        "embed",
        {"encoder": config.encoder, "templates": list(config.templates)},
        tables.digests(clean=clean, checkpoint=local_checkpoint(config.encoder)),
    )
    if not force and tables.is_up_to_date(out, provenance):
        return None

    labels = count_labels(tables.read_table(clean, tables.CLEAN))
    if not len(labels):
        raise InputError(f"{clean}: no landmarks, so no labels to embed")
    vectors = {} if force else _vectors_in(out, provenance)
    texts = sorted(set(labels["label"].to_pylist()))
    new = [text for text in texts if text not in vectors]
    if new:
        encoder = load(config.encoder, config.device)
        embedded = embed_labels(new, encoder, config.templates, config.batch_size, progress or NoProgress())
        vectors |= dict(zip(new, embedded, strict=True))

    matrix = np.stack([vectors[label] for label in labels["label"].to_pylist()])
    values = pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), matrix.shape[1])
    tables.write_table(out, tables.LABEL_EMBEDDINGS, labels.append_column("embedding", values), provenance)
    return EmbedSummary(len(labels), len(new), matrix.shape[1], config.encoder)


def embed_labels(
    labels: Sequence[str],
    encoder: TextEncoder,
    templates: Sequence[str] = (DEFAULT_TEMPLATE,),
    batch_size: int = 256,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """The unit vectors of labels, shape (len(labels), dimension).

    Each label is put into every template; the vectors of its texts are averaged, then normalised.
    """
    progress = progress or NoProgress()
    progress.start(len(labels))
    batches = []
    for start in range(0, len(labels), batch_size):
        batch = labels[start : start + batch_size]
        vectors = np.mean(
            [encoder.encode([template.replace("{}", label) for label in batch]) for template in templates],
            axis=0,
        )
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        unusable = ~(np.isfinite(norms) & (norms > 0)).ravel()
        if unusable.any():
            raise ConfigurationError(
                f'the encoder gives no usable vector for {unusable.sum()} labels, first "'
                f'{batch[int(unusable.argmax())]}"; choose another one'
            )
        batches.append(vectors / norms)
        progress.advance(len(batch))
    return np.concatenate(batches).astype(np.float32)


def count_labels(clean: pa.Table) -> pa.Table:
    """The unique labels of a clean table, in the order of label_id, with their landmarks per split."""
    names: dict[str, str] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for split, label, item in zip(
        *(clean[name].to_pylist() for name in ("split", "supercategory", "class_item")), strict=True
    ):
        identity = label_id(label, item)
        names[identity] = label
        counts[identity, split] += 1
    ids = sorted(names)
    columns: Mapping[str, pa.Array] = {
        "label_id": pa.array(ids, pa.string()),
        "label": pa.array([names[identity] for identity in ids], pa.string()),
        "landmarks_train": pa.array([counts[identity, "train"] for identity in ids], pa.int64()),
        "landmarks_index": pa.array([counts[identity, "index"] for identity in ids], pa.int64()),
    }
    return pa.table(columns)


def _vectors_in(out: Path, wanted: tables.Provenance) -> dict[str, NDArray[np.float32]]:
    """The vectors by label that an earlier run left in ``out`` with the same encoder and templates."""
    try:
        made = tables.read_provenance(out)
        if (made.command, made.parameters, made.inputs.get("checkpoint")) != (
            wanted.command,
            wanted.parameters,
            wanted.inputs.get("checkpoint"),
        ):
            return {}
        table = tables.read_table(out, tables.LABEL_EMBEDDINGS)
    except InputError:  # none, or not whole: made anew
        return {}
    return dict(zip(table["label"].to_pylist(), matrix_of(table), strict=True))


def matrix_of(table: pa.Table) -> NDArray[np.float32]:
    """The embeddings of a table as one array, shape (rows, dimension)."""
    column = table["embedding"].combine_chunks()
    matrix: NDArray[np.float32] = column.flatten().to_numpy(zero_copy_only=False)
    return matrix.reshape(len(table), column.type.list_size)
