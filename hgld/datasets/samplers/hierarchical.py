"""Batches from few super-classes."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np

from hgld.datasets.samplers.base import (
    IntArray,
    SmallClasses,
    check_sizes,
    class_counts_text,
    epoch_generator,
    images_per_class,
)
from hgld.errors import ConfigurationError
from hgld.hierarchy import LabelMatrix


class HierarchicalSampler:
    """Sampler of batches from few super-classes, whose classes are hard to distinguish.

    From Cakir et al., Deep Metric Learning to Rank, CVPR 2019. For every combination of ``super_classes`` labels of
    column 1 there are ``batches_per_tuple`` batches, each with the same number of classes of every super-class, drawn
    independently for each batch, and ``per_class`` images of each class. On Stanford Online Products: 2 of 12
    super-classes and 5 batches of each pair, hence 330 batches per epoch.

    With ``small_classes="repeat"``, as in the published samplers, images of a class with fewer than ``per_class`` of
    them are drawn with replacement, so a batch may have some of them several times, each with an augmentation of its
    own; and a super-class with too few classes for its share gives all that it has, so batches with it are smaller.
    With ``small_classes="exclude"`` such classes and super-classes are never used.

    Args:
        labels: int64, shape (N, L), finest first, L at least 2.
        batch_size: Number of images per batch.
        per_class: Number of images of each class in a batch.
        super_classes: Number of super-classes in a batch.
        batches_per_tuple: Number of batches per combination of super-classes and epoch.
        small_classes: What happens to classes with fewer than ``per_class`` images, see above.
        seed: Seed of all random choices.

    Raises:
        ConfigurationError: The sizes are inconsistent, there is one level only, or there are too few super-classes
            that can be used.
        InputError: Images are unlabelled.
    """

    def __init__(
        self,
        labels: LabelMatrix,
        batch_size: int,
        per_class: int,
        super_classes: int,
        batches_per_tuple: int,
        *,
        small_classes: SmallClasses = "repeat",
        seed: int,
    ) -> None:
        check_sizes(batch_size, per_class, super_classes)
        if batches_per_tuple < 1:
            raise ConfigurationError(f"`batches_per_tuple` is {batches_per_tuple}; expected at least 1")
        if labels.shape[1] < 2:
            raise ConfigurationError(
                "the hierarchical sampler needs super-classes, but the labels have one level only"
            )
        self.batch_size, self._per_class, self._seed = batch_size, per_class, seed
        self._super_classes, self._batches_per_tuple = super_classes, batches_per_tuple
        self._n_classes = batch_size // per_class // super_classes
        counts = images_per_class(labels)
        exclude = small_classes == "exclude"
        fewest = per_class if exclude else 1
        by_class = np.argsort(labels[:, 0], kind="stable")
        members: dict[int, list[IntArray]] = {}
        for rows in np.split(by_class, np.cumsum(counts)[:-1]):
            if len(rows) >= fewest:
                members.setdefault(int(labels[rows[0], 1]), []).append(rows)
        self._members = [
            members[name] for name in sorted(members) if len(members[name]) >= self._n_classes or not exclude
        ]
        if len(self._members) < super_classes:
            if not exclude:
                raise ConfigurationError(
                    f"a batch has classes of {super_classes} super-classes, but there are {len(self._members)}; "
                    "lower `super_classes`"
                )
            raise ConfigurationError(
                f"a batch of {batch_size} with {per_class} images of each class has {self._n_classes} classes of "
                f"each of {super_classes} super-classes, but {len(self._members)} super-classes have that many with "
                f"{per_class} images ({class_counts_text(counts, per_class)}); lower `per_class`, `batch_size` or "
                "`super_classes`, or repeat images with `small_classes`"
            )

    def n_batches(self, epoch: int) -> int:
        """Return the number of batches of an epoch, the same for all."""
        return comb(len(self._members), self._super_classes) * self._batches_per_tuple

    def batches(self, epoch: int) -> list[IntArray]:
        """Return the rows of each batch of an epoch: int64, at most ``batch_size`` of them."""
        rng = epoch_generator(self._seed, epoch)
        batches = [
            np.concatenate([self._draw(members, rng) for members in chosen])
            for chosen in combinations(self._members, self._super_classes)
            for _ in range(self._batches_per_tuple)
        ]
        return [rng.permutation(batches[n]) for n in rng.permutation(len(batches)).tolist()]

    def _draw(self, members: list[IntArray], rng: np.random.Generator) -> IntArray:
        """Draw rows of some classes of a super-class."""
        n_classes = min(self._n_classes, len(members))
        classes = [members[n] for n in rng.choice(len(members), n_classes, replace=False).tolist()]
        n = self._per_class
        return np.concatenate([rng.choice(rows, n, replace=len(rows) < n) for rows in classes])
