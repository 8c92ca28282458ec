"""Classes of any tree, whose depths may differ: similarities, distances and hierarchical metrics.

For labels at L levels :mod:`hgld.evaluation.metrics` takes the same metrics from ranked levels; here they
are taken from the similarity or distance of each pair of classes:

>>> tree = ClassTree({"church": "human", "castle": "human", "lake": "natural", "human": "all", "natural": "all"})
>>> classes = ["church", "castle", "lake"]
>>> query, ranked = 0, np.array([[1, 0, 2]])  # the query shows a church; ranked first is a castle
>>> hierarchical_precision(tree.height_similarities(classes)[query, ranked], k=2)
array([1.])
>>> distances = tree.lca_heights(classes)[query, ranked]
>>> mean_mistake_severity(distances), average_hierarchical_distance(distances, k=3)
(1.0, array([1.]))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hgld.errors import InputError

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class ClassTree:
    """A tree of classes.

    Args:
        parents: Parent of every node but the root.

    Attributes:
        root: Name of the root.
        height: Number of edges from the root to the deepest leaf.

    Raises:
        InputError: There is no root, several, or a cycle.
    """

    def __init__(self, parents: Mapping[str, str]) -> None:
        roots = list(dict.fromkeys(parent for parent in parents.values() if parent not in parents))
        if len(roots) != 1:
            raise InputError(
                f"the tree has {len(roots)} roots{': ' if roots else ''}{', '.join(roots[:5])}; expected one node "
                "without a parent, above all others"
            )
        self.root = roots[0]
        self._ancestors: dict[str, tuple[str, ...]] = {self.root: (self.root,)}
        self._heights = {self.root: 0}
        for node in parents:
            path = [node]
            while path[-1] != self.root:
                if len(path) > len(parents):
                    raise InputError(
                        f'the node "{node}" has no path to the root "{self.root}", but goes round in a circle'
                    )
                path.append(parents[path[-1]])
            self._ancestors[node] = tuple(path)
            for height, ancestor in enumerate(path):
                self._heights[ancestor] = max(self._heights.get(ancestor, 0), height)
        self.height = self._heights[self.root]

    def ancestors(self, node: str) -> tuple[str, ...]:
        """Return a node, its parent, and so on up to the root; raises an InputError for an unknown node."""
        if node not in self._ancestors:
            raise InputError(f'the tree has no node "{node}"')
        return self._ancestors[node]

    def depth(self, node: str) -> int:
        """Return the number of edges from the root to a node."""
        return len(self.ancestors(node)) - 1

    def node_height(self, node: str) -> int:
        """Return the number of edges from a node to the deepest leaf below it."""
        return self._heights[self.ancestors(node)[0]]

    def lowest_common_ancestor(self, node: str, other: str) -> str:
        """Return the deepest node that has both at or below it."""
        above = set(self.ancestors(other))
        return next(ancestor for ancestor in self.ancestors(node) if ancestor in above)

    def lca_heights(self, classes: Sequence[str]) -> Integers:
        """Return the heights of lowest common ancestors (Bertinetto et al., CVPR 2020): int64, shape (n, n)."""
        return self._ancestor_pairs(classes)[1]

    def height_similarities(self, classes: Sequence[str]) -> Floats:
        """Return 1 - height(lca) / height of the tree (Deng et al., CVPR 2011): float64, shape (n, n)."""
        similarities: Floats = 1 - self.lca_heights(classes) / self.height
        return similarities

    def wu_palmer_similarities(self, classes: Sequence[str]) -> Floats:
        """Return 2 D(lca) / (D(a) + D(b)), where the root has the depth D = 1 (Wu and Palmer, ACL 1994): (n, n)."""
        depths = np.array([self.depth(name) for name in classes]) + 1
        similarities: Floats = 2 * (self._ancestor_pairs(classes)[0] + 1) / (depths[:, None] + depths)
        return similarities

    def path_lengths(self, classes: Sequence[str]) -> Integers:
        """Return the number of edges between two classes: int64, shape (n, n)."""
        depths = np.array([self.depth(name) for name in classes])
        lengths: Integers = depths[:, None] + depths - 2 * self._ancestor_pairs(classes)[0]
        return lengths

    def _ancestor_pairs(self, classes: Sequence[str]) -> tuple[Integers, Integers]:
        """Return the depths and the heights of the lowest common ancestors of all pairs: int64, shape (n, n) each."""
        codes = {node: code for code, node in enumerate(self._heights)}
        heights = np.array(list(self._heights.values()))
        paths = np.full((len(classes), self.height + 1), -1)
        for row, name in enumerate(classes):
            nodes = [codes[node] for node in self.ancestors(name)]
            paths[row, : len(nodes)] = nodes[::-1]
        depths = np.empty((len(classes), len(classes)), np.int64)
        for row, path in enumerate(paths):
            depths[row] = ((paths == path) & (path >= 0)).cumprod(1).sum(1) - 1
        return depths, heights[np.take_along_axis(paths, depths, axis=1)]


def hierarchical_precision(similarities: npt.ArrayLike, k: int) -> Floats:
    """HP@k: similarity of the first k items, divided by the largest that k of these items have (Deng et al., 2011).

    Args:
        similarities: float, shape (n, N); similarity of the item at each rank to the query, which is not among them.
        k: Number of ranks, at most N.
    """
    return _precisions(similarities)[:, _column(k, similarities)]


def average_hierarchical_precision(
    similarities: npt.ArrayLike, k: int | None = None, *, trapezoid: bool = False
) -> Floats:
    """AHP: mean of HP@1, ..., HP@k.

    Args:
        similarities: As in :func:`hierarchical_precision`.
        k: Number of ranks; all of them by default.
        trapezoid: Whether to take the area under the curve as published code does, by the trapezoidal rule with steps
            of 1/k, so that a perfect ranking has (k - 1) / k.
    """
    n_ranks = np.asarray(similarities).shape[1] if k is None else k
    precisions = _precisions(similarities)[:, : _column(n_ranks, similarities) + 1]
    total = precisions.sum(1)
    if trapezoid:
        total = total - (precisions[:, 0] + precisions[:, -1]) / 2
    average: Floats = total / n_ranks
    return average


def mean_mistake_severity(distances: npt.ArrayLike) -> float:
    """Return the mean distance of the first item over mistakes, those above 0 (Bertinetto et al.); NaN without any.

    Args:
        distances: float, shape (n, N); distance of the item, or class, at each rank to the true class.
    """
    first = np.asarray(distances, np.float64)[:, 0]
    return float(first[first > 0].mean()) if (first > 0).any() else float("nan")


def average_hierarchical_distance(distances: npt.ArrayLike, k: int) -> Floats:
    """Mean distance of the first k items or classes (Bertinetto et al., CVPR 2020): float64, shape (n,)."""
    average: Floats = np.asarray(distances, np.float64)[:, : _column(k, distances) + 1].mean(1)
    return average


def least_hierarchical_distance(distances: npt.ArrayLike, k: int) -> Floats:
    """Least distance of the first k items or classes: float64, shape (n,)."""
    least: Floats = np.asarray(distances, np.float64)[:, : _column(k, distances) + 1].min(1)
    return least


@dataclass(frozen=True, eq=False)
class HierarchicalF:
    """Hierarchical precision, recall and F-measure (Kiritchenko et al., 2006).

    Args:
        precision: float64, shape (n,); share of the predicted node's ancestors that the true node has.
        recall: float64, shape (n,); share of the true node's ancestors that the predicted node has.
        f: float64, shape (n,); their harmonic mean, 0 where both are 0.
        micro: Precision, recall and F-measure of the sums over all items.
    """

    precision: Floats
    recall: Floats
    f: Floats
    micro: tuple[float, float, float]


def hierarchical_f(
    tree: ClassTree, true: Sequence[str], predicted: Sequence[str], *, with_root: bool = False
) -> HierarchicalF:
    """Compare true and predicted nodes by their ancestors, the nodes themselves included.

    Args:
        tree: Tree of the classes.
        true: True node of each item.
        predicted: Predicted node of each item; any node of the tree.
        with_root: Whether the root counts as an ancestor: a wholly wrong answer then scores above 0.

    Raises:
        InputError: The numbers of nodes differ, or the tree does not have a node.
    """
    if len(true) != len(predicted):
        raise InputError(
            f"there are {len(true):,} true nodes and {len(predicted):,} predicted ones; expected as many"
        )
    excluded = set() if with_root else {tree.root}
    pairs = [
        (set(tree.ancestors(a)) - excluded, set(tree.ancestors(b)) - excluded)
        for a, b in zip(true, predicted, strict=True)
    ]
    shared, n_true, n_predicted = (
        np.array([(len(a & b), len(a), len(b)) for a, b in pairs], np.float64).reshape(-1, 3).T
    )
    precision, recall = _share(shared, n_predicted), _share(shared, n_true)
    micro = _share(shared.sum(), n_predicted.sum()), _share(shared.sum(), n_true.sum())
    return HierarchicalF(
        precision,
        recall,
        _harmonic_mean(precision, recall),
        (float(micro[0]), float(micro[1]), float(_harmonic_mean(*micro))),
    )


def _precisions(similarities: npt.ArrayLike) -> Floats:
    """Return HP@1, ..., HP@N: float64, shape (n, N)."""
    obtained = np.asarray(similarities, np.float64)
    best = -np.sort(-obtained, axis=1)
    with np.errstate(invalid="ignore"):
        precisions: Floats = obtained.cumsum(1) / best.cumsum(1)
    return precisions


def _column(k: int, ranked: npt.ArrayLike) -> int:
    """Return the column of rank k; raises an InputError for a rank that does not exist."""
    n_ranks = np.asarray(ranked).shape[1]
    if not 1 <= k <= n_ranks:
        raise InputError(f"k is {k}; expected 1 to {n_ranks}, the number of ranked items")
    return k - 1


def _share(part: npt.ArrayLike, whole: npt.ArrayLike) -> Floats:
    """Return part / whole, 0 where the whole is 0."""
    return np.divide(part, whole, out=np.zeros(np.shape(part)), where=np.asarray(whole) > 0)


def _harmonic_mean(a: npt.ArrayLike, b: npt.ArrayLike) -> Floats:
    return _share(2 * np.asarray(a) * np.asarray(b), np.asarray(a) + np.asarray(b))
