"""Losses in hyperbolic space: pairwise cross entropy (Hyp), and a hierarchy of proxies (HIER).

Both compare points of the Poincare ball by their hyperbolic distances.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from hgld.errors import require, require_at_least, require_choice
from hgld.losses.base import Loss, WeightedSum, shared_classes
from hgld.losses.kernels.batches import first_derivative_only
from hgld.losses.kernels.class_losses import PairLoss, check_proxies
from hgld.losses.settings import check_temperature

#: Formulas of the papers, or the numbers of the published code.
HyperbolicVariant = Literal["exact", "code"]
#: Constant that the published code adds to lengths and denominators; it also clamps arguments of
#: tanh^-1 to 1 - 1e-5.
EPSILON = 1e-5
#: Smallest distance of points from the boundary, as a share of the radius.
MARGIN = 1e-3
#: Smallest squared length or distance with a gradient: its power -3/2, in second derivatives, is
#: finite in float32.
LEAST = 1e-25


class HyperbolicContrastive(PairLoss):
    """Pairwise cross entropy of hyperbolic distances D, Hyp (Ermolov et al., CVPR 2022).

    Twice the mean over queries of the mean over their positives p of ::

        -log( exp(-D_p / tau) / (exp(-D_p / tau) + sum over negatives n of exp(-D_n / tau)) )

    The factor 2 follows the authors, whose batches have two images of each class and whose loss
    adds both directions. A query is not its own positive.

    Embeddings may have any length: they are shortened to ``clip`` and mapped into the Poincare
    ball. Embeddings of hgld's models have length 1 unless ``model.distance`` is ``poincare``, so
    that hyperbolic distances rank as cosines do; then a curvature of 0.53 and a temperature of
    0.087 equal the defaults for embeddings that are all clipped.

    Args:
        curvature: Curvature c of the ball, 0 or more; 0 for the unit sphere with cosines (Sph in
            that paper).
        clip: Length to which longer embeddings are shortened, above 0; None for any length.
        tau: Temperature, at least 1e-8.
        variant: ``exact``, or ``code`` for the numbers of the published code, which adds 1e-5 to
            lengths and denominators, bounds distances and rounds c to float32: a difference of 3e-5
            with the defaults.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> HyperbolicContrastive()(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(9.1715)
    """

    takes_any_length = True

    def __init__(
        self,
        curvature: float = 0.1,
        clip: float | None = 2.3,
        tau: float = 0.2,
        variant: HyperbolicVariant = "exact",
    ) -> None:
        super().__init__(include_query=False)
        check_temperature("tau", tau)
        self.ball = PoincareBall(curvature, clip, variant)
        self.tau = tau

    def scores(self, embeddings: Tensor, references: Tensor) -> Tensor:
        """Return negative hyperbolic distances."""
        points = self.ball.points(embeddings)
        reference_points = points
        if references is not embeddings:
            reference_points = self.ball.points(references.to(embeddings.dtype))
        return -self.ball.distances(points, reference_points)

    def forward_pairs(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        logits = scores / self.tau
        lowest = torch.finfo(scores.dtype).min / 2  # logsumexp of -inf alone has no gradient
        log_sums = logits.masked_fill(~negatives, lowest).logsumexp(1, keepdim=True)
        terms = torch.where(positives, torch.logaddexp(log_sums, logits) - logits, 0)
        n_positives = positives.sum(1)
        query_losses = terms.sum(1) / n_positives.clamp(min=1)
        return 2 * query_losses.sum() / (n_positives > 0).sum().clamp(min=1)


class HIER(Loss):
    """Regularisation by a hierarchy of learnt proxies in the Poincare ball (Kim et al., CVPR 2023).

    For items i and j that are reciprocal nearest neighbours, and another item k, the loss draws
    proxies as lowest common ancestors of {i, j} and of {i, j, k}. Items i and j should be nearer to
    the first ancestor, and k to the second::

        [D(i, ij) - D(i, ijk) + margin]_+ + [D(j, ij) - D(j, ijk) + margin]_+ + [D(k, ijk) - D(k, ij) + margin]_+

    The ancestor of a set is the proxy with the largest -max(D) / tau over the set plus Gumbel
    noise; triplets with the same ancestor for both sets count 0. The gradient passes through the
    softmax of these numbers (straight-through Gumbel softmax), so it is not the derivative of the
    value, and there are no second derivatives. The loss is the mean over triplets of the batch plus
    the mean over triplets of proxies. Neighbours are the ``n_neighbours`` items, including the item
    itself, with the largest exp(-D), plus 1 for items of the same class. A batch needs more than
    ``n_neighbours`` items.

    It is a term beside a metric learning loss, see :func:`hyperbolic_hier`. Embeddings may have any
    length.

    Args:
        dim: Dimension d of the embeddings.
        n_proxies: Number of proxies, at least 1.
        tau: Temperature of the ancestors, at least 1e-8.
        margin: Margin, 0 or more.
        n_neighbours: Number of nearest neighbours, at least 1; 30 in the authors' code.
        n_triplets: Number of triplets drawn for each item with two reciprocal neighbours, at least
            1.
        curvature: Curvature c of the ball, above 0.
        clip: Length to which longer embeddings and proxies are shortened, above 0; None for any
            length.
        variant: ``exact``, or ``code`` for the published code: distances as in
            :class:`HyperbolicContrastive`; i itself may be drawn as k; and the gradient at the
            mapped proxies y is multiplied by ``(1 - c |y|^2)^2 / 4``.

    >>> loss = HIER(dim=2, n_proxies=4, n_neighbours=2)
    >>> loss(torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]]), torch.tensor([[0], [0], [1]])).shape
    torch.Size([])
    """

    takes_any_length = takes_label_sets = True
    uses_references = False

    def __init__(
        self,
        dim: int,
        n_proxies: int = 512,
        tau: float = 0.1,
        margin: float = 0.1,
        n_neighbours: int = 30,
        n_triplets: int = 50,
        curvature: float = 0.1,
        clip: float | None = 2.3,
        variant: HyperbolicVariant = "exact",
    ) -> None:
        super().__init__()
        check_temperature("tau", tau)
        require_at_least(
            1, dim=dim, n_proxies=n_proxies, n_neighbours=n_neighbours, n_triplets=n_triplets
        )
        require(
            margin >= 0 and curvature > 0,
            "0 or more, and above 0",
            margin=margin,
            curvature=curvature,
        )
        self.tau = tau
        self.margin = margin
        self.n_neighbours = n_neighbours
        self.n_triplets = n_triplets
        self.ball = PoincareBall(curvature, clip, variant)
        length = 0.9 * (2.3 if clip is None else clip)  # as in the authors' code
        self.proxies = torch.nn.Parameter(length * torch.randn(n_proxies, dim) / dim**0.5)

    def forward_batch(
        self, embeddings: Tensor, labels: Tensor, *references: Tensor | None
    ) -> Tensor:
        check_proxies(embeddings, labels.new_zeros(1), 1, self.proxies.shape[1])
        points = self.ball.points(embeddings)
        proxies = self.proxy_points(embeddings.dtype)
        classes = labels[..., 0]
        item_triplets = self._triplets(points, shared_classes(classes, classes))
        items_loss = self.triplet_loss(points, proxies, item_triplets)
        proxies_loss = self.triplet_loss(proxies, proxies, self._triplets(proxies))
        self.parts = {"items": items_loss.detach(), "proxies": proxies_loss.detach()}
        return items_loss + proxies_loss

    def proxy_points(self, dtype: torch.dtype) -> Tensor:
        """Return the proxies in the ball, shape (n_proxies, d)."""
        points = self.ball.points(self.proxies.to(dtype))
        if self.ball.variant == "code" and points.requires_grad:
            squared_lengths = points.detach().square().sum(1, keepdim=True)
            scale = (1 - self.ball.curvature * squared_lengths).square() / 4
            points.register_hook(lambda gradient: gradient * scale)  # type: ignore[no-untyped-call]
        return points

    def triplet_loss(
        self,
        nodes: Tensor,
        proxies: Tensor,
        triplets: Tensor,
        noise: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """Return the mean loss of triplets of nodes.

        Args:
            nodes: Points of the ball, shape (n, d).
            proxies: Points of the ball, shape (n_proxies, d).
            triplets: Places of i, j and k among the nodes, int64, shape (m, 3).
            noise: Gumbel noise for the ancestors of i and j, and of all three, each (m, n_proxies).
                Default: drawn.
        """
        distances = self.ball.distances(nodes, proxies)[triplets]
        pair_maximum = distances[:, :2].amax(1)
        triplet_maximum = distances.amax(1)
        if noise is None:
            noise = _gumbel(pair_maximum), _gumbel(triplet_maximum)
        pair_noise, triplet_noise = noise
        pair_ancestor = _HardChoice.apply((pair_noise - pair_maximum / self.tau).softmax(1))
        triplet_ancestor = _HardChoice.apply(
            (triplet_noise - triplet_maximum / self.tau).softmax(1)
        )
        gaps = (distances * (pair_ancestor - triplet_ancestor).unsqueeze(1)).sum(2)
        gaps = gaps * distances.new_tensor([1, 1, -1])
        is_counted = (pair_ancestor != triplet_ancestor).any(1)
        total: Tensor = ((gaps + self.margin).relu().sum(1) * is_counted).sum()
        return total / max(1, len(triplets))

    @torch.no_grad()
    def _triplets(self, points: Tensor, same_class: Tensor | None = None) -> Tensor:
        """Draw triplets of reciprocal neighbours i, j and any other k: int64, shape (m, 3)."""
        similarity = (-self.ball.distances(points, points)).exp()
        if same_class is not None:
            similarity += same_class
        is_neighbour = reciprocal_neighbours(similarity, self.n_neighbours)
        is_other = ~is_neighbour
        if self.ball.variant == "exact":
            is_other.fill_diagonal_(False)
        anchors = ((is_neighbour.sum(1) > 1) & is_other.any(1)).nonzero()
        if not len(anchors):
            return anchors.expand(0, 3)
        rows = anchors[:, 0]
        neighbours = torch.multinomial(
            is_neighbour[rows].float(), self.n_triplets, replacement=True
        )
        others = torch.multinomial(is_other[rows].float(), self.n_triplets, replacement=True)
        return torch.stack([anchors.expand_as(neighbours), neighbours, others], 2).view(-1, 3)


class _HardChoice(torch.autograd.Function):
    """The one-hot choice of the largest probability, with the gradient of the probabilities."""

    @staticmethod
    def forward(ctx: Any, probabilities: Tensor) -> Tensor:
        return torch.zeros_like(probabilities).scatter_(1, probabilities.argmax(1, keepdim=True), 1)

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, upstream: Tensor) -> Tensor:
        return upstream


def reciprocal_neighbours(similarity: Tensor, n_neighbours: int) -> Tensor:
    """Return which pairs of different items are mutually among their nearest neighbours.

    Args:
        similarity: Float tensor of shape (n, n).
        n_neighbours: Number of nearest neighbours, including the item itself.

    Returns:
        Boolean tensor of shape (n, n).
    """
    nearest = similarity.topk(min(n_neighbours, len(similarity)), dim=1).indices
    near = torch.zeros_like(similarity, dtype=torch.bool).scatter_(1, nearest, True)
    return (near & near.T).fill_diagonal_(False)


def _gumbel(like: Tensor) -> Tensor:
    """Draw Gumbel noise of the shape, dtype and device of a tensor."""
    return -torch.empty_like(like, memory_format=torch.contiguous_format).exponential_().log()


def hyperbolic_hier(
    dim: int,
    weight: float = 1.0,
    n_proxies: int = 512,
    tau: float = 0.1,
    margin: float = 0.1,
    n_neighbours: int = 30,
    curvature: float = 0.1,
    clip: float | None = 2.3,
    contrastive_tau: float = 0.2,
    variant: HyperbolicVariant = "exact",
) -> WeightedSum:
    """Return L_Hyp + weight L_HIER (Kim et al., CVPR 2023).

    Args:
        dim: Dimension d of the embeddings.
        weight: Weight of :class:`HIER`, 0 or more.
        n_proxies: Number of proxies, at least 1.
        tau: Temperature of the ancestors, at least 1e-8.
        margin: Margin of the triplets, 0 or more.
        n_neighbours: Number of nearest neighbours, less than the batch size.
        curvature: Curvature c of the ball, above 0.
        clip: Length to which longer embeddings and proxies are shortened, above 0; None for any
            length.
        contrastive_tau: Temperature of :class:`HyperbolicContrastive`, at least 1e-8.
        variant: ``exact``, or ``code`` for the published code.

    Returns:
        Loss with the parts ``contrastive`` and ``hier``.

    >>> hyperbolic_hier(dim=8, n_proxies=16).weights
    {'contrastive': 1.0, 'hier': 1.0}
    """
    require_at_least(0, weight=weight)
    regularisation = HIER(
        dim, n_proxies, tau, margin, n_neighbours, curvature=curvature, clip=clip, variant=variant
    )
    contrastive = HyperbolicContrastive(curvature, clip, contrastive_tau, variant)
    return WeightedSum({"contrastive": (1.0, contrastive), "hier": (weight, regularisation)})


@dataclass(frozen=True)
class PoincareBall:
    """The ball of radius 1 / sqrt(c) with constant curvature -c.

    A factor s of the embeddings has the effect of a curvature c s^2 and distances that are s times
    as large.

    Args:
        curvature: Curvature c, 0 or more; 0 is the unit sphere with the negative cosine as
            distance.
        clip: Length to which longer embeddings are shortened (Guo et al., CVPR 2022), above 0; None
            for any length.
        variant: ``exact``, or ``code`` for the published code: it adds 1e-5 to lengths and to the
            denominator of the Moebius addition, keeps the argument of tanh^-1 below 1 - 1e-5, and
            rounds c to float32.

    Raises:
        ConfigurationError: A number is out of range, or there is no such variant.

    >>> ball = PoincareBall(curvature=1.0)
    >>> points = ball.points(torch.tensor([[0.5, 0.0], [0.0, -1.0], [0.0, 9.0]]))
    >>> torch.linalg.vector_norm(points, dim=1)  # tanh of the lengths
    tensor([0.4621, 0.7616, 0.9801])
    >>> ball.distances(points, torch.zeros(1, 2)).T  # twice the lengths
    tensor([[1.0000, 2.0000, 4.6000]])
    """

    curvature: float = 0.1
    clip: float | None = 2.3
    variant: HyperbolicVariant = "exact"

    def __post_init__(self) -> None:
        require(0 <= self.curvature < math.inf, "0 or more", curvature=self.curvature)
        require(self.clip is None or self.clip > 0, "more than 0", clip=self.clip)
        require_choice(HyperbolicVariant, variant=self.variant)

    @property
    def c(self) -> float:
        """Curvature in computations: rounded to float32 for the variant ``code``."""
        if self.variant == "code":
            return float(np.float32(self.curvature))
        return self.curvature

    def points(self, embeddings: Tensor) -> Tensor:
        """Map clipped embeddings (B, d) into the ball by the exponential map at 0.

        ::

            tanh(sqrt(c) |x|) x / (sqrt(c) |x|)
        """
        if not self.c:
            return functional.normalize(embeddings)
        lengths = embeddings.square().sum(1, keepdim=True).clamp(min=LEAST).sqrt()
        directions = embeddings / lengths
        if self.clip is not None:
            added = EPSILON if self.variant == "code" else 0.0
            lengths = lengths * (self.clip / (lengths + added)).clamp(max=1)
        root = math.sqrt(self.c)
        radii = ((root * lengths).tanh() / root).clamp(max=(1 - MARGIN) / root)
        return directions * radii

    def distances(self, points: Tensor, others: Tensor) -> Tensor:
        """Return the hyperbolic distances of points (B, d) and (N, d): shape (B, N).

        ::

            arcosh(1 + 2 c |x - y|^2 / ((1 - c |x|^2) (1 - c |y|^2))) / sqrt(c)
        """
        c = self.c
        products = points @ others.T
        if not c:
            return -products
        squares = points.square().sum(1, keepdim=True)
        other_squares = others.square().sum(1)
        gaps: Tensor = _SquaredDistances.apply(points, others).clamp(min=LEAST)
        if self.variant == "exact":  # arcosh(1 + 2 t) = 2 arsinh(sqrt(t)), without cancellation
            ratios = c * gaps / ((1 - c * squares) * (1 - c * other_squares))
            half_distances = ratios.sqrt().asinh()
        else:
            denominators = 1 - 2 * c * products + c**2 * squares * other_squares
            ratios = math.sqrt(c) * (gaps * denominators).sqrt() / (denominators + EPSILON)
            # clamped numbers keep their gradient, as in the published code
            clamped = ratios + (ratios.clamp(max=1 - EPSILON) - ratios).detach()
            half_distances = clamped.atanh()
        return half_distances * (2 / math.sqrt(c))


class _SquaredDistances(torch.autograd.Function):
    """Squares |x - y|^2 of all pairs by differences, without cancellation, in O(B N) memory."""

    @staticmethod
    def forward(ctx: Any, points: Tensor, others: Tensor) -> Tensor:
        ctx.save_for_backward(points, others)
        return torch.cdist(points, others, compute_mode="donot_use_mm_for_euclid_dist").square_()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor]:
        points, others = ctx.saved_tensors
        grad_points = upstream.sum(1).unsqueeze(1) * points - upstream @ others
        grad_others = upstream.sum(0).unsqueeze(1) * others - upstream.T @ points
        return 2 * grad_points, 2 * grad_others
