from __future__ import annotations

import re
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld.datasets.samplers import BatchSampler, ClassBalancedSampler, HierarchicalSampler
from hgld.errors import ConfigurationError

COUNTS = st.lists(st.integers(1, 40), min_size=6, max_size=30)


def labels_of(counts: list[int], n_super: int = 3) -> np.ndarray:
    """Return labels of classes of these sizes in random order, and every third class in the same super-class."""
    classes = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    return np.stack([classes, classes % n_super], axis=1)


def check_batches(sampler: BatchSampler, labels: np.ndarray, per_class: int, epoch: int) -> np.ndarray:
    """Check what holds for every sampler, and return the batches."""
    batches = sampler.batches(epoch)
    assert batches.shape == (len(sampler), sampler.batch_size)
    for batch in batches:
        assert len(set(batch.tolist())) == len(batch)
        counts = np.bincount(labels[batch, 0])
        assert set(counts[counts > 0].tolist()) == {per_class}
    assert np.array_equal(sampler.batches(epoch), batches)
    return batches


def max_batches(groups: list[int], slots: int) -> int:
    """Count batches by the optimal greedy algorithm: fill each from the classes with the most groups left."""
    n = 0
    while len(groups := sorted((g for g in groups if g), reverse=True)) >= slots:
        groups = [g - 1 for g in groups[:slots]] + groups[slots:]
        n += 1
    return n


@settings(max_examples=60)
@given(COUNTS, st.integers(1, 4), st.integers(1, 5), st.none() | st.integers(4, 9), st.integers(0, 3))
def test_class_balanced_batches(counts: list[int], per_class: int, slots: int, most: int | None, epoch: int) -> None:
    labels = labels_of(counts)
    groups = [min(count, most or count) // per_class for count in counts]
    if sum(g > 0 for g in groups) < slots:
        with pytest.raises(ConfigurationError, match="classes have .* images or more"):
            ClassBalancedSampler(labels, slots * per_class, per_class, max_per_class=most, seed=1)
        return
    sampler = ClassBalancedSampler(labels, slots * per_class, per_class, max_per_class=most, seed=1)
    batches = check_batches(sampler, labels, per_class, epoch)
    assert len(sampler) == max_batches(groups, slots)
    images, times = np.unique(batches, return_counts=True)
    assert times.max() == 1, "no image is repeated within an epoch"
    assert max(np.bincount(labels[images, 0])) <= (most or max(counts))


@settings(max_examples=30)
@given(COUNTS, st.integers(1, 3), st.integers(1, 2), st.integers(1, 3), st.integers(0, 3))
def test_hierarchical_batches(counts: list[int], per_class: int, n_classes: int, n_super: int, epoch: int) -> None:
    labels = labels_of(counts)
    enough = [sum(count >= per_class for count in counts[group::3]) >= n_classes for group in range(3)]
    if sum(enough) < n_super:
        with pytest.raises(ConfigurationError, match=f"but {sum(enough)} super-classes have that many"):
            HierarchicalSampler(labels, per_class * n_classes * n_super, per_class, n_super, 2, seed=1)
        return
    sampler = HierarchicalSampler(labels, per_class * n_classes * n_super, per_class, n_super, 2, seed=1)
    batches = check_batches(sampler, labels, per_class, epoch)
    assert len(sampler) == 2 * comb(sum(enough), n_super)
    tuples = [tuple(np.unique(labels[batch, 1], return_counts=True)[0].tolist()) for batch in batches]
    assert {tuples.count(labels) for labels in tuples} == {2}
    for batch in batches:
        sizes = np.bincount(labels[batch, 1])
        assert set(sizes[sizes > 0].tolist()) == {per_class * n_classes}


@pytest.mark.parametrize("make", ["balanced", "hierarchical"])
def test_epochs_and_seeds_differ_and_classes_are_mixed(make: str) -> None:
    labels = labels_of([8] * 30)

    def sampler(seed: int) -> BatchSampler:
        return (
            ClassBalancedSampler(labels, 16, 4, seed=seed)
            if make == "balanced"
            else HierarchicalSampler(labels, 16, 4, 2, 5, seed=seed)
        )

    first = sampler(0)
    assert not np.array_equal(first.batches(0), first.batches(1))
    assert not np.array_equal(first.batches(0), sampler(1).batches(0))
    assert np.array_equal(first.batches(5), sampler(0).batches(5)), "earlier calls have no effect"
    partners = {
        other
        for epoch in range(12)
        for batch in first.batches(epoch)
        if 0 in labels[batch, 0]
        for other in labels[batch, 0]
    }
    assert len(partners) > 20, "a class meets most others"


def test_all_images_of_a_class_are_used_over_epochs() -> None:
    labels = labels_of([7] * 8)
    sampler = ClassBalancedSampler(labels, 16, 4, max_per_class=4, seed=0)
    assert set(np.concatenate([sampler.batches(epoch).ravel() for epoch in range(40)]).tolist()) == set(range(56))


def test_classes_with_one_image_are_excluded() -> None:
    labels = labels_of([1, 4, 1, 4])
    assert set(labels[ClassBalancedSampler(labels, 8, 4, seed=0).batches(0).ravel(), 0].tolist()) == {1, 3}
    with pytest.raises(
        ConfigurationError,
        match="a batch of 12 with 4 images of each class has 3 classes, but 2 of 4 classes have 4 images or more, "
        "and 2 have only one; lower `per_class`",
    ):
        ClassBalancedSampler(labels, 12, 4, seed=0)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"batch_size": 10, "per_class": 4}, "`batch_size` must be a multiple of 4"),
        ({"batch_size": 0, "per_class": 4}, "expected at least 1"),
        ({"batch_size": 8, "per_class": 4, "max_per_class": 3}, "but `per_class` is 4; expected at least as many"),
    ],
)
def test_inconsistent_sizes_are_refused_by_the_class_balanced_sampler(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ClassBalancedSampler(labels_of([9] * 6), **sizes, seed=0)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((20, 4, 3, 5), "4 images of each class of each of 3 super-classes; `batch_size` must be a multiple of 12"),
        ((8, 4, 2, 0), "`batches_per_tuple` is 0"),
    ],
)
def test_inconsistent_sizes_are_refused_by_the_hierarchical_sampler(
    sizes: tuple[int, int, int, int], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        HierarchicalSampler(labels_of([9] * 6), *sizes, seed=0)
    with pytest.raises(ConfigurationError, match="one level only"):
        HierarchicalSampler(labels_of([9] * 6)[:, :1], 8, 4, 2, 5, seed=0)
