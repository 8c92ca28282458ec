"""The stage ``embed``: encode each unique label once with a text encoder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hgld import tables
from hgld.arrays import Floats
from hgld.errors import ConfigurationError, InputError, counted, indented_list
from hgld.labels.clean import count_labels
from hgld.labels.encoders import LoadEncoder, TextEncoder, load_encoder, local_checkpoint
from hgld.labels.settings import DEFAULT_TEMPLATE, EmbedConfig
from hgld.progress import NoProgress, Progress
from hgld.stage import Stage
from hgld.taxonomy.project import nouns_of

STAGE = Stage("embed", (tables.LABEL_EMBEDDINGS,), inputs={"clean": tables.CLEAN})


@dataclass(frozen=True)
class EmbedSummary:
    """Numbers of labels and of texts encoded in this run, dimension of the vectors, and encoder."""

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
    load: LoadEncoder = load_encoder,
) -> EmbedSummary | None:
    """Write every unique label of a ``clean`` table with its numbers of landmarks and its unit vector.

    Vectors that ``out`` already holds from the same encoder and templates are reused; the encoder
    is loaded only if there are new labels.

    Args:
        clean: Clean table.
        out: Table of label embeddings to write, sorted by label_id.
        config: Encoder and templates.
        force: Encode all labels again.
        progress: Reports the labels that are encoded.
        load: Returns the encoder for a name and a device.

    Returns:
        The numbers of labels and encoded texts, or None if ``out`` was up to date.
    """
    config = config or EmbedConfig()
    checkpoint = tables.input_digests(checkpoint=local_checkpoint(config.encoder))
    parameters = {"encoder": config.encoder, "templates": list(config.templates)}

    def compute() -> tuple[Sequence[pa.Table], EmbedSummary]:
        labels = _labels_table(tables.read_table(clean, tables.CLEAN))
        if not len(labels):
            raise InputError(f"{clean}: no {nouns_of(clean)[1]}, hence no labels to embed")
        texts = labels["label"].to_pylist()
        vectors: dict[str, NDArray[np.float32]] = {}
        if not force:
            vectors = _reusable_vectors(out, parameters, checkpoint)
        new = sorted(set(texts).difference(vectors))
        if new:
            encoder = load(config.encoder, config.device)
            embedded = embed_labels(new, encoder, config.templates, config.batch_size, progress)
            vectors.update(zip(new, embedded, strict=True))
        matrix = np.stack([vectors[text] for text in texts])
        values = pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), matrix.shape[1])
        summary = EmbedSummary(len(labels), len(new), matrix.shape[1], config.encoder)
        return [labels.append_column("embedding", values)], summary

    return STAGE.run(
        {"out": out},
        compute,
        inputs={"clean": clean},
        digests=checkpoint,
        parameters=parameters,
        force=force,
    )


def embed_labels(
    labels: Sequence[str],
    encoder: TextEncoder,
    templates: Sequence[str] = (DEFAULT_TEMPLATE,),
    batch_size: int = 256,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """Encode labels as unit vectors.

    Each label is put into every template; the vectors of these texts are averaged and normalised.

    Args:
        labels: Texts of the labels.
        encoder: The text encoder.
        templates: Texts with one placeholder {} for the label.
        batch_size: Number of labels that are encoded at once.
        progress: Reports the labels that are encoded.

    Returns:
        float32, shape (n_labels, dimension).

    Raises:
        ConfigurationError: The encoder returns a zero or non-finite vector.
    """
    progress = progress or NoProgress()
    progress.start(len(labels))
    # Encoders pad a batch to its longest text: texts of similar length together take a third of the
    # time.
    order = sorted(range(len(labels)), key=lambda number: len(labels[number]))
    batches = []
    for start in range(0, len(labels), batch_size):
        batch = [labels[number] for number in order[start : start + batch_size]]
        encoded = []
        for template in templates:
            encoded.append(encoder.encode([template.replace("{}", label) for label in batch]))
        batches.append(np.mean(encoded, axis=0))
        progress.advance(len(batch))
    vectors = np.concatenate(batches)[np.argsort(order)]
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unusable = np.flatnonzero(~(np.isfinite(norms) & (norms > 0)))
    if len(unusable):
        first = labels[int(unusable[0])]
        raise ConfigurationError(
            f'the encoder returns no usable vector for {len(unusable)} labels, first "{first}"; choose '
            "another encoder"
        )
    return np.asarray(vectors / norms, np.float32)


def _labels_table(clean: pa.Table) -> pa.Table:
    """Return the unique labels of a ``clean`` table with their numbers of landmarks.

    The rows are sorted by label_id. All splits except index count as train.
    """
    names, counts = count_labels(clean)
    ids = sorted(names)
    n_index = counts.pop("index", Counter())
    n_train = sum(counts.values(), Counter())
    return pa.table(
        {
            "label_id": pa.array(ids, pa.string()),
            "label": pa.array([names[label_id] for label_id in ids], pa.string()),
            "landmarks_train": pa.array([n_train[label_id] for label_id in ids], pa.int64()),
            "landmarks_index": pa.array([n_index[label_id] for label_id in ids], pa.int64()),
        }
    )


def _reusable_vectors(
    out: Path, parameters: Mapping[str, Any], checkpoint: Mapping[str, str]
) -> dict[str, NDArray[np.float32]]:
    """Return the vectors in ``out`` by label if the encoder, templates and checkpoint are the same."""
    try:
        provenance = tables.read_provenance(out)
        is_same = (
            provenance.command == STAGE.name
            and provenance.parameters == parameters
            and provenance.inputs.get("checkpoint") == checkpoint.get("checkpoint")
        )
        if not is_same:
            return {}
        table = tables.read_table(out, tables.LABEL_EMBEDDINGS)
    except InputError:
        # The table is missing or damaged.
        return {}
    return dict(zip(table["label"].to_pylist(), embedding_matrix(table), strict=True))


def vectors_of_labels(
    embeddings: Path, clusters: Path, ids: Sequence[str], texts: Sequence[str]
) -> Floats:
    """Return the vectors of labels: float64, shape (n, dimension).

    Args:
        embeddings: Table of label embeddings.
        clusters: Table of the labels, for the error message.
        ids: Ids of n labels.
        texts: Texts of the labels.

    Raises:
        InputError: A label has no vector.
    """
    table = tables.read_table(embeddings, tables.LABEL_EMBEDDINGS)
    row_of = {label_id: row for row, label_id in enumerate(table["label_id"].to_pylist())}
    missing = []
    for label_id, text in zip(ids, texts, strict=True):
        if label_id not in row_of:
            missing.append(f'{label_id} ("{text}")')
    if missing:
        raise InputError(
            f"{embeddings}: no embedding of {counted(len(missing), 'label')} of {clusters}; make both from the same "
            f"clean table:\n{indented_list(missing)}"
        )
    rows = [row_of[label_id] for label_id in ids]
    return embedding_matrix(table)[rows].astype(np.float64)


def embedding_matrix(table: pa.Table) -> NDArray[np.float32]:
    """Return the column embedding of a table as a float32 array of shape (n_rows, dimension)."""
    column = table["embedding"].combine_chunks()
    matrix: NDArray[np.float32] = column.flatten().to_numpy(zero_copy_only=False)
    return matrix.reshape(len(table), column.type.list_size)
