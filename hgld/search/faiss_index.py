"""Approximate search with faiss: build an index of a gallery, measure its recall, and search it.

An index ``x.faiss`` is a plain faiss index of unit vectors with inner products, whose labels are the rows of the
embeddings. Beside it, ``x.faiss.ids.txt`` has their ids, one per line, and ``x.faiss.json`` the measured recall. A
folder of indexes, of the parts of the embeddings in the same order, is searched as one.

An index that compresses vectors only proposes candidates, whose cosines are then computed from the embeddings. So
scores do not depend on the index, and those of several indexes compare.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import cosine_similarity

from hgld.compute.executors import Part
from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.errors import ConfigurationError, InputError, require
from hgld.io.files import atomic_write
from hgld.ragged import RaggedIndices
from hgld.resources import import_extra
from hgld.search.gallery import Gallery, unit_blocks

#: Kinds of index by name; other names are descriptions for faiss's ``index_factory``.
KINDS = ("flat", "ivf", "ivf-pq", "hnsw")
#: Descriptions of indexes that hold vectors as they are.
_LOSSLESS = re.compile(r"(IVF[^,]*,)?Flat|HNSW\d*(,Flat)?")
#: Candidates per result that a lossy index proposes, with the least effort.
_CANDIDATES = 10
#: Neighbours per query in the measurement of the recall.
_RECALL_AT = 10
#: Inverted lists that a search visits, and candidates of a search in an HNSW graph, with the least effort.
_N_PROBE, _EF_SEARCH = 16, 64
#: Efforts that are tried in order.
_EFFORTS = [2**n for n in range(9)]
#: Gain of recall below which no higher effort is tried.
_LEAST_GAIN = 0.002
#: Most vectors that an index is trained with.
_MAX_TRAINED = 2**17
#: Least number of training vectors per inverted list, by faiss's advice.
_TRAINED_PER_LIST = 39
#: Most bytes of a compressed vector.
_MAX_BYTES = 64
#: Most rows of embeddings in their digest.
_MAX_DIGESTED = 1000


@dataclass(frozen=True)
class IndexRecord:
    """Contents of an index and its measured recall.

    Args:
        description: Description of the index for faiss's ``index_factory``.
        images: Number of images.
        dim: Dimension of the vectors.
        vectors_sha256: SHA-256 of up to a thousand of the embeddings.
        effort: Factor of the least number of lists or candidates that a search visits.
        queries: Number of images of the gallery that were queries in the measurement; none finds itself.
        recall: Share of their ten nearest images that the index finds; NaN if there is only one image.
        speedup: Time of the exact search divided by that of the index, for these queries.
        settings: Kind, wanted recall, number of queries and seed that it was built with.
    """

    description: str
    images: int
    dim: int
    vectors_sha256: str
    effort: int = 1
    queries: int = 0
    recall: float = float("nan")
    speedup: float = float("nan")
    settings: str = ""

    @classmethod
    def of_parts(cls, records: Sequence[IndexRecord]) -> IndexRecord:
        """Return the record of several indexes, whose recall is their mean over the images."""
        if len(records) == 1:
            return records[0]  # a weighted mean of one number may differ from it in the last bit
        images = [record.images for record in records]
        return replace(
            records[0],
            description=" and ".join(dict.fromkeys(record.description for record in records)),
            images=sum(images),
            queries=sum(record.queries for record in records),
            recall=float(np.average([record.recall for record in records], weights=images)),
            speedup=float(np.average([record.speedup for record in records], weights=images)),
        )


class FaissIndex:
    """Indexes of the parts of a gallery in its order, or one of all of it, open for searching.

    Args:
        indexes: The indexes of faiss.
        records: Record of each index.
        vectors: Embeddings of the gallery.
    """

    def __init__(self, indexes: Sequence[Any], records: Sequence[IndexRecord], vectors: torch.Tensor) -> None:
        self.record, self._vectors = IndexRecord.of_parts(records), vectors
        starts = accumulate((index.ntotal for index in indexes), initial=0)
        candidates = [0 if _LOSSLESS.fullmatch(each.description) else _CANDIDATES * each.effort for each in records]
        self._parts, self._is_lossy = [*zip(indexes, starts, candidates, strict=False)], any(candidates)

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
        unit = np.ascontiguousarray(queries / lengths, np.float32)
        found = [(start, *index.search(unit, k * max(n, 1))) for index, start, n in self._parts]
        positions = np.concatenate([np.where(own < 0, -1, own + start) for start, _, own in found], axis=1)
        scores = self._cosines(unit, positions) if self._is_lossy else np.concatenate([own for _, own, _ in found], 1)
        scores = np.where(positions < 0, -np.inf, scores)
        order = np.lexsort((positions, -scores), axis=1)[:, :k]  # of equal scores, the first position
        scores, positions = np.take_along_axis(scores, order, 1), np.take_along_axis(positions, order, 1)
        return np.where(positions < 0, np.nan, scores).astype(np.float32), positions.astype(np.int64)

    def _cosines(self, queries: npt.NDArray[np.float32], positions: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Return the cosines of each query with its candidates."""
        cosines = np.empty(positions.shape, np.float32)
        for row, query in enumerate(torch.from_numpy(queries)):
            vectors = self._vectors[torch.from_numpy(positions[row].clip(min=0))].float()
            cosines[row] = cosine_similarity(vectors, query[None]).numpy()
        return cosines


def build_index(
    gallery: Gallery, out: Path, kind: str = "ivf", *, recall: float = 0.95, queries: int = 1000, seed: int = 0
) -> IndexRecord:
    """Build an index of a gallery, measure its recall, and write it; vectors are read in blocks.

    Args:
        gallery: The gallery.
        out: File to write or replace.
        kind: Kind of index: flat (exact), ivf (inverted lists), ivf-pq (the same of compressed vectors), hnsw (a
            graph), or what faiss's index_factory takes, such as IVF4096,PQ64.
        recall: Wanted recall of an index, for which a search visits more of it, as long as it gains by that.
        queries: Number of images that are searched to measure the recall of an index.
        seed: Seed that chooses these images, and those that train an index.

    Raises:
        ConfigurationError: faiss is not installed, or has no such index, or ``queries`` is less than 1.
        InputError: An embedding is not finite, or only zeros.
    """
    require(queries >= 1, "at least 1", queries=queries)
    generator = np.random.default_rng(seed)
    index, description = _trained_index(gallery, kind, generator)
    settings = _settings(kind, recall, queries, seed)
    record = IndexRecord(description, len(gallery), gallery.dim, _digest(gallery.vectors), settings=settings)
    record = _tune_effort(index, record, gallery.vectors, _sample(generator, len(gallery), queries), recall)
    _write_index(index, record, gallery, out)
    return record


def _trained_index(gallery: Gallery, kind: str, generator: np.random.Generator) -> tuple[Any, str]:
    """Return an index that holds a gallery, and its description."""
    faiss = import_extra("faiss")
    description = _description(kind, len(gallery), gallery.dim)
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
    return index, description


def _write_index(index: Any, record: IndexRecord, gallery: Gallery, out: Path) -> None:
    """Write an index with its record and the ids of the images; all of them appear, or none."""
    faiss = import_extra("faiss")
    record_path, ids_path = _record_path(out), out.with_name(f"{out.name}.ids.txt")
    with atomic_write(record_path) as record_draft, atomic_write(out) as draft, atomic_write(ids_path) as ids_draft:
        with ids_draft.open("w", encoding="utf-8") as lines:
            lines.writelines(f"{image}\n" for image in gallery.ids)
        try:
            faiss.write_index(index, str(draft))
        except RuntimeError as error:  # such as a full disk
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(out)) from error
        record_draft.write_text(json.dumps(asdict(record), indent=1) + "\n")
        # Killed between the renames, a process leaves no index rather than an old one under new ids.
        out.unlink(missing_ok=True)
        record_path.unlink(missing_ok=True)


def build_part(gallery: Gallery, folder: Path, part: Part, kind: str = "ivf", **options: Any) -> IndexRecord:
    """Build the index of a part of a gallery in a folder; other arguments are those of :func:`build_index`.

    Raises:
        ConfigurationError: There are more parts than images, or as for :func:`build_index`.
    """
    rows = part.of(range(len(gallery)))
    if part.count > len(gallery):
        raise ConfigurationError(f"{part.count:,} parts of {len(gallery):,} images; choose fewer `parts`")
    in_part = slice(rows[0], rows[-1] + 1)
    images = Gallery(gallery.vectors[in_part], gallery.ids[in_part], np.empty((len(rows), 0), np.int64))
    return build_index(images, part_file(folder, part), kind, **options)


def part_file(folder: Path, part: Part) -> Path:
    """Return the file of the index of a part."""
    return folder / f"{part.file_name}.faiss"


def parts_are_written(
    gallery: Gallery, folder: Path, kind: str, *, recall: float, queries: int, seed: int
) -> Callable[[Part], bool]:
    """Return a function that tells whether the index of a part exists, built from these embeddings and settings.

    Arguments are those of :func:`build_part`.
    """

    def is_written(part: Part) -> bool:
        rows, file = part.of(range(len(gallery))), part_file(folder, part)
        if not rows or not file.is_file():
            return False
        try:
            record = _read_record(file)
        except (OSError, ValueError, TypeError):
            return False
        expected = _settings(kind, recall, queries, seed), _digest(gallery.vectors, rows[0], rows[-1] + 1)
        return expected == (record.settings, record.vectors_sha256)

    return is_written


def _settings(kind: str, recall: float, queries: int, seed: int) -> str:
    return f"{kind}, recall {recall} for {queries} queries, seed {seed}"


def open_index(path: Path, gallery: Gallery) -> FaissIndex:
    """Open an index of a gallery, or a folder of those of its parts; what faiss can map into memory is read on use.

    Raises:
        ConfigurationError: faiss is not installed, or the index is that of another gallery.
        InputError: The index or its record cannot be read.
    """
    faiss = import_extra("faiss")
    indexes, records, start = [], [], 0
    for file in sorted(path.glob("*.faiss")) if path.is_dir() else [path]:
        try:
            record = _read_record(file)
            index = faiss.read_index(str(file), faiss.IO_FLAG_MMAP)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            raise InputError(
                f"{file}: no whole index with its record {_record_path(file).name}; write it with hgld "
                "export-embeddings"
            ) from error
        stop = start + index.ntotal
        if index.d != gallery.dim or record.vectors_sha256 != _digest(gallery.vectors, start, stop):
            raise ConfigurationError(
                f"{file}: the index of other embeddings, {index.ntotal:,} of {index.d} dimensions; write it again "
                "from those that are searched"
            )
        _set_search_effort(index, record.effort)
        indexes.append(index)
        records.append(record)
        start = stop
    if start != len(gallery):
        raise ConfigurationError(
            f"{path}: the index of other embeddings, {start:,} of {len(gallery):,}; write one from each part of "
            "those that are searched"
        )
    return FaissIndex(indexes, records, gallery.vectors)


def _tune_effort(
    index: Any, record: IndexRecord, vectors: torch.Tensor, rows: npt.NDArray[np.int64], wanted: float
) -> IndexRecord:
    """Set the least effort with which an index reaches the wanted recall, and return its record.

    The effort is no longer raised once the recall hardly gains by it.
    """
    queries = np.concatenate(list(unit_blocks(vectors, rows)))
    k = min(_RECALL_AT, len(vectors) - 1)
    start = time.perf_counter()
    excluded = RaggedIndices.from_lists([[row] for row in rows.tolist()])
    exact = nearest_neighbours(queries, vectors, max(k, 1), excluded=excluded)[1].tolist()
    exact_seconds = time.perf_counter() - start
    best = replace(record, queries=len(rows))
    for effort in _EFFORTS if k else []:
        _set_search_effort(index, effort)
        start = time.perf_counter()
        _, positions = FaissIndex([index], [replace(record, effort=effort)], vectors).search(queries, k + 1)
        seconds = time.perf_counter() - start
        n_found = 0
        for row, true_nearest, nearest in zip(rows.tolist(), exact, positions.tolist(), strict=True):
            n_found += len({*true_nearest}.intersection([image for image in nearest if image != row][:k]))
        recall = n_found / (k * len(rows))
        if recall < best.recall + _LEAST_GAIN:
            break
        best = replace(best, effort=effort, recall=recall, speedup=exact_seconds / max(seconds, 1e-9))
        if recall >= wanted:
            break
    _set_search_effort(index, best.effort)
    return best


def _description(kind: str, n_images: int, dim: int) -> str:
    """Return the description of a kind of index for faiss's ``index_factory``."""
    # 4 sqrt(N) lists, as faiss's guidelines advise, or as many as the vectors for training suffice for
    n_lists = max(1, min(int(4 * n_images**0.5), min(n_images, _MAX_TRAINED) // _TRAINED_PER_LIST))
    n_bytes = max(n for n in range(1, _MAX_BYTES + 1) if dim % n == 0 and (2 * n <= dim or n == 1))
    descriptions = {
        "flat": "Flat",
        "ivf": f"IVF{n_lists},Flat",
        "ivf-pq": f"IVF{n_lists},PQ{n_bytes}",
        "hnsw": "HNSW32",
    }
    return descriptions.get(kind, kind)


def _set_search_effort(index: Any, effort: int) -> None:
    import faiss

    for name, value in (("nprobe", _N_PROBE * effort), ("efSearch", _EF_SEARCH * effort)):
        try:
            faiss.ParameterSpace().set_index_parameter(index, name, value)
        except RuntimeError:  # an index of another kind
            continue


def _sample(generator: np.random.Generator, n: int, size: int) -> npt.NDArray[np.int64]:
    """Return sorted random rows, all of them if there are no more."""
    return np.sort(generator.choice(n, min(n, size), replace=False))


def _digest(vectors: torch.Tensor, start: int = 0, stop: int | None = None) -> str:
    """Return the SHA-256 of some of the rows from ``start`` to ``stop``, or to the end of the embeddings."""
    stop = len(vectors) if stop is None else min(stop, len(vectors))
    rows = np.linspace(start, stop - 1, min(max(stop - start, 0), _MAX_DIGESTED)).astype(np.int64)
    return hashlib.sha256(vectors[torch.from_numpy(rows)].float().numpy().tobytes()).hexdigest()


def _record_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def _read_record(index: Path) -> IndexRecord:
    return IndexRecord(**json.loads(_record_path(index).read_text()))
