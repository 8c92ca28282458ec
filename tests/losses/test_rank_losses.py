"""Rank losses: against plain loops, the metrics that they bound, and what they promise beside numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.relevance import hierarchical_relevance
from hgld.losses import SmoothAP, SmoothHAP, SmoothNDCG, SmoothRecall, SupAP, SupHAP, SupNDCG, SupRecall
from hgld.losses.kernels import rank_loss
from hgld.losses.kernels.rank_loss import RankLoss
from hgld.losses.kernels.ranks import rank
from hgld.losses.kernels.steps import Heaviside, SupRankStep, suprank_step
from hgld.losses.simix import MixedPositives, SiMix
from tests.losses import rank_oracles

LOSSES: list[Callable[..., RankLoss]] = [
    SupHAP, SmoothHAP, SupNDCG, SmoothNDCG, SupAP, SmoothAP, SupRecall, SmoothRecall
]  # fmt: skip


def some_batch(
    seed: int = 0, n_classes: int = 5, per_class: int = 3, dim: int = 6, dtype: torch.dtype = torch.float64
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    classes = torch.arange(n_classes).repeat_interleave(per_class)
    labels = torch.stack([classes, classes // 2, classes // 4], 1)[torch.randperm(len(classes), generator=generator)]
    embeddings = torch.randn(len(classes), dim, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(embeddings, dim=1).to(dtype), labels


@st.composite
def rankings(draw: st.DrawFn) -> tuple[list[float], list[int]]:
    """Scores, with ties or close to each other or not, and levels up to 3, one of them at least of level 3."""
    n = draw(st.integers(1, 8))
    step, most = draw(st.sampled_from([(0.01, 20), (0.001, 60), (0.1, 10)]))
    scores = [step * value for value in draw(st.lists(st.integers(-most, most), min_size=n, max_size=n))]
    levels = draw(st.lists(st.integers(-1, 3), min_size=n - 1, max_size=n - 1))
    return scores, [*levels, 3]


@settings(max_examples=40)
@given(rankings())
def test_losses_are_those_of_loops_and_bound_the_metrics(ranking: tuple[list[float], list[int]]) -> None:
    scores, levels = ranking
    tensors = torch.tensor([scores], dtype=torch.float64), torch.tensor([levels])
    counts = torch.tensor([[levels.count(level) for level in range(4)]], dtype=torch.float64)
    relevance = hierarchical_relevance(counts)[0].tolist()
    binary = [-1 if level < 0 else int(level == 3) for level in levels]
    h = rank_oracles.h_minus
    expected = [
        (SupHAP(), rank_oracles.h_ap(scores, levels, relevance, h), rank_oracles.h_ap(scores, levels, relevance)),
        (SupAP(), rank_oracles.h_ap(scores, binary, [0, 1], h), rank_oracles.average_precision(scores, levels, 3)),
        (SupNDCG(), rank_oracles.ndcg(scores, levels, h), rank_oracles.ndcg(scores, levels)),
    ]
    for loss, surrogate, metric in expected:
        found = loss.query_losses(*tensors, 3).item()
        assert found == pytest.approx(1 - surrogate, abs=1e-9)
        assert found >= 1 - metric - 1e-12
    recalls = [rank_oracles.recall(scores, binary, k, 1.0, h) for k in (1, 4)]
    assert SupRecall((1, 4)).query_losses(*tensors, 3).item() == pytest.approx(1 - sum(recalls) / 2, abs=1e-9)


@settings(max_examples=40)
@given(rankings(), st.sampled_from([SupRankStep(), suprank_step("cfg144")]))
def test_surrogate_of_the_rank_bounds_the_rank(ranking: tuple[list[float], list[int]], step: SupRankStep) -> None:
    scores, levels = torch.tensor([ranking[0]], dtype=torch.float64), torch.tensor([ranking[1]])
    true = rank(scores, levels, 3, plus=Heaviside(), minus=Heaviside())
    expected = [rank_oracles.rank(*ranking, k) if level > 0 else 1.0 for k, level in enumerate(ranking[1])]
    assert true[0].tolist() == expected
    assert (rank(scores, levels, 3, plus=Heaviside(), minus=step) >= true - 1e-12).all()


def test_sup_recall_is_no_bound() -> None:
    # the only positive is second: recall at 1 is 0, but the second sigmoid still gives a part
    scores, levels = torch.tensor([[0.5, 0.4]]), torch.tensor([[0, 1]])
    assert SupRecall((1,), 5.0, step=SupRankStep(rho=0)).query_losses(scores, levels, 1).item() < 0.6


@pytest.mark.parametrize("make", LOSSES)
def test_gradients(make: Callable[..., RankLoss]) -> None:
    embeddings, labels = some_batch(n_classes=3, per_class=2, dim=2)
    loss = make(include_query=False)
    assert torch.autograd.gradcheck(lambda x: loss(x, labels), embeddings.requires_grad_(), eps=1e-8, atol=1e-5)
    references, reference_labels = some_batch(3, n_classes=3, per_class=2, dim=2)
    assert torch.autograd.gradcheck(
        lambda x, y: loss(x, labels, y, reference_labels),
        (embeddings, references.requires_grad_()),
        eps=1e-8,
        atol=1e-5,
    )


@pytest.mark.parametrize("make", LOSSES)
@pytest.mark.parametrize("include_query", [True, False])
def test_blocks_of_queries_give_the_same(
    monkeypatch: pytest.MonkeyPatch, make: Callable[..., RankLoss], include_query: bool
) -> None:
    embeddings, labels = some_batch()
    loss = make(include_query=include_query)
    whole = loss(embeddings.requires_grad_(), labels)
    (expected,) = torch.autograd.grad(whole, embeddings)
    for n_scores in (1, 4 * len(labels)):
        monkeypatch.setattr(rank_loss, "BLOCK_SCORES", n_scores)
        found = loss(embeddings, labels)
        torch.testing.assert_close(found, whole)
        torch.testing.assert_close(torch.autograd.grad(found, embeddings)[0], expected)


@pytest.mark.parametrize("make", LOSSES)
def test_the_batch_as_its_own_references(make: Callable[..., RankLoss]) -> None:
    embeddings, labels = some_batch()
    torch.testing.assert_close(
        make(include_query=False)(embeddings, labels, embeddings, labels), make()(embeddings, labels)
    )


@pytest.mark.parametrize("make", LOSSES)
def test_queries_without_positives_are_left_out(make: Callable[..., RankLoss]) -> None:
    embeddings, labels = some_batch()
    alone = torch.nn.functional.normalize(torch.ones(1, 6, dtype=torch.float64))
    references = embeddings.clone(), labels.clone()
    queries = torch.cat([alone, embeddings]).requires_grad_()
    loss = make()
    found = loss(queries, torch.cat([torch.tensor([[9, 9, 9]]), labels]), *references)
    found.backward()
    assert queries.grad is not None
    torch.testing.assert_close(found, loss(embeddings, labels, *references))
    assert not queries.grad[0].any()
    assert queries.grad.isfinite().all()
    of_query = loss.query_losses(torch.zeros(2, 3), torch.tensor([[0, 0, -1], [0, 3, -1]]), 3)
    assert of_query.isnan().tolist() == [True, False]


@pytest.mark.parametrize("make", LOSSES)
def test_no_query_with_a_positive(make: Callable[..., RankLoss]) -> None:
    labels = torch.arange(4)[:, None].expand(-1, 2)
    with pytest.raises(InputError, match="none of 4 queries has a positive among 4 items"):
        make(include_query=False)(torch.randn(4, 3), labels)


def test_positives_of_a_coarser_level_are_none_at_the_finest() -> None:
    labels = torch.tensor([[0, 0], [1, 0], [2, 1]])
    embeddings = torch.nn.functional.normalize(torch.randn(3, 4))
    assert SupAP(level=1, include_query=False)(embeddings, labels) >= 0
    with pytest.raises(InputError, match="none of 3 queries"):
        SupAP(include_query=False)(embeddings, labels)


def test_a_coarser_level_is_a_column() -> None:
    embeddings, labels = some_batch()
    for level in (1, 2, 3):
        torch.testing.assert_close(
            SupRecall(level=level)(embeddings, labels), SupRecall()(embeddings, labels[:, 3 - level :])
        )


def test_embeddings_that_are_not_numbers_do_not_go_unnoticed() -> None:
    embeddings, labels = some_batch()
    embeddings[3] = math.nan
    for make in LOSSES:
        assert make()(embeddings, labels).isnan()


def test_float32_under_autocast() -> None:
    embeddings, labels = some_batch(dtype=torch.float32)
    embeddings.requires_grad_()
    (expected,) = torch.autograd.grad(SupHAP()(embeddings, labels), embeddings)
    with torch.autocast("cpu", torch.bfloat16):
        loss = SupHAP()(embeddings, labels)
        of_half = SupHAP()(embeddings.bfloat16(), labels)
    (found,) = torch.autograd.grad(loss, embeddings)
    assert loss.dtype == of_half.dtype == found.dtype == torch.float32
    assert torch.equal(found, expected)


def test_clipped_recall_is_not_negative() -> None:
    # twenty positives around rank 1: each finds a part of itself at k = 1
    scores, levels = torch.zeros(1, 20), torch.ones(1, 20, dtype=torch.int64)
    scores += torch.linspace(0, 1e-5, 20)
    wide = {"ks": (1,), "tau_star": 20.0}
    assert SmoothRecall(**wide).query_losses(scores, levels, 1).item() < 0
    assert SmoothRecall(**wide, clip=True).query_losses(scores, levels, 1).item() == 0


def test_simix_is_the_loss_of_the_longer_batch_and_repeats_with_its_generator() -> None:
    embeddings, labels = some_batch()
    first, second = (SiMix(SupAP(), generator=torch.Generator().manual_seed(3)) for _ in range(2))
    value = first(embeddings, labels)
    assert value == second(embeddings, labels)
    assert value != first(embeddings, labels)
    references = some_batch(1)
    assert first(embeddings, labels, *references).isfinite()
    torch.manual_seed(3)
    value = SiMix(SupAP())(embeddings, labels)
    torch.manual_seed(3)
    assert value == SiMix(SupAP())(embeddings, labels)


def test_mixed_positives_of_queries_with_different_numbers_of_them() -> None:
    scores = torch.tensor([[0.1, 0.5, 0.3, 0.9], [0.1, 0.5, 0.3, 0.9]])
    levels = torch.tensor([[1, 0, 1, 1], [0, 1, -1, 1]])
    more, of_more = MixedPositives(torch.Generator().manual_seed(0))(scores, levels)
    assert of_more[:, 4:].tolist() == [[1, 1, 1], [1, -1, -1]]
    bounds = [(0, 4, 0.1, 0.3), (0, 5, 0.1, 0.9), (0, 6, 0.3, 0.9), (1, 4, 0.5, 0.9)]
    assert all(low < more[query, column] < high for query, column, low, high in bounds)
    torch.testing.assert_close(more[:, :4], scores)
    embeddings, labels = some_batch()
    torch.manual_seed(0)
    value = SupAP(mixup=MixedPositives())(embeddings, labels)
    torch.manual_seed(0)
    assert value == SupAP(mixup=MixedPositives())(embeddings, labels)
    none = MixedPositives()(scores, torch.zeros_like(levels))
    assert none[0].shape == (2, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, labels: SupHAP(-1.0), "`alpha` is -1.0"),
        (lambda x, labels: SupRecall(()), r"`ks` is \[\]"),
        (lambda x, labels: SmoothRecall((0, 1)), r"is \[0, 1\]; expected at least one k, each 1 or more"),
        (lambda x, labels: SupRecall(tau_star=0.0), "`tau_star` is 0.0"),
        (lambda x, labels: SupAP(level=4)(x, labels), "`level` is 4; the labels have levels 1 .* to 3"),
    ],
)
def test_settings_out_of_range(call: Callable[..., Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        call(*some_batch())


@pytest.mark.parametrize("make", [SupHAP, SupAP])
def test_shapes_that_do_not_fit(make: Callable[..., RankLoss]) -> None:
    embeddings, labels = some_batch()
    with pytest.raises(InputError, match="expected \\(B, d\\) and \\(B, L\\)"):
        make()(embeddings, labels[:-1])
    with pytest.raises(InputError, match="not nested"):
        make()(embeddings, torch.tensor([[0, index % 2] for index in range(len(labels))]))
