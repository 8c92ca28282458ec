"""Scores of queries with a gallery, a block at a time: cosines or inner products of embeddings, or minus distances.

Distances come from products of matrices as well: ``|q - g|^2 = |q|^2 - 2 q g + |g|^2``. So small ones are differences
of large numbers: in float32, ``|q - g|^2`` is right to about ``2^-22 (|q| + |g|)^2``, in float64 to ``2^-51`` of it.
Two items may change places only where their distances differ by less than that. The Poincaré distance
``arcosh(1 + 2 |q - g|^2 / ((1 - |q|^2) (1 - |g|^2)))`` also depends on the gap to the boundary of the ball, which is
taken in float64; what rounding of the points themselves does to it is theirs: float32 holds a gap of 0.002 to 3e-5.
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
        lengths[is_short] = torch.linalg.vector_norm(
            vectors[is_short], dim=-1, dtype=torch.float64
        ).to(dtype)
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
        ConfigurationError: A value is not one of these, or the device does not exist.
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
        kind, rows = (
            torch.device(self.device).type,
            "scores" if self.precision == "float64" else keys,
        )
        return self.block_size or max(
            1, min(_MEMORY[kind] // (_BYTES[kind, rows] * max(n_gallery, 1)), _MAX_QUERIES)
        )

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
        self._distance, self._is_metric = (
            config.distance,
            config.distance in ("euclidean", "poincare"),
        )
        self._allows_zeros = config.allows_zeros or self._is_metric
        query_lengths = self._lengths(queries, "query")
        gallery_lengths = query_lengths if queries is gallery else self._lengths(gallery, "gallery")
        self.largest = self._bound(query_lengths.max().item(), gallery_lengths.max().item()) or 1.0
        self._queries, self.gallery = queries, gallery
        if config.distance == "cosine":
            for lengths in (query_lengths, gallery_lengths):
                lengths[lengths == 0] = 1  # so that the scores are 0
        self._query_lengths, self._gallery_lengths = query_lengths, gallery_lengths
        if (
            self._device.type == "cuda"
            and gallery.nbytes < torch.cuda.mem_get_info(self._device)[0] // 2
        ):
            self.gallery = gallery.to(self._device)

    def shares(self, n_items: int) -> list[range]:
        """Return the starts of blocks of the items, divided among threads; blocks do not depend on threads."""
        n_threads, n_parts = thread_count(self._device), -(-n_items // self._width)
        bounds = (n_parts * thread // n_threads * self._width for thread in range(n_threads + 1))
        return [range(*pair, self._width) for pair in pairwise(bounds)]

    def prepare(self, queries: slice) -> None:
        """Do what has to be done once, before threads call :meth:`scores` for these queries: nothing here."""

    def scores(self, queries: slice, starts: range | None = None) -> Iterator[tuple[slice, Tensor]]:
        """Yield blocks of the gallery and their scores, shape (n_query, n_block), which the next step overwrites.

        To be used within :func:`float32_matmul`, which holds for all threads.

        Args:
            starts: One of the :meth:`shares`; all blocks by default.
        """
        own = self.query_vectors(queries)
        # Reused buffers: fresh pages cost more than the products.
        widened = torch.empty(self._width, own.shape[1], dtype=self.dtype, device=self._device)
        scores = torch.empty(len(own) * self._width, dtype=self.dtype, device=self._device)
        for start in range(0, len(self.gallery), self._width) if starts is None else starts:
            gallery = slice(start, min(start + self._width, len(self.gallery)))
            items = self.gallery[gallery]
            if items.dtype != self.dtype or items.device != widened.device:
                items = widened[: len(items)].copy_(items)
            block = scores[: len(own) * len(items)].view(len(own), len(items))
            torch.mm(own, items.T, out=block)
            if self._distance == "cosine":
                block /= self._gallery_lengths[gallery]
            elif self._is_metric:
                self._negative_distances(
                    block, self._query_lengths[queries, None], self._gallery_lengths[gallery]
                )
            yield gallery, block

    def _negative_distances(self, products: Tensor, lengths: Tensor, others: Tensor) -> None:
        """Turn products into minus distances, in place."""
        apart = (
            products.mul_(-2)
            .add_(others.square().to(self.dtype))
            .add_(lengths.square().to(self.dtype))
        )
        apart.clamp_(min=0)
        if self._distance == "poincare":  # arcosh(1 + 2 t) = 2 arsinh(sqrt(t))
            apart.div_((1 - others.square()).to(self.dtype)).div_(
                (1 - lengths.square()).to(self.dtype)
            )
            apart.sqrt_().asinh_().mul_(-2)
        else:
            apart.sqrt_().neg_()

    def _bound(self, length: float, other: float) -> float:
        """Return an upper bound on the absolute scores of vectors up to these lengths."""
        if self._distance == "poincare":
            return 2 * (math.atanh(length) + math.atanh(other))
        return {"cosine": 1.0, "dot": length * other, "euclidean": length + other}[self._distance]

    def query_vectors(self, queries: slice) -> Tensor:
        """Return the vectors of queries whose products with the gallery are scores: float, shape (n_query, d)."""
        own = self._queries[queries].to(self._device, self.dtype)
        return own / self._query_lengths[queries, None] if self._distance == "cosine" else own

    def _lengths(self, embeddings: Tensor, role: str) -> Tensor:
        """Return L2 norms, after a check that they are finite, and above 0 if need be: shape (n,), on the device."""
        lengths = torch.empty(
            len(embeddings), dtype=torch.float64 if self._is_metric else self.dtype
        )

        def measure(starts: range) -> None:
            widened = embeddings.new_empty(
                self._width, embeddings.shape[1], dtype=self.dtype
            )  # as in scores()
            for start in starts:
                block = embeddings[start : start + self._width]
                if block.dtype != self.dtype:
                    block = widened[: len(block)].copy_(block)
                lengths[start : start + len(block)] = vector_lengths(block, lengths.dtype)

        parallel_map(measure, self.shares(len(embeddings)), self._device)
        for invalid, reason in (
            (~lengths.isfinite(), "NaN, infinite or huge values"),
            ((lengths == 0) & (not self._allows_zeros), "only zeros or tiny values"),
            (
                (lengths >= 1) & (self._distance == "poincare"),
                "a length of 1 or more, outside of the Poincaré ball",
            ),
        ):
            if invalid.any():
                rows = invalid.nonzero()[:, 0].tolist()
                raise InputError(
                    f"{len(rows):,} of {len(embeddings):,} {role} embeddings have {reason}: rows "
                    f"{', '.join(map(str, rows[:10]))}{', …' if len(rows) > 10 else ''}; embed these images again or "
                    "leave them out"
                )
        return lengths.to(self._device)


@contextmanager
def float32_matmul(precision: Precision) -> Iterator[None]:
    """Set the precision of float32 matrix products in all threads, whatever is set elsewhere.

    The setting is that of the process, so another thread waits until this block has ended.
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
