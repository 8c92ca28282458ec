"""Cross-batch memory: a queue of embeddings of earlier batches that serve as references."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from hgld.errors import ConfigurationError, InputError, require, require_choice
from hgld.losses.base import Loss
from hgld.losses.kernels.batches import Labels, without_padding

#: Combination of the losses of the batch and of the memory.
Reduction = Literal["mean", "sum"]
#: Types of stored embeddings.
StoredType = Literal["float32", "float16", "bfloat16"]


class CrossBatchMemory(Loss):
    """A loss of the batch plus the same loss against a memory (XBM, Wang et al., CVPR 2020).

    ::

        mean: (loss(batch) + memory_weight loss(batch, memory)) / (1 + memory_weight)
        sum:   loss(batch) + memory_weight loss(batch, memory)

    SupRank, the published code of the paper, averages; the code of ROADMAP and Wang et al. add.
    Only terms that compare with references are averaged or added. Terms that compare with proxies
    count once, with their full weight, in both reductions.

    The memory is a queue: each call stores the batch in place of the oldest embeddings, then
    compares the batch with the whole memory. So the memory includes the batch itself, and each
    query is among its own positives, as in the published code. Older embeddings of the same image
    are positives like other images of its class. With ``unique`` the memory has one place per image
    instead, which holds its newest embedding, and each call needs ``indices``, as in ROADMAP's
    code. Stored embeddings are copies without gradient, in float32 or, with half the memory, in 16
    bits. Losses multiply and add them in float32, so scores only have the rounding error of the
    stored values, at most 2^-11 in float16 and 2^-8 in bfloat16
    (:func:`~hgld.losses.kernels.batches.inner_products`).

    Each call in training mode is a step. The first ``start_step`` steps only fill the memory,
    because embeddings change too fast at the beginning. In evaluation mode the memory does not
    change. Run the backward pass of a step before the next call, which overwrites stored
    embeddings.

    ``parts`` has the loss of the batch as ``batch`` and its parts as ``batch.NAME``. After
    ``start_step``, it also has ``memory`` and ``memory.NAME``. The ``state_dict`` includes the
    whole memory.

    Args:
        loss: Loss of the batch and of the batch against the memory.
        size: Number of embeddings in the memory, up to the size of the training set.
        dim: Dimension d of the embeddings.
        n_levels: Number L of columns of the labels.
        memory_weight: Weight of the loss against the memory, above 0; the loss of the batch has
            weight 1.
        reduction: Whether the two losses are averaged (``mean``) or added (``sum``).
        start_step: Number of steps without the loss against the memory, 0 or more.
        unique: Whether the memory has one place per image; ``size`` is then the number of images.
        labels_per_image: Most labels of an image, K, for label sets. Default: each image has a
            single label.
        dtype: Type of the stored embeddings: ``float32``, ``float16`` or ``bfloat16``.

    Raises:
        ConfigurationError: A number is out of range, or the loss compares with proxies only.

    >>> from hgld.losses import SupHAP
    >>> loss = CrossBatchMemory(SupHAP(), size=100, dim=2, n_levels=1)
    >>> embeddings, labels = torch.tensor([[1.0, 0.0], [0.8, 0.6]]), torch.tensor([[0], [0]])
    >>> loss(embeddings, labels)
    tensor(0.)
    >>> loss.content()[0].shape
    torch.Size([2, 2])
    """

    embeddings: Tensor
    labels: Tensor
    #: Number of embeddings ever stored.
    n_stored: Tensor
    #: Whether each place holds an embedding.
    filled: Tensor
    n_steps: Tensor
    takes_label_sets = takes_any_length = True

    def __init__(
        self,
        loss: Loss,
        size: int,
        dim: int,
        n_levels: int,
        memory_weight: float = 1.0,
        reduction: Reduction = "mean",
        start_step: int = 0,
        unique: bool = False,
        labels_per_image: int | None = None,
        dtype: StoredType = "float32",
    ) -> None:
        super().__init__()
        require(
            min(size, dim, n_levels) >= 1,
            "at least 1 of each",
            size=size,
            dim=dim,
            n_levels=n_levels,
        )
        require(
            memory_weight > 0 and start_step >= 0,
            "above 0, and 0 or more",
            memory_weight=memory_weight,
            start_step=start_step,
        )
        require_choice(Reduction, reduction=reduction)
        require_choice(StoredType, dtype=dtype)
        if loss.reference_part() is None:
            raise ConfigurationError(
                f"{type(loss).__name__} compares with proxies only, so a memory has no effect; use it without one"
            )
        self.loss = loss
        self.memory_weight = memory_weight
        self.reduction = reduction
        self.start_step = start_step
        self.unique = unique
        self._indices: Tensor | None = None
        self.register_buffer("embeddings", torch.zeros(size, dim, dtype=getattr(torch, dtype)))
        if labels_per_image is None:
            labels = torch.full((size, n_levels), -1)
        else:
            labels = torch.full((size, labels_per_image, n_levels), -1)
        self.register_buffer("labels", labels)
        self.register_buffer("filled", torch.zeros(size, dtype=torch.bool))
        self.register_buffer("n_stored", torch.zeros((), dtype=torch.int64))
        self.register_buffer("n_steps", torch.zeros((), dtype=torch.int64))

    def forward(
        self,
        embeddings: Tensor,
        labels: Labels,
        reference_embeddings: Tensor | None = None,
        reference_labels: Labels | None = None,
        *,
        indices: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of a batch and of the batch against the memory.

        Args:
            embeddings: Float tensor of shape (B, d), unit vectors.
            labels: Integers of shape (B, L), finest level first; or (B,) for a single level; or (B,
                K, L) for label sets.
            reference_embeddings: None, as the memory provides the references.
            reference_labels: None.
            indices: int64 tensor of shape (B,): number of each image among all images, from 0. A
                ``unique`` memory stores the embedding at this place.

        Returns:
            Scalar, float32 or float64.

        Raises:
            InputError: The batch does not fit the memory, or ``indices`` are missing or out of
                range; and see :class:`hgld.losses.Loss`.
        """
        if self.unique:
            self._check_indices(embeddings, indices)
        self._indices = indices
        try:
            return super().forward(embeddings, labels, reference_embeddings, reference_labels)
        finally:
            self._indices = None

    def forward_batch(
        self,
        embeddings: Tensor,
        labels: Tensor,
        reference_embeddings: Tensor | None = None,
        reference_labels: Tensor | None = None,
    ) -> Tensor:
        if reference_embeddings is not None:
            raise InputError(
                "the memory provides the `reference_embeddings`; call the loss with the batch only"
            )
        self._check_shapes(embeddings, labels)
        if self.training:
            self._store(embeddings.detach(), labels)
            self.n_steps += 1
        if self.n_steps <= self.start_step:
            batch_loss = self.loss.forward_batch(embeddings, labels)
            self.parts = {"batch": batch_loss.detach(), **_prefixed("batch", self.loss)}
            return batch_loss
        reference_part = self.loss.reference_part()
        proxy_part = self.loss.proxy_part()
        assert reference_part is not None  # checked by the constructor
        batch_loss = reference_part.forward_batch(embeddings, labels)
        parts = _prefixed("batch", reference_part)
        proxy_loss = batch_loss.new_zeros(())
        if proxy_part is not None:
            proxy_loss = proxy_part.forward_batch(embeddings, labels)
            parts |= _prefixed("batch", proxy_part)
        stored, stored_labels = self.content()
        if stored.dtype == torch.float32:
            stored = stored.to(embeddings.dtype)
        memory_loss = reference_part.forward_batch(embeddings, labels, stored, stored_labels)
        self.parts = {
            "batch": (batch_loss + proxy_loss).detach(),
            **parts,
            "memory": memory_loss.detach(),
            **_prefixed("memory", reference_part),
        }
        combined = batch_loss + self.memory_weight * memory_loss
        if self.reduction == "mean":
            combined = combined / (1 + self.memory_weight)
        return proxy_loss + combined

    def content(self) -> tuple[Tensor, Tensor]:
        """Return stored embeddings (n, d) and labels (n, L) or (n, K, L), in any order."""
        if self.unique:
            embeddings, labels = self.embeddings[self.filled], self.labels[self.filled]
        else:
            n_stored = int(self.n_stored)
            embeddings, labels = self.embeddings[:n_stored], self.labels[:n_stored]
        if labels.ndim == 3:
            labels = without_padding(labels)
        return embeddings, labels

    def _check_shapes(self, embeddings: Tensor, labels: Tensor) -> None:
        dim = self.embeddings.shape[1]
        n_levels = self.labels.shape[-1]
        if embeddings.shape[1] != dim or labels.shape[-1] != n_levels:
            raise InputError(
                f"`embeddings` have dimension {embeddings.shape[1]} and `labels` {labels.shape[-1]} levels, but the "
                f"memory is for dimension {dim} and {n_levels} levels"
            )
        if labels.shape[1:-1] > self.labels.shape[1:-1] or labels.ndim != self.labels.ndim:
            raise InputError(
                f"`labels` have shape {tuple(labels.shape)}, but the memory holds labels of shape "
                f"{tuple(self.labels.shape[1:])}; set `labels_per_image` to the most labels of any image"
            )

    def _check_indices(self, embeddings: Tensor, indices: Tensor | None) -> None:
        size = len(self.embeddings)
        if indices is None:
            raise InputError(
                "a memory with one place per image needs `indices`, the numbers of the images of the batch"
            )
        if indices.shape != embeddings.shape[:1] or not ((indices >= 0) & (indices < size)).all():
            raise InputError(
                f"`indices` have shape {tuple(indices.shape)} and are {int(indices.min())} to {int(indices.max())}; "
                f"expected one for each of {len(embeddings)} embeddings, 0 to {size - 1}"
            )

    def _store(self, embeddings: Tensor, labels: Tensor) -> None:
        size = len(self.embeddings)
        device = self.n_stored.device
        newest: slice | list[int]
        if self.unique:
            assert self._indices is not None  # checked by forward
            last_row = {index: row for row, index in enumerate(self._indices.tolist())}
            newest = list(last_row.values())
            places = self._indices.to(device)[newest]
        else:
            newest = slice(max(0, len(embeddings) - size), None)
            places = (self.n_stored + torch.arange(len(embeddings), device=device)[newest]) % size
        self.filled[places] = True
        self.embeddings[places] = embeddings[newest].to(self.embeddings.dtype)
        if labels.ndim == 3:
            n_missing = self.labels.shape[1] - labels.shape[1]
            labels = pad(labels, (0, 0, 0, n_missing), value=-1)
        self.labels[places] = labels[newest]
        self.n_stored += len(embeddings)


def _prefixed(prefix: str, loss: Loss) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": value for name, value in loss.parts.items()}
