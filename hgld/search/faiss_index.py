"""Approximate search with faiss: build an index of a gallery, measure what it finds, and search it.

An index ``x.faiss`` is a plain faiss index of unit vectors with inner products, whose labels are the rows of the
embeddings. Beside it, ``x.faiss.ids.txt`` has their ids, one per line, and ``x.faiss.json`` the measured recall.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.errors import ConfigurationError, InputError
from hgld.io.files import atomic_write
from hgld.ragged import RaggedIndices
from hgld.search.gallery import Gallery, unit_blocks

#: Kinds of index by name; other names are descriptions for faiss's ``index_factory``.
KINDS = ("flat", "ivf", "hnsw")
#: Neighbours per query in the measurement of the recall.
_RECALL_AT = 10
#: Lists of an IVF index that are searched, and candidates of a search in an HNSW graph.
_N_PROBE, _EF_SEARCH = 16, 64
#: Vectors that an index is trained with at most.
_MAX_TRAINED = 2**17


@dataclass(frozen=True)
class IndexRecord:
    """What an index holds, and how well it finds it.

    Args:
        description: Description of the index for faiss's ``index_factory``.
        images: Number of images.
        dim: Dimension of the vectors.
        ids_sha256: SHA-256 of the ids.
        queries: Number of images of the gallery that were searched to measure the recall, without themselves.
        recall: Share of their ten nearest images that the index finds; NaN if there is only one image.
        speedup: Time of the exact search divided by that of the index, for these queries.
    """

    description: str
    images: int
    dim: int
    ids_sha256: str
    queries: int
    recall: float
    speedup: float


class FaissIndex:
    """An index that is open for searching."""

    def __init__(self, index: Any, record: IndexRecord) -> None:
        self._index, self.record = index, record

    def search(
        self, queries: npt.NDArray[np.float32], k: int
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Return cosines and positions of the k nearest, (n, k), best first; NaN and -1 where there are fewer.

        Raises:
            InputError: A query is not finite, or only zeros.
        """
        lengths = np.linalg.norm(queries, axis=1, keepdims=True)
        if not np.isfinite(lengths).all() or not lengths.all():
            raise InputError("a query has NaN or infinite values, or only zeros")
        scores, positions = self._index.search(np.ascontiguousarray(queries / lengths, np.float32), k)
        scores = np.where(positions < 0, -np.inf, scores)
        order = np.lexsort((positions, -scores), axis=1)  # of equal scores, the first position
        scores, positions = np.take_along_axis(scores, order, 1), np.take_along_axis(positions, order, 1)
        return np.where(positions < 0, np.nan, scores).astype(np.float32), positions.astype(np.int64)


def build_index(gallery: Gallery, out: Path, kind: str = "ivf", *, queries: int = 1000, seed: int = 0) -> IndexRecord:
    """Build an index of a gallery, measure its recall, and write it; vectors are read in blocks.

    Args:
        gallery: The gallery.
        out: File to write or replace.
        kind: ``flat`` (exact), ``ivf`` (inverted lists), ``hnsw`` (a graph), or a description for faiss's
            ``index_factory``, such as ``IVF4096,PQ64``.
        queries: Number of images of the gallery that are searched to measure the recall.
        seed: Seed that chooses these images, and those that an index is trained with.

    Raises:
        ConfigurationError: faiss is not installed, or has no such index, or ``queries`` is less than 1.
        InputError: An embedding is not finite, or only zeros.
    """
    if queries < 1:
        raise ConfigurationError(f"`queries` is {queries}; expected at least 1")
    faiss = _import_faiss()
    generator = np.random.default_rng(seed)
    description = _description(kind, len(gallery))
    try:
        index = faiss.index_factory(gallery.dim, description, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        raise ConfigurationError(
            f'faiss cannot make an index "{kind}" of {gallery.dim} dimensions; choose {", ".join(KINDS)}, or a '
            "description for its index_factory"
        ) from error
    rows = _sample(generator, len(gallery), _MAX_TRAINED)
    try:
        index.train(np.concatenate(list(unit_blocks(gallery.vectors, rows))))
        for block in unit_blocks(gallery.vectors):
            index.add(block)
    except RuntimeError as error:
        raise ConfigurationError(
            f'faiss cannot make an index "{kind}" of {len(gallery):,} images: {error}'
        ) from error
    _set_search_effort(faiss, index)
    record = _measured(FaissIndex(index, _UNMEASURED), gallery, description, generator, queries)
    ids = "\n".join([*gallery.ids.tolist(), ""])
    record_path, ids_path = _record_path(out), out.with_name(f"{out.name}.ids.txt")
    with atomic_write(record_path) as record_draft, atomic_write(out) as draft, atomic_write(ids_path) as ids_draft:
        ids_draft.write_text(ids, encoding="utf-8")
        try:
            faiss.write_index(index, str(draft))
        except RuntimeError as error:  # such as a full disk
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(out)) from error
        record_draft.write_text(json.dumps(asdict(record), indent=1) + "\n")
        # Killed between the renames, a process leaves no index rather than an old one under new ids.
        out.unlink(missing_ok=True)
        record_path.unlink(missing_ok=True)
    return record


def open_index(path: Path, gallery: Gallery) -> FaissIndex:
    """Open an index of a gallery; what faiss can map into memory is read on use.

    Raises:
        ConfigurationError: faiss is not installed, or the index is that of another gallery.
        InputError: The index or its record cannot be read.
    """
    faiss = _import_faiss()
    try:
        record = IndexRecord(**json.loads(_record_path(path).read_text()))
        index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP)
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        raise InputError(
            f"{path}: no whole index with its record {_record_path(path).name}; write it with hgld export-embeddings"
        ) from error
    found = (index.ntotal, index.d, record.ids_sha256)
    if found != (len(gallery), gallery.dim, _ids_digest(gallery)):
        raise ConfigurationError(
            f"{path}: the index of other embeddings, {index.ntotal:,} of {index.d} dimensions; write it again from "
            "those that are searched"
        )
    _set_search_effort(faiss, index)
    return FaissIndex(index, record)


_UNMEASURED = IndexRecord("", 0, 0, "", 0, float("nan"), float("nan"))


def _measured(
    index: FaissIndex, gallery: Gallery, description: str, generator: np.random.Generator, n_queries: int
) -> IndexRecord:
    """Measure how many of the nearest images an index finds, and how much faster than exact search it is."""
    rows = _sample(generator, len(gallery), n_queries)
    vectors = np.concatenate(list(unit_blocks(gallery.vectors, rows)))
    k = min(_RECALL_AT, len(gallery) - 1)
    start = time.perf_counter()
    excluded = RaggedIndices.from_lists([[row] for row in rows.tolist()])
    _, exact = nearest_neighbours(vectors, gallery.vectors, max(k, 1), excluded=excluded)
    exact_seconds = time.perf_counter() - start
    start = time.perf_counter()
    _, found = index.search(vectors, k + 1)
    seconds = time.perf_counter() - start
    hits = 0
    for row, wanted, near in zip(rows.tolist(), exact.tolist(), found.tolist(), strict=True):
        hits += len(set(wanted) & set([position for position in near if position != row][:k]))
    recall = hits / (k * len(rows)) if k else float("nan")
    digest = _ids_digest(gallery)
    return IndexRecord(
        description, len(gallery), gallery.dim, digest, len(rows), recall, exact_seconds / max(seconds, 1e-9)
    )


def _description(kind: str, n_images: int) -> str:
    return {"flat": "Flat", "ivf": f"IVF{_n_lists(n_images)},Flat", "hnsw": "HNSW32"}.get(kind, kind)


def _n_lists(n_images: int) -> int:
    """Return the number of inverted lists: 4 sqrt(N), as faiss's guidelines advise, with 39 images each at least."""
    return max(1, min(int(4 * n_images**0.5), n_images // 39))


def _set_search_effort(faiss: Any, index: Any) -> None:
    for name, value in (("nprobe", _N_PROBE), ("efSearch", _EF_SEARCH)):
        try:
            faiss.ParameterSpace().set_index_parameter(index, name, value)
        except RuntimeError:  # an index of another kind
            continue


def _sample(generator: np.random.Generator, n: int, size: int) -> npt.NDArray[np.int64]:
    """Return sorted random rows, all of them if there are no more."""
    return np.sort(generator.choice(n, min(n, size), replace=False))


def _ids_digest(gallery: Gallery) -> str:
    return hashlib.sha256("\n".join(gallery.ids.tolist()).encode()).hexdigest()


def _record_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def _import_faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise ConfigurationError("faiss is not installed; type pip install '.[faiss]' in a clone of hgld") from error
    return faiss
