"""Scores of queries with a gallery, a block at a time: cosines or inner products of embeddings, or minus distances.

Distances are computed from matrix products: ``|q - g|^2 = |q|^2 - 2 q g + |g|^2``. So small distances are differences
of large numbers: ``|q - g|^2`` has an error of about ``2^-22 (|q| + |g|)^2`` in float32, and of about
``2^-51 (|q| + |g|)^2`` in float64. Two items may change places only if their distances differ by less than the error.

The Poincaré distance ``arcosh(1 + 2 |q - g|^2 / ((1 - |q|^2) (1 - |g|^2)))`` also depends on the gap between a point
and the boundary of the ball, which is computed in float64. Coordinates in float32 limit its precision: a gap of 0.002
has a relative error of 3e-5.
"""

from __future__ import annotations

import math
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hgld.compute.machine import parallel_map, thread_count
from hgld.errors import ConfigurationError, InputError, require, require_at_least, require_choice


def at_least_float32(values: Tensor) -> Tensor:
    """Return float64 tensors unchanged, and all others as float32.

    >>> at_least_float32(torch.zeros(2, dtype=torch.float16)).dtype
    torch.float32
    """
    return values if values.dtype == torch.float64 else values.float()


def vector_lengths(vectors: Tensor, dtype: torch.dtype) -> Tensor:
    """Return L2 norms along the last dimension, also of vectors so short that their squares are 0 in float32."""
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=-1, dtype=dtype)
    is_short = lengths < _SHORT
    if is_short.any():
        exact = torch.linalg.vector_norm(vectors[is_short], dim=-1, dtype=torch.float64)
        lengths[is_short] = exact.to(dtype)
    return lengths


Precision = Literal["float32", "tf32", "float64"]
#: How embeddings are compared. By a distance, the score is minus the distance.
Distance = Literal["cosine", "dot", "euclidean", "poincare"]
#: Embeddings of images, in memory or memory-mapped.
Vectors = npt.NDArray[Any] | Tensor

#: Length from which on rounding of the squares of float32 does not count.
_SHORT = 1e-15
_WIDTH = {"cpu": 2**11, "cuda": 2**17}  # gallery items scored at once
_MEMORY = {"cpu": 2**29, "cuda": 2**33}  # bytes of a block, unless its size is given
#: Upper bound on the bytes of a block per query and gallery item: keys (or scores) and levels, sorted in place by
#: NumPy; CUDA's sort needs two more copies, and positions.
_BYTES = {
    ("cpu", "int32"): 5,
    ("cpu", "int64"): 9,
    ("cpu", "scores"): 42,
    ("cuda", "int32"): 48,
    ("cuda", "int64"): 48,
    ("cuda", "scores"): 64,
}
_PRECISION_LOCK = threading.RLock()
_MAX_QUERIES = 512  # of a block, so that several processes have blocks to share


def checked_device(name: str) -> torch.device:
    """Return the device of a name.

    Raises:
        ConfigurationError: There is no such device.
    """
    require(re.fullmatch(r"cpu|cuda(:\d+)?", name) is not None, "cpu, cuda or cuda:N", device=name)
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigurationError(
            f"the device is {name!r}, but torch sees {torch.cuda.device_count()} CUDA devices; use cpu, or a machine "
            "and a build of torch with CUDA"
        )
    return device


@dataclass(frozen=True)
class ScoringConfig:
    """How scores of queries with a gallery are computed.

    Args:
        block_size: Number of queries scored at once; by default as many as fit into half a gigabyte (8 GB on a GPU),
            512 at most. It decides how much memory is used, and changes metrics only by the rounding of scores.
        device: ``cpu``, ``cuda`` or ``cuda:1``.
        precision: Precision of scores: ``float32``; ``tf32``, which on NVIDIA's tensor cores multiplies with 10 bits
            of mantissa and adds in float32 (exact products for float16 embeddings; the same as float32 on a CPU);
            ``float64``, which sorts the scores themselves, at several times the time and memory.
        distance: How embeddings are compared: by their ``cosine``; ``dot``, their inner product; ``euclidean``
            distance; or ``poincare``, the hyperbolic distance of points of the unit ball (curvature -1).

    Raises:
        ConfigurationError: A value is invalid, or the device does not exist.
    """

    #: Whether embeddings may have only zeros: their scores are 0.
    allows_zeros: ClassVar[bool] = False

    block_size: int | None = None
    device: str = "cpu"
    precision: Precision = "float32"
    distance: Distance = "cosine"

    def __post_init__(self) -> None:
        require_at_least(1, block_size=self.block_size)
        require_choice(Precision, precision=self.precision)
        require_choice(Distance, distance=self.distance)
        checked_device(self.device)

    def queries_per_block(self, n_gallery: int, keys: Literal["int32", "int64"] = "int32") -> int:
        """Return the number of queries ranked at once against a gallery of this size.

        Args:
            keys: Type of the keys that are sorted where scores are not float64.
        """
        if self.block_size:
            return self.block_size
        kind = torch.device(self.device).type
        sorted_values = "scores" if self.precision == "float64" else keys
        bytes_per_query = _BYTES[kind, sorted_values] * max(n_gallery, 1)
        return max(1, min(_MEMORY[kind] // bytes_per_query, _MAX_QUERIES))

    def items_per_block(self, n_gallery: int) -> int:
        """Return the number of items of a gallery of this size that are scored at once."""
        return min(_WIDTH[torch.device(self.device).type], n_gallery)


class Scorer:
    """Computes scores of queries with the gallery, a block of the gallery at a time.

    Args:
        queries: float, shape (n_query, d).
        gallery: float, shape (n_gallery, d).

    Attributes:
        gallery: The gallery, on the device if it fits.
        largest: Upper bound on the scores, up to rounding.
        dtype: Type of the scores, float32 or float64.

    Raises:
        InputError: The embeddings do not fit each other, or one has a value that is not finite, or only zeros unless
            the configuration or the distance allows them, or is no point of the unit ball.
    """

    def __init__(self, queries: Tensor, gallery: Tensor, config: ScoringConfig) -> None:
        check_embeddings(queries, gallery)
        self._device = torch.device(config.device)
        self.dtype = torch.float64 if config.precision == "float64" else torch.float32
        self._width = config.items_per_block(len(gallery))
        self._distance = config.distance
        self._is_metric = config.distance in ("euclidean", "poincare")
        self._allows_zeros = config.allows_zeros or self._is_metric
        query_lengths = self._lengths(queries, "query")
        gallery_lengths = query_lengths if queries is gallery else self._lengths(gallery, "gallery")
        self.largest = self._bound(query_lengths.max().item(), gallery_lengths.max().item()) or 1.0
        self._queries, self.gallery = queries, gallery
        if config.distance == "cosine":
            for lengths in (query_lengths, gallery_lengths):
                lengths[lengths == 0] = 1  # so that the scores are 0
        self._query_lengths, self._gallery_lengths = query_lengths, gallery_lengths
        if self._device.type == "cuda":
            free_bytes, _ = torch.cuda.mem_get_info(self._device)
            if gallery.nbytes < free_bytes // 2:
                self.gallery = gallery.to(self._device)

    def shares(self, n_items: int) -> list[range]:
        """Return the starts of blocks of the items, divided among threads; blocks do not depend on threads."""
        n_threads = thread_count(self._device)
        n_blocks = math.ceil(n_items / self._width)
        bounds = [n_blocks * thread // n_threads for thread in range(n_threads + 1)]
        width = self._width
        return [range(first * width, last * width, width) for first, last in pairwise(bounds)]

    def prepare(self, queries: slice) -> None:
        """Prepare for calls of :meth:`scores` by several threads for these queries; subclasses may need that."""

    def scores(self, queries: slice, starts: range | None = None) -> Iterator[tuple[slice, Tensor]]:
        """Yield blocks of the gallery and their scores, shape (n_query, n_block), which the next step overwrites.

        To be used within :func:`float32_matmul`, which holds for all threads.

        Args:
            starts: One of the :meth:`shares`; all blocks by default.
        """
        query_vectors = self.query_vectors(queries)
        n_queries, n_dims = query_vectors.shape
        # Reused buffers: fresh pages cost more than the products.
        widened = torch.empty(self._width, n_dims, dtype=self.dtype, device=self._device)
        scores = torch.empty(n_queries * self._width, dtype=self.dtype, device=self._device)
        if starts is None:
            starts = range(0, len(self.gallery), self._width)
        for start in starts:
            gallery = slice(start, min(start + self._width, len(self.gallery)))
            items = self.gallery[gallery]
            if items.dtype != self.dtype or items.device != widened.device:
                items = widened[: len(items)].copy_(items)
            block = scores[: n_queries * len(items)].view(n_queries, len(items))
            torch.mm(query_vectors, items.T, out=block)
            gallery_lengths = self._gallery_lengths[gallery]
            if self._distance == "cosine":
                block /= gallery_lengths
            elif self._is_metric:
                query_lengths = self._query_lengths[queries, None]
                self._negate_distances(block, query_lengths, gallery_lengths)
            yield gallery, block

    def _negate_distances(
        self, products: Tensor, query_lengths: Tensor, gallery_lengths: Tensor
    ) -> None:
        """Turn products into minus distances, in place."""
        query_squares, gallery_squares = query_lengths.square(), gallery_lengths.square()
        squares = products.mul_(-2)
        squares.add_(gallery_squares.to(self.dtype)).add_(query_squares.to(self.dtype))
        squares.clamp_(min=0)
        if self._distance == "poincare":  # arcosh(1 + 2 t) = 2 arsinh(sqrt(t))
            squares.div_((1 - gallery_squares).to(self.dtype))
            squares.div_((1 - query_squares).to(self.dtype))
            squares.sqrt_().asinh_().mul_(-2)
        else:
            squares.sqrt_().neg_()

    def _bound(self, length: float, other: float) -> float:
        """Return an upper bound on the absolute scores of vectors up to these lengths."""
        if self._distance == "poincare":
            return 2 * (math.atanh(length) + math.atanh(other))
        return {"cosine": 1.0, "dot": length * other, "euclidean": length + other}[self._distance]

    def query_vectors(self, queries: slice) -> Tensor:
        """Return the vectors of queries whose products with the gallery are scores: float, shape (n_query, d)."""
        vectors = self._queries[queries].to(self._device, self.dtype)
        if self._distance == "cosine":
            vectors = vectors / self._query_lengths[queries, None]
        return vectors

    def _lengths(self, embeddings: Tensor, role: str) -> Tensor:
        """Return L2 norms, after a check that they are finite, and above 0 if need be: shape (n,), on the device."""
        dtype = torch.float64 if self._is_metric else self.dtype
        lengths = torch.empty(len(embeddings), dtype=dtype)

        def measure(starts: range) -> None:
            # A reused buffer, as in :meth:`scores`.
            widened = embeddings.new_empty(self._width, embeddings.shape[1], dtype=self.dtype)
            for start in starts:
                block = embeddings[start : start + self._width]
                if block.dtype != self.dtype:
                    block = widened[: len(block)].copy_(block)
                lengths[start : start + len(block)] = vector_lengths(block, lengths.dtype)

        parallel_map(measure, self.shares(len(embeddings)), self._device)
        _require_no_row(~lengths.isfinite(), role, "NaN, infinite or huge values")
        if not self._allows_zeros:
            _require_no_row(lengths == 0, role, "only zeros or tiny values")
        if self._distance == "poincare":
            reason = "a length of 1 or more, outside of the Poincaré ball"
            _require_no_row(lengths >= 1, role, reason)
        return lengths.to(self._device)


def _require_no_row(is_invalid: Tensor, role: str, reason: str) -> None:
    """Raise an :class:`InputError` that lists the rows of invalid embeddings, if there are any."""
    if not is_invalid.any():
        return
    rows = is_invalid.nonzero()[:, 0].tolist()
    listed = ", ".join(map(str, rows[:10]))
    if len(rows) > 10:
        listed += ", …"
    raise InputError(
        f"{len(rows):,} of {len(is_invalid):,} {role} embeddings have {reason}: rows {listed}; embed these images "
        "again or leave them out"
    )


@contextmanager
def float32_matmul(precision: Precision) -> Iterator[None]:
    """Set the precision of float32 matrix products in all threads of the process.

    Another thread that sets it waits until this block has ended.
    """
    with _PRECISION_LOCK, _float32_matmul(precision):
        yield


@contextmanager
def _float32_matmul(precision: Precision) -> Iterator[None]:
    tf32 = precision == "tf32"
    if not hasattr(torch.backends.cuda.matmul, "fp32_precision"):  # before torch 2.9
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
        return
    # The functions above fail once these attributes are set; the attributes work after calls of the functions, too.
    cuda, cpu = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    precisions = cuda.fp32_precision, cpu.fp32_precision
    cuda.fp32_precision, cpu.fp32_precision = "tf32" if tf32 else "ieee", "ieee"
    try:
        yield
    finally:
        cuda.fp32_precision, cpu.fp32_precision = precisions


def check_embeddings(queries: Tensor, gallery: Tensor) -> None:
    """Raise an :class:`InputError` unless both are floating point numbers of the shape (n, d), with the same d."""
    for embeddings, role in ((queries, "query"), (gallery, "gallery")):
        check_vectors(embeddings, role)
        if not len(embeddings):
            raise InputError(f"there are no {role} embeddings; expected one row per image")
    if queries.shape[1] != gallery.shape[1]:
        raise InputError(
            f"the query embeddings have {queries.shape[1]} dimensions and the gallery embeddings {gallery.shape[1]}; "
            "embed both with the same model"
        )


def check_vectors(embeddings: Tensor, role: str) -> None:
    """Raise an :class:`InputError` unless embeddings are floating point numbers of the shape (n, d), d above 0."""
    if embeddings.ndim != 2 or not embeddings.shape[1] or not embeddings.is_floating_point():
        raise InputError(
            f"the {role} embeddings have the shape {tuple(embeddings.shape)} and the type {embeddings.dtype}; "
            "expected floating point numbers of the shape (n, d)"
        )
    if embeddings.layout != torch.strided:
        raise InputError(
            f"the {role} embeddings are a tensor of the layout {embeddings.layout}; expected a dense one"
        )


def as_tensor(embeddings: Vectors) -> Tensor:
    """Return a tensor that shares the memory of the embeddings, which may be mapped read-only: do not write to it.

    Raises:
        InputError: torch cannot read the array, such as one of another byte order.
    """
    if isinstance(embeddings, Tensor):
        return embeddings.detach()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        try:
            return torch.from_numpy(np.asarray(embeddings))
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"the embeddings are not an array that torch can read: {error}"
            ) from error
