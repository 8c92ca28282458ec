import re
from math import comb
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hgld.datasets.samplers import (
    BatchSampler,
    ClassBalancedSampler,
    HierarchicalSampler,
    LabelSetSampler,
    Packing,
    SmallClasses,
    greedy_starts,
)
from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy.label_sets import LabelSets

COUNTS = st.lists(st.integers(1, 40), min_size=6, max_size=30)
SMALL_CLASSES: st.SearchStrategy[SmallClasses] = st.sampled_from(["repeat", "exclude"])


def labels_of(counts: list[int], n_super: int = 3) -> np.ndarray:
    """Return labels of classes of these sizes in random order, and every third class in the same super-class."""
    classes = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    return np.stack([classes, classes % n_super], axis=1)


def check_batches(sampler: BatchSampler, labels: np.ndarray, per_class: int, epoch: int) -> list[np.ndarray]:
    """Check what holds for every sampler, and return the batches."""
    batches = sampler.batches(epoch)
    assert len(batches) == sampler.n_batches(epoch)
    sizes = np.bincount(labels[:, 0])
    for batch in batches:
        rows, times = np.unique(batch, return_counts=True)
        assert (sizes[labels[rows[times > 1], 0]] < per_class).all(), "only images of small classes are repeated"
        counts = np.bincount(labels[batch, 0])
        assert set(counts[counts > 0].tolist()) == {per_class}
    assert same(sampler.batches(epoch), batches)
    return batches


def same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return len(one) == len(other) and all(map(np.array_equal, one, other))


def groups_of(counts: list[int], per_class: int, most: int | None, small: SmallClasses) -> list[int]:
    """Return the number of groups of each class in an epoch."""
    groups = [min(count, most or count) // per_class for count in counts]
    return [max(1, n) for n in groups] if small == "repeat" else groups


def max_batches(groups: list[int], slots: int) -> int:
    """Count batches by the optimal greedy algorithm: fill each from the classes with the most groups left."""
    n = 0
    while len(groups := sorted((g for g in groups if g), reverse=True)) >= slots:
        groups = [g - 1 for g in groups[:slots]] + groups[slots:]
        n += 1
    return n


@given(COUNTS, st.integers(1, 4), st.integers(1, 5), st.none() | st.integers(4, 9), st.integers(0, 3), SMALL_CLASSES)
def test_class_balanced_batches(
    counts: list[int], per_class: int, slots: int, most: int | None, epoch: int, small: SmallClasses
) -> None:
    labels = labels_of(counts)
    groups = groups_of(counts, per_class, most, small)
    options: dict[str, Any] = {"max_per_class": most, "small_classes": small, "seed": 1}
    if sum(g > 0 for g in groups) < slots:
        with pytest.raises(ConfigurationError, match="classes have .* images or more"):
            ClassBalancedSampler(labels, slots * per_class, per_class, **options)
        return
    sampler = ClassBalancedSampler(labels, slots * per_class, per_class, **options)
    batches = np.stack(check_batches(sampler, labels, per_class, epoch))
    assert batches.shape == (max_batches(groups, slots), slots * per_class)
    images, times = np.unique(batches, return_counts=True)
    assert times[np.array(counts)[labels[images, 0]] >= per_class].max(initial=1) == 1, "none is repeated in an epoch"
    assert max(np.bincount(labels[images, 0])) <= (most or max(counts))


def published_greedy_batches(order: list[int], groups: dict[int, int], slots: int) -> list[list[int]]:
    """Return the classes of each batch, as suprank/datasets/samplers/m_per_class_sampler.py picks them."""
    left = dict(groups)
    batches: list[list[int]] = []
    while True:
        batch: list[int] = []
        for name in order:
            if left[name] >= 1 and len(batch) < slots:
                batch.append(name)
                left[name] -= 1
        if len(batch) < slots:
            return batches
        batches.append(batch)


@given(st.lists(st.integers(1, 12), min_size=5, max_size=40), st.integers(1, 5), st.randoms(use_true_random=False))
def test_greedy_packing_is_that_of_the_published_samplers(groups: list[int], slots: int, random: Random) -> None:
    order = list(range(len(groups)))
    random.shuffle(order)
    starts, n_batches = greedy_starts(np.array([groups[name] for name in order]), slots)
    expected = published_greedy_batches(order, dict(enumerate(groups)), slots)
    assert n_batches == len(expected)
    spans = {name: range(start, start + groups[name]) for name, start in zip(order, starts.tolist(), strict=True)}
    assert [{name for name, span in spans.items() if n in span} for n in range(n_batches)] == list(map(set, expected))


@settings(max_examples=30)
@given(COUNTS, st.integers(1, 4), st.integers(1, 5), st.none() | st.integers(4, 9), st.integers(0, 3), SMALL_CLASSES)
def test_greedy_batches(
    counts: list[int], per_class: int, slots: int, most: int | None, epoch: int, small: SmallClasses
) -> None:
    labels = labels_of(counts)
    groups = groups_of(counts, per_class, most, small)
    assume(sum(g > 0 for g in groups) >= slots)
    sampler = ClassBalancedSampler(
        labels, slots * per_class, per_class, packing="greedy", max_per_class=most, small_classes=small, seed=1
    )
    batches = np.stack(check_batches(sampler, labels, per_class, epoch))
    assert batches.shape[1] == slots * per_class
    images, times = np.unique(batches, return_counts=True)
    assert times[np.array(counts)[labels[images, 0]] >= per_class].max(initial=1) == 1, "none is repeated in an epoch"
    used = np.bincount(labels[batches.ravel(), 0], minlength=len(groups)) // per_class
    assert (used <= groups).all()
    assert ((used > 0) & (used < groups)).sum() < slots, "all but the last classes are used up"


@pytest.mark.parametrize("small", ["repeat", "exclude"])
def test_independent_batches_draw_classes_uniformly(small: SmallClasses) -> None:
    labels = labels_of([1, 2, 9, 30, 4, 4])
    sampler = ClassBalancedSampler(labels, 8, 4, packing="independent", small_classes=small, n_batches=400, seed=0)
    batches = np.stack(check_batches(sampler, labels, 4, epoch=0))
    shares = np.bincount(labels[batches.ravel(), 0], minlength=6) / batches.size
    used = np.array([small == "repeat", small == "repeat", True, True, True, True])
    np.testing.assert_allclose(shares, used / used.sum(), atol=0.04)
    assert ClassBalancedSampler(labels, 8, 4, packing="independent", seed=0).n_batches(3) == 50 // 8


@settings(max_examples=30)
@given(COUNTS, st.integers(1, 3), st.integers(1, 2), st.integers(1, 3), st.integers(0, 3), SMALL_CLASSES)
def test_hierarchical_batches(
    counts: list[int], per_class: int, n_classes: int, n_super: int, epoch: int, small: SmallClasses
) -> None:
    labels = labels_of(counts)
    usable = [sum(small == "repeat" or count >= per_class for count in counts[group::3]) for group in range(3)]
    enough = [small == "repeat" or n >= n_classes for n in usable]
    sizes = per_class * n_classes * n_super, per_class, n_super, 2
    if sum(enough) < n_super:
        with pytest.raises(ConfigurationError, match=f"but {sum(enough)} super-classes have that many"):
            HierarchicalSampler(labels, *sizes, small_classes=small, seed=1)
        return
    sampler = HierarchicalSampler(labels, *sizes, small_classes=small, seed=1)
    batches = check_batches(sampler, labels, per_class, epoch)
    assert sampler.n_batches(epoch) == 2 * comb(sum(enough), n_super)
    tuples = [tuple(np.unique(labels[batch, 1], return_counts=True)[0].tolist()) for batch in batches]
    assert {tuples.count(labels) for labels in tuples} == {2}
    for batch in batches:
        for group, n_images in enumerate(np.bincount(labels[batch, 1])):
            assert n_images in (0, per_class * min(n_classes, usable[group]))


def test_small_classes_are_drawn_like_the_others_and_with_replacement() -> None:
    """As ``safe_random_choice`` of pytorch-metric-learning: a class with 3 images can have one of them four times."""
    labels = labels_of([3, 3, 3, 3, 6, 6], n_super=2)
    batches = np.stack(HierarchicalSampler(labels, 8, 4, 2, 300, seed=0).batches(0))
    shares = np.bincount(labels[batches.ravel(), 0]) / batches.size
    np.testing.assert_allclose(shares, 1 / 6, atol=0.03)
    most = [max(np.bincount(batch)) for batch in batches if (labels[batch, 0] < 4).all()]
    # The chance that one of 3 images is drawn 4 times of 4 is 1/27 for each of two classes, 3 or 4 times 1/3.
    assert np.mean(np.array(most) == 4) == pytest.approx(1 - (26 / 27) ** 2, abs=0.06)
    assert np.mean(np.array(most) >= 3) == pytest.approx(1 - (2 / 3) ** 2, abs=0.12)
    excluded = HierarchicalSampler(labels, 8, 4, 2, 2, small_classes="exclude", seed=0).batches(0)
    assert set(labels[np.concatenate(excluded), 0].tolist()) == {4, 5}


def test_super_class_with_too_few_classes_makes_smaller_batches() -> None:
    """As the published samplers, on In-Shop: its smallest category has fewer items than its share of a batch."""
    classes = np.repeat(np.arange(9), 4)
    labels = np.stack([classes, (classes > 0) * 1 + (classes > 4) * 1], axis=1)  # with 1, 4 and 4 classes
    sampler = HierarchicalSampler(labels, 32, 4, 2, 5, seed=0)
    batches = check_batches(sampler, labels, 4, epoch=0)
    assert sorted(map(len, batches)) == [20] * 10 + [32] * 5
    assert all(len(batch) == (20 if 0 in labels[batch, 1] else 32) for batch in batches)
    excluded = HierarchicalSampler(labels, 32, 4, 2, 5, small_classes="exclude", seed=0)
    assert [len(batch) for batch in check_batches(excluded, labels, 4, epoch=0)] == [32] * 5
    with pytest.raises(
        ConfigurationError, match="classes of 4 super-classes, but there are 3; lower `super_classes`"
    ):
        HierarchicalSampler(labels, 64, 4, 4, 5, seed=0)


@pytest.mark.parametrize("make", ["balanced", "greedy", "independent", "hierarchical"])
def test_epochs_and_seeds_differ_and_classes_are_mixed(make: str) -> None:
    labels = labels_of([8] * 30)

    def sampler(seed: int) -> BatchSampler:
        if make == "hierarchical":
            return HierarchicalSampler(labels, 16, 4, 2, 5, seed=seed)
        packings: dict[str, Packing] = {"balanced": "most", "greedy": "greedy", "independent": "independent"}
        return ClassBalancedSampler(labels, 16, 4, packing=packings[make], seed=seed)

    first = sampler(0)
    assert not same(first.batches(0), first.batches(1))
    assert not same(first.batches(0), sampler(1).batches(0))
    assert same(first.batches(5), sampler(0).batches(5)), "earlier calls have no effect"
    partners = {
        other
        for epoch in range(24 if make == "greedy" else 12)  # whose classes meet in several batches
        for batch in first.batches(epoch)
        if 0 in labels[batch, 0]
        for other in labels[batch, 0]
    }
    assert len(partners) > 20, "a class meets most others"


def test_unlabelled_images_are_refused() -> None:
    labels = labels_of([4] * 6)
    labels[5] = -1
    sets = LabelSets.from_lists([[[0], [1]], [[1]], np.empty((0, 1), np.int64)])
    for make in (
        lambda: ClassBalancedSampler(labels, 4, 2, seed=0),
        lambda: HierarchicalSampler(labels, 4, 2, 2, 1, seed=0),
        lambda: LabelSetSampler(sets, lambda drawn: ClassBalancedSampler(drawn, 2, 1, seed=0), seed=0),
    ):
        with pytest.raises(InputError, match=r"1 of \d+ images are unlabelled .*, first image [25]; exclude them"):
            make()


def test_all_images_of_a_class_are_used_over_epochs() -> None:
    labels = labels_of([7] * 8)
    sampler = ClassBalancedSampler(labels, 16, 4, max_per_class=4, seed=0)
    assert set(np.concatenate([batch for epoch in range(40) for batch in sampler.batches(epoch)]).tolist()) == set(
        range(56)
    )


def test_rows_of_a_class_are_in_the_order_of_random_numbers() -> None:
    classes = np.random.default_rng(0).integers(40, size=1000)
    sampler = ClassBalancedSampler(classes[:, None], 8, 2, seed=0)
    rows = sampler._group_rows(np.repeat(np.arange(40), 3), np.random.default_rng(1))
    order = np.lexsort((np.random.default_rng(1).random(1000), classes))
    assert rows.reshape(40, 6).tolist() == [order[classes[order] == name][:6].tolist() for name in range(40)]


def test_classes_with_one_image_are_excluded() -> None:
    labels = labels_of([1, 4, 1, 4])
    assert set(labels[np.concatenate(ClassBalancedSampler(labels, 8, 4, seed=0).batches(0)), 0].tolist()) == {1, 3}
    with pytest.raises(
        ConfigurationError,
        match="a batch of 12 with 4 images of each class has 3 classes, but 2 of 4 classes have 4 images or more, "
        "and 2 have only one; lower `per_class`",
    ):
        ClassBalancedSampler(labels, 12, 4, seed=0)


@pytest.mark.parametrize(
    ("sampler", "sizes", "options", "message"),
    [
        (ClassBalancedSampler, (10, 4), {}, "`batch_size` must be a multiple of 4"),
        (ClassBalancedSampler, (0, 4), {}, "expected at least 1"),
        (ClassBalancedSampler, (8, 4), {"max_per_class": 3}, "but `per_class` is 4; expected at least as many"),
        (
            ClassBalancedSampler,
            (8, 4),
            {"packing": "greedy", "n_batches": 5},
            "`n_batches` is 5, but the packing greedy decides that itself",
        ),
        (
            ClassBalancedSampler,
            (8, 4),
            {"packing": "independent", "max_per_class": 8},
            "`max_per_class` is 8, but independent batches have no such limit",
        ),
        (HierarchicalSampler, (20, 4, 3, 5), {}, "of each of 3 super-classes; `batch_size` must be a multiple of 12"),
        (HierarchicalSampler, (8, 4, 2, 0), {}, "`batches_per_tuple` is 0"),
        (HierarchicalSampler, (8, 4, 2, 5), {"labels": labels_of([9] * 6)[:, :1]}, "one level only"),
    ],
)
def test_inconsistent_settings_are_refused(
    sampler: Any, sizes: tuple[int, ...], options: dict[str, Any], message: str
) -> None:
    labels = {"labels": labels_of([9] * 6)} | options
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        sampler(labels.pop("labels"), *sizes, **labels, seed=0)
