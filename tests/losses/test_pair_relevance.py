"""Rank losses of the relevance of pairs, and H-AP with the thesis's Algorithm 1 for images with several labels."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.relevance import LabelSetJudgements
from hgld.hierarchy import LabelSets
from hgld.losses import (
    LOSSES,
    CrossBatchMemory,
    LabelSpace,
    RankLoss,
    SmoothAP,
    SmoothHAP,
    SupAP,
    SupHAP,
    SupNDCG,
    SupRecall,
    happier,
)
from hgld.losses.base import pair_levels, summed_levels
from tests.losses.batches import hierarchical_batch, unit_vectors
from tests.losses.test_label_sets import h_minus, heaviside, lists, padded, random_images


def slow_sup_h_ap(scores: torch.Tensor, relevance: list[float]) -> torch.Tensor:
    """Return the surrogate of 1 - H-AP of one query, with sets of items compared by their relevance."""
    total = torch.zeros((), dtype=torch.float64)
    for k, own in enumerate(relevance):
        if own == 0:
            continue
        h_rank, rank = torch.tensor(own, dtype=torch.float64), torch.ones((), dtype=torch.float64)
        for j, other in enumerate(relevance):
            if j != k:
                t = scores[j] - scores[k]
                h_rank = h_rank + min(own, other) * heaviside(t)
                rank = rank + (heaviside(t) if other >= own else h_minus(t))
        total = total + h_rank / rank
    return 1 - total / sum(relevance)


def algorithm1(query: list[list[int]], item: list[list[int]]) -> float:
    """Return rel(q, k) of the thesis, with nested labels: L - LCA is the number of equal columns."""
    best = [max(sum(a == b for a, b in zip(own, other, strict=True)) for other in item) for own in query]
    return sum(best) / (len(query) * len(query[0]))


def gradient(value: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(value, x)[0]


def test_golden_cases(shared: Path) -> None:
    cases: list[dict[str, Any]] = json.loads((shared / "golden_beyond" / "relevance_pairs.json").read_text())
    for case in cases:
        x = torch.tensor(case["embeddings"], dtype=torch.float64).requires_grad_()
        values = [SupHAP()(x, relevance=torch.tensor(case["relevance"], dtype=torch.float64))]
        if case["label_sets"]:
            sets = torch.from_numpy(LabelSets.from_lists(case["label_sets"]).padded())
            values.append(SupHAP(relevance="algorithm1")(x, sets))
        for value in values:
            assert value.item() == pytest.approx(case["value"], abs=1e-12)
            expected = torch.tensor(case["grad"], dtype=torch.float64)
            torch.testing.assert_close(gradient(value, x), expected, rtol=0, atol=1e-12)
    first = torch.tensor(cases[0]["embeddings"], dtype=torch.float64)
    best = SupHAP()(first, torch.from_numpy(LabelSets.from_lists(cases[0]["label_sets"]).padded()))
    assert (round(cases[0]["value"], 4), round(best.item(), 4)) == (0.6331, 0.6214)


@settings(max_examples=10)
@given(st.integers(0, 99), st.booleans())
def test_any_relevance_against_loops(seed: int, few_values: bool) -> None:
    """With ties of relevance, queries whose own relevance is 0, and rectangles."""
    generator = torch.Generator().manual_seed(seed)
    x, references = unit_vectors(4, 3, seed).requires_grad_(), unit_vectors(7, 3, seed + 1)
    relevance = torch.rand(4, 7, generator=generator, dtype=torch.float64)
    relevance = (relevance * 3).floor() / 2 if few_values else relevance - 0.3
    relevance = relevance.clamp(min=0).index_fill(1, torch.tensor([0]), 0.5)  # each query has a positive
    value = SupHAP()(x, reference_embeddings=references, relevance=relevance)
    expected = torch.stack([slow_sup_h_ap(x[q] @ references.T, relevance[q].tolist()) for q in range(4)]).mean()
    assert value.item() == pytest.approx(expected.item(), abs=1e-12)
    torch.testing.assert_close(gradient(value, x), gradient(expected + 0 * x.sum(), x), rtol=1e-9, atol=1e-10)


@settings(max_examples=10)
@given(st.integers(0, 99))
def test_algorithm_1_against_loops(seed: int) -> None:
    sets = padded(random_images(6, seed))
    x, labels = unit_vectors(6, 3, seed).requires_grad_(), lists(sets)
    relevance = torch.tensor([[algorithm1(a, b) for b in labels] for a in labels], dtype=torch.float64)
    n_labels = torch.tensor([len(image) for image in labels])[:, None]
    torch.testing.assert_close(summed_levels(sets, sets) / (n_labels * 3.0), relevance.float())
    value = SupHAP(relevance="algorithm1")(x, sets)
    expected = torch.stack([slow_sup_h_ap(x[q] @ x.T, relevance[q].tolist()) for q in range(6)]).mean()
    assert value.item() == pytest.approx(expected.item(), abs=1e-12)
    torch.testing.assert_close(gradient(value, x), gradient(expected + 0 * x.sum(), x), rtol=1e-9, atol=1e-10)


def test_losses_and_evaluation_agree_on_algorithm_1() -> None:
    own, others = padded(random_images(9, 1)), padded(random_images(14, 2))
    queries, gallery = (LabelSets.from_lists(lists(sets)) for sets in (own, others))
    judgements = LabelSetJudgements(queries, gallery, "mean")
    expected = judgements.levels(slice(0, 9), slice(0, 14))
    assert torch.equal(summed_levels(own, others), expected.long())


@pytest.mark.parametrize("include_query", [True, False])
def test_relevance_of_levels_gives_the_loss_of_levels(include_query: bool) -> None:
    x, labels = hierarchical_batch()
    x.requires_grad_()
    levels = pair_levels(labels, labels).double()
    shares = levels / 3
    cases: list[tuple[RankLoss, torch.Tensor, torch.Tensor]] = [
        (SupHAP(relevance="algorithm1", include_query=include_query), labels, shares),
        (SmoothHAP(relevance="algorithm1", include_query=include_query), labels, shares),
        (SupNDCG(include_query=include_query), labels, 2**levels - 1),
        (SupAP(include_query=include_query), labels[:, :1], levels == 3),
        (SmoothAP(include_query=include_query), labels[:, 1:2], levels >= 2),
        (SupRecall(ks=(1, 2), include_query=include_query), labels[:, :1], shares == 1),
    ]
    for loss, given_labels, relevance in cases:
        by_labels, by_pairs = loss(x, given_labels), loss(x, relevance=relevance)
        assert by_pairs.item() == pytest.approx(by_labels.item(), abs=1e-12)
        torch.testing.assert_close(gradient(by_pairs, x), gradient(by_labels, x), rtol=0, atol=1e-12)


def test_blocks_and_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x = unit_vectors(12)
    relevance = torch.rand(12, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    value = SupHAP()(x, relevance=relevance)
    monkeypatch.setattr("hgld.losses.kernels.rank_loss.BLOCK_SCORES", 500)
    assert SupHAP()(x, relevance=relevance).item() == pytest.approx(value.item(), abs=1e-12)


def test_happier_with_a_memory_takes_algorithm_1() -> None:
    space = LabelSpace(6, (8, 4, 2), labels_per_image=5)
    torch.manual_seed(0)
    loss = CrossBatchMemory(LOSSES["happier"](space, relevance="algorithm1"), 20, 6, 3, labels_per_image=5)
    x, sets = unit_vectors(9).float(), padded(random_images(9, 0))
    loss(x, sets)
    assert loss.parts["batch.sup_hap"] == pytest.approx(SupHAP(relevance="algorithm1")(x, sets).item(), abs=1e-6)
    assert loss.parts["memory"].isfinite()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "expected either labels or the `relevance` of pairs, found neither"),
        ({"labels": torch.arange(3), "relevance": torch.eye(3)}, "expected either labels or .*, found both"),
        ({"relevance": torch.eye(4)}, r"has the shape \(4, 4\); expected \(3, 3\), a row per query"),
        ({"relevance": -torch.eye(3)}, "`relevance` is -1 in row 0, column 0; expected 0 or more"),
        ({"relevance": torch.full((3, 3), torch.nan)}, "`relevance` is nan in row 0, column 0"),
        ({"relevance": torch.zeros(3, 3)}, "none of 3 queries has a positive among 3 items"),
        ({"relevance": torch.eye(3), "reference_embeddings": 2 * torch.eye(3, 6)}, "are not of length 1"),
    ],
)
def test_invalid_relevance_is_an_error(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SupHAP()(unit_vectors(3), **arguments)


def test_too_many_distinct_relevances_are_an_error() -> None:
    with pytest.raises(InputError, match="a row of `relevance` has 1100 distinct values above 0; round them to 1024"):
        SupHAP()(unit_vectors(1), reference_embeddings=unit_vectors(1100), relevance=torch.arange(1.0, 1101)[None])


def test_level_weights_have_no_effect_with_algorithm_1() -> None:
    with pytest.raises(
        ConfigurationError, match="`level_weights` have no effect without the `relevance` weighted_ap"
    ):
        happier(SupAP(), relevance="algorithm1", level_weights=(1.0,))
