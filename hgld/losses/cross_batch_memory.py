"""A queue of the embeddings of earlier batches, against which a loss ranks the present one."""

from __future__ import annotations

import torch

from hgld.compute.dtypes import at_least_float32
from hgld.errors import ConfigurationError, InputError
from hgld.losses.base import Loss, check_batch


class CrossBatchMemory(Loss):
    """A loss within the batch, plus ``memory_weight`` times the same against a memory (XBM, Wang et al., CVPR 2020).

    ::

        loss(batch) + memory_weight loss(batch, memory)

    The memory is a queue: each call puts the batch into it, in place of what has been there longest, and then
    compares with all of it. So it holds the batch itself, and each query is among its own positives, as in the
    published code; as do older embeddings of the same image, which are positives like any other. The embeddings are
    copies in float32, through which no gradient flows.

    Terms that compare with proxies do not depend on references and count once. The authors of the papers divide the
    sum by 1 + ``memory_weight`` for all other terms; Wang et al. do not.

    A call in training mode is a step. Until ``start_step`` steps have been taken, the memory is filled only, because
    embeddings move too fast to be compared with old ones. In evaluation mode it stays as it is. Run the backward
    pass of a step before the next call, which overwrites part of what this one was compared with.

    ``parts`` has ``batch``, ``memory`` once that counts, and the parts of both as ``batch.NAME`` and
    ``memory.NAME``. All of the memory is in ``state_dict``.

    Args:
        loss: the loss.
        size: how many embeddings the memory holds, up to all of the training set.
        dim: d, their dimension.
        n_levels: L, the columns of their labels.
        memory_weight: of the second term, above 0.
        start_step: the steps without it, 0 or more.

    Raises:
        ConfigurationError: a number is out of its range, or the loss compares with nothing but proxies.
    """

    embeddings: torch.Tensor
    labels: torch.Tensor
    n_stored: torch.Tensor
    n_steps: torch.Tensor

    def __init__(
        self,
        loss: Loss,
        size: int,
        dim: int,
        n_levels: int,
        memory_weight: float = 1.0,
        start_step: int = 0,
    ) -> None:
        super().__init__()
        if size < 1 or dim < 1 or n_levels < 1:
            raise ConfigurationError(
                f"a memory of {size} embeddings of dimension {dim}, {n_levels} levels; expected at least 1 of each"
            )
        if not (memory_weight > 0 and start_step >= 0):
            raise ConfigurationError(
                f"the memory's weight is {memory_weight} and its first step {start_step}; expected above 0, and 0 or "
                "more"
            )
        if loss.reference_part() is None:
            raise ConfigurationError(
                f"{type(loss).__name__} compares with proxies alone, so a memory does nothing; leave it out"
            )
        self.loss = loss
        self.memory_weight = memory_weight
        self.start_step = start_step
        self.register_buffer("embeddings", torch.zeros(size, dim))
        self.register_buffer("labels", torch.zeros(size, n_levels, dtype=torch.int64))
        #: How many embeddings were ever put in, and how many steps were taken.
        self.register_buffer("n_stored", torch.zeros((), dtype=torch.int64))
        self.register_buffer("n_steps", torch.zeros((), dtype=torch.int64))

    def forward(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_labels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See :class:`~hgld.losses.base.Loss`.

        Raises:
            InputError: there are references, which the memory is to be; or the batch does not fit it.
        """
        check_batch(embeddings, labels, reference_embeddings, reference_labels)
        if reference_embeddings is not None:
            raise InputError("a memory has references of its own; call it with the batch alone")
        if (embeddings.shape[1], labels.shape[1]) != (self.embeddings.shape[1], self.labels.shape[1]):
            raise InputError(
                f"embeddings of dimension {embeddings.shape[1]} and {labels.shape[1]} levels, but the memory is for "
                f"dimension {self.embeddings.shape[1]} and {self.labels.shape[1]} levels"
            )
        total: torch.Tensor = self.loss(embeddings, labels)
        self.parts = {"batch": total.detach(), **_prefixed("batch", self.loss)}
        if self.training:
            self._put(embeddings.detach(), labels)
            self.n_steps += 1
        part = self.loss.reference_part()
        if part is None or self.n_steps <= self.start_step:
            return total
        stored, stored_labels = self.content()
        compared: torch.Tensor = part(
            embeddings, labels, stored.to(at_least_float32(embeddings).dtype), stored_labels
        )
        self.parts = {**self.parts, "memory": compared.detach(), **_prefixed("memory", part)}
        return total + self.memory_weight * compared

    def content(self) -> tuple[torch.Tensor, torch.Tensor]:
        """What the memory holds, in no particular order: embeddings (n, d) and labels (n, L), which are views."""
        n = min(int(self.n_stored), len(self.embeddings))
        return self.embeddings[:n], self.labels[:n]

    def _put(self, embeddings: torch.Tensor, labels: torch.Tensor) -> None:
        size = len(self.embeddings)
        newest = slice(max(0, len(embeddings) - size), None)
        places = (self.n_stored + torch.arange(len(embeddings), device=self.n_stored.device)[newest]) % size
        self.embeddings[places] = embeddings[newest].to(self.embeddings.dtype)
        self.labels[places] = labels[newest]
        self.n_stored += len(embeddings)


def _prefixed(name: str, loss: Loss) -> dict[str, torch.Tensor]:
    return {f"{name}.{part}": value for part, value in loss.parts.items()}
