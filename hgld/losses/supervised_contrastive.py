"""Supervised contrastive losses of labels at several levels: HMLC and MultiSupCon."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor

from hgld.errors import ConfigurationError, InputError, require, require_choice
from hgld.losses.base import Loss, pair_levels, warn_without_positives
from hgld.losses.kernels.batches import inner_products
from hgld.losses.settings import check_temperature

#: The losses of the paper: HiMulCon with weights of levels, HiConE with the constraint, HiMulConE with both.
Mode = Literal["hmc", "hce", "hmce"]
#: Which pairs are positives of a level.
LevelPositives = Literal["equal", "lca"]
#: Weights of levels.
Penalty = Literal["exp", "pow2"]
#: The written formulas, or the published code.
HMLCVariant = Literal["paper", "code"]
#: The temperature that the published code divides losses by.
BASE_TEMPERATURE = 0.07


class HMLC(Loss):
    """Hierarchical multi-label contrastive learning (Zhang et al., CVPR 2022, Eqs. 6 and 7).

    With s the cosines of an anchor i, and P_l its positives at level l, the loss of a pair is ::

        L(i, p) = -log( exp(s_p / tau) / sum over a != i of exp(s_a / tau) )

    and the loss is the mean over levels of lambda_l times the mean over anchors of the mean over P_l of L(i, p). With
    e = exp(1), lambda is e for the finest level, then e^(1/2), e^(1/3), and so on. In the modes ``hce`` and ``hmce``
    the loss of a pair is at least the largest of all pairs of the next finer level, so that a pair with less in
    common never has a lower loss; pairs at the bound have the gradient of that pair in place of their own. Anchors
    without positives at a level are not counted there.

    The authors' code differs (``variant: code``): after each level it keeps the first image of each class only, so
    that coarse levels compare few images; it bounds the mean of a level, instead of each pair, by those of the finer
    levels; losses are multiplied by tau / 0.07; and their sum is divided by L + 1, as the authors' data have a column
    of image numbers.

    ``parts`` has the losses ``level_L``, the finest, to ``level_1``, before weighting.

    Args:
        mode: ``hmc`` for HiMulCon, weights of levels alone; ``hce`` for HiConE, the constraint alone; ``hmce`` for
            HiMulConE, both.
        tau: Temperature, at least 1e-8; 0.1 in the authors' training.
        penalty: Weights lambda of ``hmc`` and ``hmce``, l = 1 for the finest level: ``exp`` for e^(1/l), ``pow2`` for
            2^(1/l), the default of a class in the authors' code.
        positives: Positives of a level: ``equal`` for all pairs of a class, ``lca`` only for those of different
            classes at the next finer level. The paper leaves both readings open; ``code`` takes ``equal``.
        variant: ``paper`` for the formulas, or ``code`` for the numbers of the published code.
        n_views: Number of views of each image in a batch without references, which has the first view of all images,
            then the second, and so on. ``code`` keeps or drops all views of an image.

    Raises:
        InputError: (when called) The batch does not have as many views of all images.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> loss = HMLC(mode="hmc")
    >>> loss(embeddings, torch.tensor([[0, 0], [0, 0], [1, 0]]))
    tensor(4.9922)
    >>> list(loss.parts)
    ['level_2', 'level_1']
    """

    def __init__(
        self,
        mode: Mode = "hmce",
        tau: float = 0.1,
        penalty: Penalty = "exp",
        positives: LevelPositives = "equal",
        variant: HMLCVariant = "paper",
        n_views: int = 1,
    ) -> None:
        super().__init__()
        check_temperature("tau", tau)
        require_choice(Mode, mode=mode)
        require_choice(Penalty, penalty=penalty)
        require_choice(LevelPositives, positives=positives)
        require_choice(HMLCVariant, variant=variant)
        if variant == "code" and positives != "equal":
            raise ConfigurationError(
                "`positives` of the `variant` code are equal; choose the `variant` paper for lca"
            )
        require(n_views >= 1, "at least 1", n_views=n_views)
        self.tau, self.n_views = tau, n_views
        self.has_weights, self.is_constrained = mode != "hce", mode != "hmc"
        self.base = math.e if penalty == "exp" else 2.0
        self.only_new = positives == "lca"
        self.is_code = variant == "code"

    def forward_batch(
        self, embeddings: Tensor, labels: Tensor, *references: Tensor | None
    ) -> Tensor:
        others, their_labels = references or (None, None)
        logits = _logits(embeddings, others, self.tau)
        if their_labels is None:
            levels, n_views = pair_levels(labels, labels).fill_diagonal_(-1), self.n_views
        else:
            levels, n_views = pair_levels(labels, their_labels), 1
        if len(labels) % n_views:
            raise InputError(
                f"a batch of {len(labels)} does not have {n_views} views of each image"
            )
        n_levels, values = labels.shape[1], []
        finer: Tensor | None = None
        for column in range(n_levels):
            some_levels, some_logits = levels, logits
            if self.is_code and column:
                rows = _first_of_classes(labels[:, column - 1], n_views)
                columns = (
                    rows if their_labels is None else _first_of_classes(their_labels[:, column - 1])
                )
                some_levels, some_logits = levels[rows][:, columns], logits[rows][:, columns]
            level = n_levels - column
            positives = some_levels == level if self.only_new else some_levels >= level
            value, finer = self._level_loss(-some_logits.log_softmax(1), positives, finer)
            values.append(value)
        warn_without_positives(labels[:, 0], None if their_labels is None else their_labels[:, 0])
        self.parts = {
            f"level_{n_levels - column}": value.detach() for column, value in enumerate(values)
        }
        weights = [
            self.base ** (1 / (column + 1)) if self.has_weights else 1.0
            for column in range(n_levels)
        ]
        total = torch.stack(
            [weight * value for weight, value in zip(weights, values, strict=True)]
        ).sum()
        return total / (n_levels + self.is_code)

    def _level_loss(
        self, losses: Tensor, positives: Tensor, finer: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the loss of a level from those of all pairs, (n, m), and its bound for the next coarser level."""
        largest = losses.masked_fill(~positives, 0).amax()
        if self.is_constrained and not self.is_code and finer is not None:
            losses = losses.maximum(finer)
        n_positives = positives.sum(1)
        of_anchors = losses.masked_fill(~positives, 0).sum(1) / n_positives.clamp(min=1)
        value = of_anchors.sum() / (n_positives > 0).sum().clamp(min=1)
        if not self.is_code:
            return value, largest
        value = value * self.tau / BASE_TEMPERATURE
        if self.is_constrained and finer is not None:
            value = value.maximum(finer)
        return value, value


def _first_of_classes(classes: Tensor, n_views: int = 1) -> Tensor:
    """Return the places of the first image of each class, of all its views, in their order."""
    n_images = len(classes) // n_views
    own = classes[:n_images]
    is_first = ~(own.unsqueeze(1) == own).tril(-1).any(1)
    return is_first.repeat(n_views).nonzero()[:, 0]


class MultiSupCon(Loss):
    """Supervised contrastive loss, positives weighted by the overlap of their labels.

    With s the cosines of an anchor i, and P(i) the images whose labels overlap with its own by w_p >= ``threshold``,
    the loss is the mean over anchors that have positives of ::

        - 1/|P(i)| sum over p in P(i) of w_p log( exp(s_p / tau) / sum over a != i of exp(s_a / tau) )

    The overlap w is the Jaccard index of the classes of two images at all levels: l / (2 L - l) for a pair of level
    l, and for label sets the number of classes in common over the number in either. With one level it is the loss of
    Khosla et al. (NeurIPS 2020).

    The formula is that of https://github.com/KevinMusgrave/pytorch-metric-learning/issues/658, after paper 8 of the
    workshop on self-supervised learning of NeurIPS 2022; threshold and means are those of the authors' code,
    https://github.com/WolodjaZ/MultiSupContrast, whose value is NaN where an anchor has no positive.

    Args:
        tau: Temperature, at least 1e-8; 0.1 in the authors' training.
        threshold: Smallest overlap of a positive, above 0 and at most 1; 0.2 in the authors' training.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> MultiSupCon(tau=0.1)(embeddings, torch.tensor([[0, 0], [0, 0], [1, 0]]))
    tensor(1.0769)
    """

    takes_label_sets: ClassVar[bool] = True

    def __init__(self, tau: float = 0.07, threshold: float = 0.3) -> None:
        super().__init__()
        check_temperature("tau", tau)
        require(0 < threshold <= 1, "more than 0 and at most 1", threshold=threshold)
        self.tau, self.threshold = tau, threshold

    def forward_batch(
        self, embeddings: Tensor, labels: Tensor, *references: Tensor | None
    ) -> Tensor:
        others, their_labels = references or (None, None)
        logits = _logits(embeddings, others, self.tau)
        if their_labels is None:
            overlaps = label_overlaps(labels, labels).fill_diagonal_(0)
        else:
            overlaps = label_overlaps(labels, their_labels)
        is_positive = overlaps >= self.threshold
        n_positives = is_positive.sum(1)
        terms = torch.where(is_positive, -overlaps.to(logits.dtype) * logits.log_softmax(1), 0)
        warn_without_positives(
            labels[..., 0], None if their_labels is None else their_labels[..., 0]
        )
        return (terms.sum(1) / n_positives.clamp(min=1)).sum() / (n_positives > 0).sum().clamp(
            min=1
        )


def _logits(embeddings: Tensor, references: Tensor | None, tau: float) -> Tensor:
    """Return cosines over tau; without references those of the batch, lowest for an item with itself."""
    if references is not None:
        return inner_products(embeddings, references) / tau
    logits = inner_products(embeddings, embeddings) / tau
    is_self = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
    return logits.masked_fill(is_self, torch.finfo(logits.dtype).min)


def label_overlaps(labels: Tensor, reference_labels: Tensor) -> Tensor:
    """Return the Jaccard indices of the classes of queries and references at all levels.

    Args:
        labels: int64 tensor of shape (B, L), finest level first; or (B, K, L) for label sets, -1 as padding.
        reference_labels: int64 tensor of shape (N, L), or (N, K', L).

    Returns:
        float64 tensor of shape (B, N), 0 to 1.

    >>> label_overlaps(torch.tensor([[[0, 0], [2, 1]]]), torch.tensor([[[1, 0], [-1, -1]], [[0, 0], [3, 1]]]))
    tensor([[0.2000, 0.6000]], dtype=torch.float64)
    """
    if labels.ndim == 2:
        levels = pair_levels(labels, reference_labels).double()
        return levels / (2 * labels.shape[1] - levels)
    shared = labels.new_zeros(len(labels), len(reference_labels), dtype=torch.float64)
    either = shared.clone()
    for column in range(labels.shape[2]):
        numbers = torch.cat(
            [labels[:, :, column].flatten(), reference_labels[:, :, column].flatten()]
        )
        classes, numbers = torch.unique(numbers, return_inverse=True)
        has = numbers.new_zeros(
            len(labels) + len(reference_labels), len(classes), dtype=torch.float64
        )
        of_queries = numbers[: labels.shape[0] * labels.shape[1]].view(labels.shape[:2])
        of_references = numbers[of_queries.numel() :].view(reference_labels.shape[:2])
        has[: len(labels)].scatter_(1, of_queries, 1)
        has[len(labels) :].scatter_(1, of_references, 1)
        has = has[:, classes >= 0]
        queries, references = has[: len(labels)], has[len(labels) :]
        common = queries @ references.T
        shared += common
        either += queries.sum(1, keepdim=True) + references.sum(1) - common
    return shared / either
