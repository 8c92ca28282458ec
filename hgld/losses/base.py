"""The interface of all losses, and sums of losses."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy.label_matrix import REVERSED
from hgld.losses.kernels.batches import Labels, checked_batch, without_padding


class Loss(nn.Module):
    """Base class of losses of embeddings and their hierarchical labels.

    ``loss(embeddings, labels)`` compares each item of the batch, as a query, with the whole batch.
    ``loss(embeddings, labels, reference_embeddings, reference_labels)`` compares the queries with
    the references only, for example with the embeddings of a
    :class:`~hgld.losses.CrossBatchMemory`. References that show the query itself are not excluded.

    Scores are cosines, for which the papers chose their temperatures and margins. Losses compute
    cosines as dot products, and refuse embeddings whose length differs from 1 by more than 1 %:
    normalise embeddings with ``torch.nn.functional.normalize``, as the last layer of hgld's models
    does. Losses in hyperbolic space take embeddings of any length.

    Images may have several labels each, as label sets of shape (K, L) padded with rows of -1. The
    level of a pair of images is the finest level that any of their labels share
    (:func:`pair_levels`), so pairs have levels 1 to L as with single labels, and Omega^(l) of Eq.
    20 contains the images of exactly level l. Algorithm 1 of the thesis also averages over the
    labels of the query; losses of H-AP do so with ``relevance="algorithm1"``.

    Embeddings may be float16 or bfloat16, whose rounding error is below 1 %. Losses compute in
    float32, or in float64 for float64 embeddings, even under autocast: 16-bit scores are spaced
    5e-4 apart, a twentieth of the temperature of the rank surrogates.

    Learnt proxies are parameters of the loss; they usually need a learning rate of their own. To
    train with the joint batch of several processes, see :func:`~hgld.losses.gather_embeddings`.

    Constructors raise a :class:`~hgld.errors.ConfigurationError` for parameters out of range.
    Losses of rankings or average precision raise an :class:`~hgld.errors.InputError` for batches in
    which no query has a positive.

    Subclasses implement :meth:`forward_batch`. A composite loss calls the :meth:`forward_batch` of
    its components.
    """

    #: Terms of the last value by name, before weighting: detached scalars for logs.
    parts: Mapping[str, Tensor]
    #: Whether images may have several labels. A composite loss also requires it of each component.
    takes_label_sets: ClassVar[bool] = False
    #: Whether embeddings may have any length. A composite loss also requires it of each component.
    takes_any_length: ClassVar[bool] = False
    #: Whether the value depends on references, rather than on learnt proxies or the batch alone.
    uses_references: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.parts = {}

    def forward(
        self,
        embeddings: Tensor,
        labels: Labels,
        reference_embeddings: Tensor | None = None,
        reference_labels: Labels | None = None,
    ) -> Tensor:
        """Return the loss of a batch.

        Args:
            embeddings: Float tensor of shape (B, d), unit vectors.
            labels: Tensor or numpy array of integers of shape (B, L), finest level first, nested, 0
                or more; or (B,) for a single level; or (B, K, L) for label sets. Losses with
                proxies need labels that are numbered from 0 within each column.
            reference_embeddings: Float tensor of shape (N, d), unit vectors, N at least 1. Default:
                the batch itself.
            reference_labels: Integers of shape (N, L), or (N,) for a single level; or (N, K', L)
                for label sets.

        Returns:
            Scalar, float32 or float64.

        Raises:
            InputError: Shapes or types do not fit, embeddings are not finite or not of length 1,
                images are unlabelled, the labels are not nested, or the loss takes no label sets.
        """
        any_length = all(loss.takes_any_length for loss in self._components())
        batch = checked_batch(
            embeddings, labels, reference_embeddings, reference_labels, any_length=any_length
        )
        if batch[1].ndim == 3:
            self.require_label_sets()
        with torch.autocast(embeddings.device.type, enabled=False):
            return self.forward_batch(*batch)

    @abstractmethod
    def forward_batch(
        self,
        embeddings: Tensor,
        labels: Tensor,
        reference_embeddings: Tensor | None = None,
        reference_labels: Tensor | None = None,
        /,
    ) -> Tensor:
        """Return the loss of checked input, without autocast.

        Args:
            embeddings: float32 or float64 tensor of shape (B, d).
            labels: int64 tensor of shape (B, L); or (B, K, L), if the loss takes label sets.
            reference_embeddings: Tensor of shape (N, d) and the dtype of ``embeddings``, or of 16
                bits and without gradient, see :func:`~hgld.losses.kernels.batches.inner_products`;
                or None.
            reference_labels: int64 tensor of shape (N, L) or (N, K', L), or None.

        Returns:
            Scalar of the dtype of ``embeddings``.
        """

    def require_label_sets(self) -> None:
        """Check that the loss and all its components take images with several labels.

        Raises:
            InputError: The loss or a component takes single labels only.
        """
        for loss in self._components():
            if not loss.takes_label_sets:
                raise InputError(
                    f"{type(loss).__name__} is for images with one label each, and these may have several; choose "
                    "a rank loss, such as happier, roadmap or sup_hap"
                )

    def _components(self) -> list[Loss]:
        """Return this loss and all losses inside it."""
        return [module for module in self.modules() if isinstance(module, Loss)]

    def reference_part(self) -> Loss | None:
        """Return the part that depends on references, or None for a loss of proxies only."""
        return self._part(uses_references=True)

    def proxy_part(self) -> Loss | None:
        """Return the part that ignores references, or None if the whole loss depends on them."""
        return self._part(uses_references=False)

    def _part(self, uses_references: bool) -> Loss | None:
        return self if self.uses_references == uses_references else None


def pair_levels(labels: Tensor, reference_labels: Tensor) -> Tensor:
    """Return the level of each pair of a query and a reference: the finest that their labels share.

    Single labels are nested, so the level is the number of equal columns. Unlabelled items, with
    -1, have level 0 with all items. Label sets need not be nested, and their levels are not
    transitive: two references that share a class with the query may have no class in common with
    each other.

    Args:
        labels: int64 tensor of shape (B, L), finest level first; or (B, K, L) for label sets, -1 as
            padding.
        reference_labels: int64 tensor of shape (N, L), or (N, K', L).

    Returns:
        int64 tensor of shape (B, N): L for a common finest class, 0 without any common class.

    Raises:
        InputError: Single labels of two items agree at a level, but not at a coarser one.

    >>> pair_levels(torch.tensor([[0, 0, 0]]), torch.tensor([[0, 0, 0], [1, 0, 0], [2, 1, 1]]))
    tensor([[3, 2, 0]])
    >>> pair_levels(torch.tensor([[[0, 0], [2, 1]]]), torch.tensor([[[1, 0], [-1, -1]], [[1, 0], [2, 1]]]))
    tensor([[1, 2]])
    """
    if labels.ndim == 3:
        return _set_levels(labels, reference_labels)
    labels = labels.masked_fill(labels < 0, -2)  # not equal to -1
    levels = torch.zeros(
        len(labels), len(reference_labels), dtype=torch.int64, device=labels.device
    )
    equal_finer = None
    for column in range(labels.shape[1]):
        equal = labels[:, column, None] == reference_labels[None, :, column]
        if equal_finer is not None:
            violations = equal_finer & ~equal
            if violations.any():
                query, reference = violations.nonzero()[0].tolist()
                reversed_order = len(torch.unique(labels[:, 0])) < len(torch.unique(labels[:, -1]))
                raise InputError(
                    f"the labels are not nested: {labels[query].tolist()} and "
                    f"{reference_labels[reference].tolist()} agree in column {column - 1}, but not in the coarser "
                    f"column {column}{REVERSED * reversed_order}"
                )
        levels += equal
        equal_finer = equal
    return levels


def _set_levels(labels: Tensor, reference_labels: Tensor) -> Tensor:
    """Return the levels of label sets, see :func:`pair_levels`."""
    n_levels = labels.shape[2]
    levels = torch.zeros(
        len(labels), len(reference_labels), dtype=torch.int64, device=labels.device
    )
    for column in reversed(range(n_levels)):  # finer levels overwrite coarser ones
        shared = shared_classes(labels[:, :, column], reference_labels[:, :, column])
        levels[shared] = n_levels - column
    return levels


def summed_levels(labels: Tensor, reference_labels: Tensor) -> Tensor:
    """Return the level of each pair, summed over the labels of the query.

    For each label of the query, the level is the finest level that it shares with any label of the
    reference. The sum divided by L and the number of the query's labels is the relevance of
    Algorithm 1 of the thesis.

    Args:
        labels: int64 tensor of shape (B, L), finest level first; or (B, K, L) for label sets, -1 as
            padding.
        reference_labels: int64 tensor of shape (N, L), or (N, K', L).

    Returns:
        int64 tensor of shape (B, N): 0 to L, or K L for label sets.

    >>> summed_levels(torch.tensor([[[0, 0], [2, 1]]]), torch.tensor([[[1, 0], [-1, -1]], [[0, 0], [3, 1]]]))
    tensor([[1, 3]])
    """
    if labels.ndim == 2:
        return pair_levels(labels, reference_labels)
    levels = torch.zeros(
        len(labels), len(reference_labels), dtype=torch.int64, device=labels.device
    )
    for label in torch.split(without_padding(labels), 1, dim=1):
        levels += pair_levels(label, reference_labels)
    return levels


def shared_classes(classes: Tensor, reference_classes: Tensor) -> Tensor:
    """Return whether each query and each reference have a class in common.

    Args:
        classes: int64 tensor of shape (B,); or (B, K) for sets of classes, -1 as padding.
        reference_classes: int64 tensor of shape (N,), or (N, K').

    Returns:
        Boolean tensor of shape (B, N).

    >>> shared_classes(torch.tensor([[4, 7], [2, -1]]), torch.tensor([[7, 2], [5, 4], [3, -1]])).tolist()
    [[True, True, False], [True, False, False]]
    """
    if classes.ndim == 1:
        return classes[:, None] == reference_classes
    shared = torch.zeros(
        len(classes), len(reference_classes), dtype=torch.bool, device=classes.device
    )
    classes = classes.masked_fill(classes < 0, -2)  # not equal to the padding of references, -1
    for query_classes in classes.unbind(1):
        for other_classes in reference_classes.unbind(1):
            shared |= query_classes[:, None] == other_classes
    return shared


def warn_without_positives(classes: Tensor, reference_classes: Tensor | None = None) -> None:
    """Warn if no item shares a class with another of the batch, or with a reference.

    Args:
        classes: int64 tensor of shape (B,); or (B, K) for sets of classes, -1 as padding.
        reference_classes: int64 tensor of shape (N,), or (N, K').
    """
    if reference_classes is not None:
        n_pairs = int(shared_classes(classes, reference_classes).sum())
    elif classes.ndim == 1:
        n_pairs = len(classes) - len(torch.unique(classes))
    else:
        n_pairs = int(shared_classes(classes, classes).sum()) - len(classes)
    if not n_pairs:
        warnings.warn(
            f"no query of a batch of {len(classes)} has a positive, so the loss pulls nothing together; draw two or "
            "more images of each class, as the samplers of hgld.datasets do",
            stacklevel=2,
        )


class WeightedSum(Loss):
    """The weighted sum of losses; ``parts`` has the values of the losses before weighting.

    Args:
        losses: Weight and loss by the name in ``parts``, at least one.

    Raises:
        ConfigurationError: There are no losses.

    >>> from hgld.losses import DecomposabilityLoss, SupAP
    >>> loss = WeightedSum({"ap": (0.9, SupAP()), "pairs": (0.1, DecomposabilityLoss())})
    >>> loss(torch.tensor([[1.0, 0.0], [0.8, 0.6]]), torch.tensor([[0], [0]]))
    tensor(0.0050)
    >>> loss.parts
    {'ap': tensor(0.), 'pairs': tensor(0.0500)}
    """

    takes_label_sets = takes_any_length = True

    def __init__(self, losses: Mapping[str, tuple[float, Loss]]) -> None:
        super().__init__()
        if not losses:
            raise ConfigurationError("`losses` of a weighted sum is empty; name at least one")
        self.weights: dict[str, float] = {}
        self.losses = nn.ModuleDict()
        for name, (weight, loss) in losses.items():
            self.weights[name] = weight
            self.losses[name] = loss

    def forward_batch(
        self,
        embeddings: Tensor,
        labels: Tensor,
        reference_embeddings: Tensor | None = None,
        reference_labels: Tensor | None = None,
    ) -> Tensor:
        parts = {}
        weighted = []
        for name, module in self.losses.items():
            loss = cast(Loss, module)
            value = loss.forward_batch(embeddings, labels, reference_embeddings, reference_labels)
            parts[name] = value.detach()
            weighted.append(self.weights[name] * value)
        self.parts = parts
        return torch.stack(weighted).sum()

    def _part(self, uses_references: bool) -> Loss | None:
        weighted_parts = {}
        for name, module in self.losses.items():
            part = cast(Loss, module)._part(uses_references)
            if part is not None:
                weighted_parts[name] = self.weights[name], part
        if not weighted_parts:
            return None
        return WeightedSum(weighted_parts)


def with_decomposability(
    name: str, rank_loss: Loss, decomposability: Loss, lambda_: float
) -> WeightedSum:
    """Return (1 - lambda) ``rank_loss`` + lambda ``decomposability`` (paper, Eq. 2).

    Args:
        name: Name of the rank loss in ``parts``; the other name is ``decomposability``.
        lambda_: Weight of the decomposability loss, 0 to 1.

    Raises:
        ConfigurationError: ``lambda_`` is out of range.
    """
    if not 0 <= lambda_ <= 1:
        raise ConfigurationError(f"`lambda_` is {lambda_}; expected 0 (the rank loss alone) to 1")
    return WeightedSum(
        {name: (1 - lambda_, rank_loss), "decomposability": (lambda_, decomposability)}
    )


class AtLevel(Loss):
    """A loss of one level: it gets one column of the labels.

    Args:
        loss: Loss of a single level.
        column: Column of the labels, 0 for the finest level.

    Raises:
        InputError: (when called) The labels have no such column.

    >>> from hgld.losses import SupAP
    >>> embeddings, labels = torch.tensor([[1.0, 0.0], [0.8, 0.6]]), torch.tensor([[0, 0], [1, 0]])
    >>> AtLevel(SupAP(include_query=False), column=1)(embeddings, labels)
    tensor(0.)
    """

    takes_label_sets = takes_any_length = True

    def __init__(self, loss: Loss, column: int) -> None:
        super().__init__()
        self.loss = loss
        self.column = column

    def forward_batch(
        self,
        embeddings: Tensor,
        labels: Tensor,
        reference_embeddings: Tensor | None = None,
        reference_labels: Tensor | None = None,
    ) -> Tensor:
        if self.column >= labels.shape[-1]:
            raise InputError(f"`labels` have {labels.shape[-1]} levels and no column {self.column}")
        column = slice(self.column, self.column + 1)
        if reference_labels is not None:
            reference_labels = reference_labels[..., column]
        value = self.loss.forward_batch(
            embeddings, labels[..., column], reference_embeddings, reference_labels
        )
        self.parts = self.loss.parts
        return value

    def _part(self, uses_references: bool) -> Loss | None:
        part = self.loss._part(uses_references)
        return None if part is None else AtLevel(part, self.column)


class SumOverLevels(WeightedSum):
    """The sum of a loss over all levels (Sigma in the papers' tables).

    ``parts`` has the values ``level_1``, the coarsest, to ``level_L``.

    Args:
        make_loss: Function that builds the loss of a label column, 0 for the finest level, with as
            many proxies as the column has classes.
        n_levels: Number of levels L, at least 1.
        mean: Whether to divide the sum by L, as the authors' code does.

    Raises:
        ConfigurationError: There are no levels.
        InputError: (when called) The labels have another number of levels.

    >>> from hgld.losses import SupAP
    >>> loss = SumOverLevels(lambda column: SupAP(), n_levels=2)
    >>> loss(torch.tensor([[1.0, 0.0], [0.8, 0.6]]), torch.tensor([[0, 0], [0, 0]]))
    tensor(0.)
    >>> loss.parts
    {'level_2': tensor(0.), 'level_1': tensor(0.)}
    """

    def __init__(
        self, make_loss: Callable[[int], Loss], n_levels: int, *, mean: bool = False
    ) -> None:
        weight = 1 / n_levels if mean else 1.0
        losses = {}
        for column in range(n_levels):
            losses[f"level_{n_levels - column}"] = weight, AtLevel(make_loss(column), column)
        super().__init__(losses)

    def forward_batch(
        self,
        embeddings: Tensor,
        labels: Tensor,
        reference_embeddings: Tensor | None = None,
        reference_labels: Tensor | None = None,
    ) -> Tensor:
        if labels.shape[-1] != len(self.losses):
            raise InputError(
                f"`labels` have {labels.shape[-1]} levels, but the loss is a sum over {len(self.losses)}"
            )
        return super().forward_batch(embeddings, labels, reference_embeddings, reference_labels)
