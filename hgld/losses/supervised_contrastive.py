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

#: Losses of the paper: HiMulCon with weights of levels, HiConE with the constraint, HiMulConE with
#: both.
Mode = Literal["hmc", "hce", "hmce"]
#: Pairs that are positives of a level.
LevelPositives = Literal["equal", "lca"]
#: Weights of levels.
Penalty = Literal["exp", "pow2"]
#: Formulas of the paper, or the published code.
HMLCVariant = Literal["paper", "code"]
#: Temperature by which the published code divides losses.
BASE_TEMPERATURE = 0.07


class HMLC(Loss):
    """Hierarchical multi-label contrastive learning (Zhang et al., CVPR 2022, Eqs. 6 and 7).

    With s the cosines of an anchor i, and P_l its positives at level l, the loss of a pair is ::

        L(i, p) = -log( exp(s_p / tau) / sum over a != i of exp(s_a / tau) )

    and the loss is the mean over levels of lambda_l times the mean over anchors of the mean over
    P_l of L(i, p). With e = exp(1), lambda is e for the finest level, then e^(1/2), e^(1/3), and so
    on. In the modes ``hce`` and ``hmce`` the loss of a pair is at least the largest loss of all
    pairs of the next finer level, so that a pair with less in common never has a lower loss; a pair
    at this bound has the gradient of the pair with the largest loss. Anchors without positives at a
    level are not counted at that level.

    The authors' code differs (``variant: code``): after each level it keeps the first image of each
    class only, so that coarse levels compare few images; it bounds the mean of a level, instead of
    each pair, by the means of finer levels; it multiplies losses by tau / 0.07; and it divides
    their sum by L + 1, because the authors' data have a column of image numbers.

    ``parts`` has the losses ``level_L``, the finest, to ``level_1``, before weighting.

    Args:
        mode: ``hmc`` for HiMulCon, weights of levels alone; ``hce`` for HiConE, the constraint
            alone; ``hmce`` for HiMulConE, both.
        tau: Temperature, at least 1e-8; 0.1 in the authors' training.
        penalty: Weights lambda of ``hmc`` and ``hmce``, l = 1 for the finest level: ``exp`` for
            e^(1/l), ``pow2`` for 2^(1/l), the default of a class in the authors' code.
        positives: Positives of a level: ``equal`` for all pairs of a class, ``lca`` only for pairs
            of different classes at the next finer level. The paper allows both interpretations;
            ``code`` takes ``equal``.
        variant: ``paper`` for the formulas, or ``code`` for the numbers of the published code.
        n_views: Number of views of each image in a batch without references. The batch has the
            first views of all images, then their second views, and so on. ``code`` keeps or drops
            all views of an image.

    Raises:
        InputError: (when called) The size of the batch is not a multiple of ``n_views``.

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
        self.tau = tau
        self.n_views = n_views
        self.has_weights = mode != "hce"
        self.is_constrained = mode != "hmc"
        self.base = math.e if penalty == "exp" else 2.0
        self.excludes_finer_pairs = positives == "lca"
        self.is_code = variant == "code"

    def forward_batch(
        self,
        embeddings: Tensor,
        labels: Tensor,
        reference_embeddings: Tensor | None = None,
        reference_labels: Tensor | None = None,
    ) -> Tensor:
        all_logits = _logits(embeddings, reference_embeddings, self.tau)
        if reference_labels is None:
            n_views = self.n_views
            all_levels = pair_levels(labels, labels).fill_diagonal_(-1)
            warn_without_positives(labels[:, 0])
        else:
            n_views = 1
            all_levels = pair_levels(labels, reference_labels)
            warn_without_positives(labels[:, 0], reference_labels[:, 0])
        if len(labels) % n_views:
            raise InputError(
                f"a batch of {len(labels)} does not have {n_views} views of each image"
            )
        n_levels = labels.shape[1]
        self.parts = {}
        weighted = []
        bound: Tensor | None = None
        for column in range(n_levels):
            levels, logits = all_levels, all_logits
            if self.is_code and column:
                rows = _first_of_classes(labels[:, column - 1], n_views)
                columns = rows
                if reference_labels is not None:
                    columns = _first_of_classes(reference_labels[:, column - 1])
                levels, logits = levels[rows][:, columns], logits[rows][:, columns]
            level = n_levels - column
            positives = levels == level if self.excludes_finer_pairs else levels >= level
            value, bound = self._level_loss(-logits.log_softmax(1), positives, bound)
            self.parts[f"level_{level}"] = value.detach()
            weight = self.base ** (1 / (column + 1)) if self.has_weights else 1.0
            weighted.append(weight * value)
        return torch.stack(weighted).sum() / (n_levels + self.is_code)

    def _level_loss(
        self, losses: Tensor, positives: Tensor, bound: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the loss of a level, and its bound for the next coarser level.

        Args:
            losses: Losses of all pairs, shape (n, m).
            positives: Boolean mask of the same shape.
            bound: Lower bound from the next finer level; None for the finest level.
        """
        largest = losses.masked_fill(~positives, 0).amax()
        if self.is_constrained and not self.is_code and bound is not None:
            losses = losses.maximum(bound)
        value = _mean_over_anchors(losses.masked_fill(~positives, 0), positives)
        if not self.is_code:
            return value, largest
        value = value * self.tau / BASE_TEMPERATURE
        if self.is_constrained and bound is not None:
            value = value.maximum(bound)
        return value, value


def _mean_over_anchors(terms: Tensor, positives: Tensor) -> Tensor:
    """Return the mean over anchors with positives of the mean term of their positives.

    Args:
        terms: Float tensor of shape (n, m), 0 where a pair is not positive.
        positives: Boolean mask of the same shape.
    """
    n_positives = positives.sum(1)
    anchor_means = terms.sum(1) / n_positives.clamp(min=1)
    return anchor_means.sum() / (n_positives > 0).sum().clamp(min=1)


def _first_of_classes(classes: Tensor, n_views: int = 1) -> Tensor:
    """Return the places of all views of the first image of each class, in ascending order."""
    image_classes = classes[: len(classes) // n_views]
    is_first = ~(image_classes.unsqueeze(1) == image_classes).tril(-1).any(1)
    return is_first.repeat(n_views).nonzero()[:, 0]


class MultiSupCon(Loss):
    """Supervised contrastive loss, positives weighted by the overlap of their labels.

    With s the cosines of an anchor i, and P(i) the images whose labels overlap with the labels of i
    by w_p >= ``threshold``, the loss is the mean over anchors that have positives of ::

        - 1/|P(i)| sum over p in P(i) of w_p log( exp(s_p / tau) / sum over a != i of exp(s_a / tau) )

    The overlap w is the Jaccard index of the classes of two images at all levels: l / (2 L - l) for
    a pair of level l, and for label sets the number of common classes divided by the number of
    classes of either image. With one level it is the loss of Khosla et al. (NeurIPS 2020).

    The formula follows https://github.com/KevinMusgrave/pytorch-metric-learning/issues/658, after
    paper 8 of the workshop on self-supervised learning of NeurIPS 2022. Threshold and means follow
    the authors' code, https://github.com/WolodjaZ/MultiSupContrast, whose value is NaN where an
    anchor has no positive.

    Args:
        tau: Temperature, at least 1e-8; 0.1 in the authors' training.
        threshold: Smallest overlap of a positive, above 0 and at most 1; 0.2 in the authors'
            training.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> MultiSupCon(tau=0.1)(embeddings, torch.tensor([[0, 0], [0, 0], [1, 0]]))
    tensor(1.0769)
    """

    takes_label_sets: ClassVar[bool] = True

    def __init__(self, tau: float = 0.07, threshold: float = 0.3) -> None:
        super().__init__()
        check_temperature("tau", tau)
        require(0 < threshold <= 1, "more than 0 and at most 1", threshold=threshold)
        self.tau = tau
        self.threshold = threshold

    def forward_batch(
        self,
        embeddings: Tensor,
        labels: Tensor,
        reference_embeddings: Tensor | None = None,
        reference_labels: Tensor | None = None,
    ) -> Tensor:
        logits = _logits(embeddings, reference_embeddings, self.tau)
        if reference_labels is None:
            overlaps = label_overlaps(labels, labels).fill_diagonal_(0)
            warn_without_positives(labels[..., 0])
        else:
            overlaps = label_overlaps(labels, reference_labels)
            warn_without_positives(labels[..., 0], reference_labels[..., 0])
        positives = overlaps >= self.threshold
        terms = torch.where(positives, -overlaps.to(logits.dtype) * logits.log_softmax(1), 0)
        return _mean_over_anchors(terms, positives)


def _logits(embeddings: Tensor, references: Tensor | None, tau: float) -> Tensor:
    """Return cosines over tau; the references default to the batch, without its diagonal."""
    if references is not None:
        return inner_products(embeddings, references) / tau
    logits = inner_products(embeddings, embeddings) / tau
    is_self = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
    return logits.masked_fill(is_self, torch.finfo(logits.dtype).min)


def label_overlaps(labels: Tensor, reference_labels: Tensor) -> Tensor:
    """Return the Jaccard indices of the classes of queries and references at all levels.

    Args:
        labels: int64 tensor of shape (B, L), finest level first; or (B, K, L) for label sets, -1 as
            padding.
        reference_labels: int64 tensor of shape (N, L), or (N, K', L).

    Returns:
        float64 tensor of shape (B, N), 0 to 1.

    >>> label_overlaps(torch.tensor([[[0, 0], [2, 1]]]), torch.tensor([[[1, 0], [-1, -1]], [[0, 0], [3, 1]]]))
    tensor([[0.2000, 0.6000]], dtype=torch.float64)
    """
    if labels.ndim == 2:
        levels = pair_levels(labels, reference_labels).double()
        return levels / (2 * labels.shape[1] - levels)
    n_shared = labels.new_zeros(len(labels), len(reference_labels), dtype=torch.float64)
    n_either = n_shared.clone()
    for column in range(labels.shape[2]):
        level_labels = labels[:, :, column]
        level_references = reference_labels[:, :, column]
        classes = torch.unique(torch.cat([level_labels.flatten(), level_references.flatten()]))
        classes = classes[classes >= 0]
        has_class = _class_membership(level_labels, classes)
        reference_has_class = _class_membership(level_references, classes)
        n_common = has_class @ reference_has_class.T
        n_shared += n_common
        n_either += has_class.sum(1, keepdim=True) + reference_has_class.sum(1) - n_common
    return n_shared / n_either


def _class_membership(labels: Tensor, classes: Tensor) -> Tensor:
    """Return which images have which classes: float64 tensor of 0 and 1, shape (n, n_classes).

    Args:
        labels: int64 tensor of shape (n, K), -1 as padding.
        classes: Ascending classes, 0 or more; every label is among them.
    """
    membership = labels.new_zeros(len(labels), len(classes) + 1, dtype=torch.float64)
    columns = torch.searchsorted(classes, labels.contiguous()) + 1
    membership.scatter_(1, torch.where(labels < 0, 0, columns), 1)
    return membership[:, 1:]
