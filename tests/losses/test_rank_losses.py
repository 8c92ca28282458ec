"""The eight rank losses against plain loops, the metrics that they bound, and their common behaviour."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.relevance import hierarchical_relevance
from hgld.losses import (
    Heaviside,
    RankLoss,
    SmoothAP,
    SmoothHAP,
    SmoothNDCG,
    SmoothRecall,
    SupAP,
    SupHAP,
    SupNDCG,
    SupRankStep,
    SupRecall,
    suprank_step,
)
from hgld.losses.kernels import rank_loss
from hgld.losses.kernels.rank_loss import rank
from hgld.losses.kernels.ranking import Ranking
from tests.losses import oracles
from tests.losses.batches import hierarchical_batch, unit_vectors

Make = Callable[..., RankLoss]
LOSSES: list[Make] = [SupHAP, SmoothHAP, SupNDCG, SmoothNDCG, SupAP, SmoothAP, SupRecall, SmoothRecall]


@st.composite
def rankings(draw: st.DrawFn) -> tuple[list[float], list[int]]:
    """Scores, with ties or close to each other or not, and levels up to 3, at least one of them 3."""
    n = draw(st.integers(1, 8))
    step, most = draw(st.sampled_from([(0.01, 20), (0.001, 60), (0.1, 10)]))
    scores = [step * value for value in draw(st.lists(st.integers(-most, most), min_size=n, max_size=n))]
    levels = draw(st.lists(st.integers(-1, 3), min_size=n - 1, max_size=n - 1))
    return scores, [*levels, 3]


@settings(max_examples=40)
@given(rankings())
def test_losses_agree_with_loops_and_bound_the_metrics(ranking: tuple[list[float], list[int]]) -> None:
    scores, levels = ranking
    tensors = torch.tensor([scores], dtype=torch.float64), torch.tensor([levels])
    counts = torch.tensor([[levels.count(level) for level in range(4)]], dtype=torch.float64)
    relevance = hierarchical_relevance(counts)[0].tolist()
    binary = [-1 if level < 0 else int(level == 3) for level in levels]
    h = oracles.h_minus
    cases: list[tuple[RankLoss, float, float]] = [
        (SupHAP(), oracles.h_ap(scores, levels, relevance, h), oracles.h_ap(scores, levels, relevance)),
        (SupAP(), oracles.h_ap(scores, binary, [0, 1], h), oracles.average_precision(scores, levels, 3)),
        (SupNDCG(), oracles.ndcg(scores, levels, h), oracles.ndcg(scores, levels)),
    ]
    for loss, surrogate, metric in cases:
        value = loss.query_losses(*tensors, 3).item()
        assert value == pytest.approx(1 - surrogate, abs=1e-9)
        assert value >= 1 - metric - 1e-12
    recalls = [oracles.recall(scores, binary, k, 1.0, h) for k in (1, 4)]
    assert SupRecall((1, 4)).query_losses(*tensors, 3).item() == pytest.approx(1 - sum(recalls) / 2, abs=1e-9)


@settings(max_examples=40)
@given(rankings(), st.sampled_from([SupRankStep(), suprank_step("cfg144")]))
def test_surrogate_of_the_rank_bounds_the_rank(ranking: tuple[list[float], list[int]], step: SupRankStep) -> None:
    scores, levels = torch.tensor([ranking[0]], dtype=torch.float64), torch.tensor([ranking[1]])
    items = Ranking(scores, levels, 3)
    true = rank(items, plus=Heaviside(), minus=Heaviside())
    expected = [oracles.rank(*ranking, k) if level > 0 else 1.0 for k, level in enumerate(ranking[1])]
    assert true[0].tolist() == expected
    assert (rank(items, plus=Heaviside(), minus=step) >= true - 1e-12).all()


def test_sup_recall_is_not_a_bound() -> None:
    # the only positive is second: recall at 1 is 0, but the sigmoid still counts a part of it
    scores, levels = torch.tensor([[0.5, 0.4]]), torch.tensor([[0, 1]])
    assert SupRecall((1,), 5.0, step=SupRankStep(rho=0)).query_losses(scores, levels, 1).item() < 0.6


@pytest.mark.parametrize("make", LOSSES)
def test_gradients_agree_with_finite_differences(make: Make) -> None:
    embeddings, labels = hierarchical_batch(n_classes=3, per_class=2, dim=2)
    loss = make(include_query=False)
    assert torch.autograd.gradcheck(lambda x: loss(x, labels), embeddings.requires_grad_(), eps=1e-8, atol=1e-5)
    references, reference_labels = hierarchical_batch(3, n_classes=3, per_class=2, dim=2)
    assert torch.autograd.gradcheck(
        lambda x, y: loss(x, labels, y, reference_labels),
        (embeddings, references.requires_grad_()),
        eps=1e-8,
        atol=1e-5,
    )


@pytest.mark.parametrize("make", LOSSES)
@pytest.mark.parametrize("include_query", [True, False])
def test_block_size_does_not_change_the_loss(
    monkeypatch: pytest.MonkeyPatch, make: Make, include_query: bool
) -> None:
    embeddings, labels = hierarchical_batch()
    loss = make(include_query=include_query)
    whole = loss(embeddings.requires_grad_(), labels)
    (expected,) = torch.autograd.grad(whole, embeddings)
    for n_scores in (1, 4 * len(labels)):
        monkeypatch.setattr(rank_loss, "BLOCK_SCORES", n_scores)
        value = loss(embeddings, labels)
        torch.testing.assert_close(value, whole)
        torch.testing.assert_close(torch.autograd.grad(value, embeddings)[0], expected)


@pytest.mark.parametrize("make", LOSSES)
def test_batch_as_its_own_references_includes_the_query(make: Make) -> None:
    embeddings, labels = hierarchical_batch()
    torch.testing.assert_close(
        make(include_query=False)(embeddings, labels, embeddings, labels), make()(embeddings, labels)
    )


@pytest.mark.parametrize("make", LOSSES)
def test_queries_without_positives_are_excluded(make: Make) -> None:
    embeddings, labels = hierarchical_batch()
    lonely = torch.nn.functional.normalize(torch.ones(1, 6, dtype=torch.float64))
    references = embeddings.clone(), labels.clone()
    queries = torch.cat([lonely, embeddings]).requires_grad_()
    loss = make()
    value = loss(queries, torch.cat([torch.tensor([[9, 9, 9]]), labels]), *references)
    value.backward()
    assert queries.grad is not None
    torch.testing.assert_close(value, loss(embeddings, labels, *references))
    assert not queries.grad[0].any()
    assert queries.grad.isfinite().all()
    query_losses = loss.query_losses(torch.zeros(2, 3), torch.tensor([[0, 0, -1], [0, 3, -1]]), 3)
    assert query_losses.isnan().tolist() == [True, False]


@pytest.mark.parametrize("make", LOSSES)
def test_no_query_with_a_positive_is_an_error(make: Make) -> None:
    labels = torch.arange(4)[:, None].expand(-1, 2)
    with pytest.raises(InputError, match="none of 4 queries has a positive among 4 items"):
        make(include_query=False)(unit_vectors(4), labels)


def test_positives_of_a_coarser_level_are_negatives_at_the_finest() -> None:
    labels = torch.tensor([[0, 0], [1, 0], [2, 1]])
    embeddings = torch.nn.functional.normalize(torch.randn(3, 4))
    assert SupAP(level=1, include_query=False)(embeddings, labels) >= 0
    with pytest.raises(InputError, match="none of 3 queries"):
        SupAP(include_query=False)(embeddings, labels)


def test_a_coarser_level_is_the_loss_of_coarser_columns() -> None:
    embeddings, labels = hierarchical_batch()
    for level in (1, 2, 3):
        torch.testing.assert_close(
            SupRecall(level=level)(embeddings, labels), SupRecall()(embeddings, labels[:, 3 - level :])
        )


def test_autocast_does_not_change_the_loss() -> None:
    embeddings, labels = hierarchical_batch(dtype=torch.float32)
    embeddings.requires_grad_()
    (expected,) = torch.autograd.grad(SupHAP()(embeddings, labels), embeddings)
    with torch.autocast("cpu", torch.bfloat16):
        loss = SupHAP()(embeddings, labels)
        half_loss = SupHAP()(embeddings.bfloat16(), labels)
    (gradient,) = torch.autograd.grad(loss, embeddings)
    assert loss.dtype == half_loss.dtype == gradient.dtype == torch.float32
    assert torch.equal(gradient, expected)


def test_clipped_recall_is_not_negative() -> None:
    # twenty positives around rank 1: each counts a part of itself at k = 1
    scores, levels = torch.zeros(1, 20), torch.ones(1, 20, dtype=torch.int64)
    scores += torch.linspace(0, 1e-5, 20)
    assert SmoothRecall((1,), 20.0).query_losses(scores, levels, 1).item() < 0
    assert SmoothRecall((1,), 20.0, clip=True).query_losses(scores, levels, 1).item() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_as_many_levels_as_metrics_take_are_exact(dtype: torch.dtype) -> None:
    scores, levels = [0.9, 0.42, 0.5, 0.3, 0.46, 0.44], [254, 1, 200, 127, 128, 0]
    relevance = hierarchical_relevance(torch.tensor([[levels.count(level) for level in range(255)]]))[0].tolist()
    expected = {
        SupHAP(): oracles.h_ap(scores, levels, relevance, oracles.h_minus),
        SupNDCG(): oracles.ndcg(scores, levels, oracles.h_minus),
    }
    for loss, surrogate in expected.items():
        value = loss.query_losses(torch.tensor([scores], dtype=dtype), torch.tensor([levels]), 254)
        assert value.item() == pytest.approx(1 - surrogate, abs=1e-5)
        embeddings, labels = unit_vectors(4).to(dtype).requires_grad_(), torch.zeros(4, 254, dtype=torch.int64)
        loss(embeddings, labels).backward()
        assert embeddings.grad is not None
        assert embeddings.grad.isfinite().all()
        with pytest.raises(InputError, match="the labels have 255 levels; expected at most 254"):
            loss(embeddings, torch.zeros(4, 255, dtype=torch.int64))


@pytest.mark.parametrize("make", [SupHAP, SupAP])
def test_labels_that_do_not_fit_are_errors(make: Make) -> None:
    embeddings, labels = hierarchical_batch()
    with pytest.raises(InputError, match="expected \\(B, d\\) and \\(B, L\\)"):
        make()(embeddings, labels[:-1])
    with pytest.raises(InputError, match="not nested"):
        make()(embeddings, torch.tensor([[0, index % 2] for index in range(len(labels))]))
    with pytest.raises(InputError, match="`reference_labels` go together; give both or neither"):
        make()(embeddings, labels, embeddings)
    with pytest.raises(InputError, match=r"expected \(N, 6\) and \(N, 3\)"):
        make()(embeddings, labels, embeddings[:, :5], labels)


@pytest.mark.parametrize("clip", [False, True])
def test_the_query_is_ranked_ahead_of_the_others_where_the_published_code_has_it(clip: bool) -> None:
    """In the code of Patel et al. a query takes part in the ranks of its positives, unlike in their Eq. 6."""
    x, labels = hierarchical_batch(n_classes=4, per_class=4)
    scores, ks, total = x @ x.T, (1, 2, 4), 0.0
    for q in range(16):
        positives = [p for p in range(16) if labels[p, 0] == labels[q, 0] and p != q]
        ranks = [
            1 + sum(oracles.sigmoid(float(scores[q, z] - scores[q, p])) for z in range(16) if z != p)
            for p in positives
        ]
        hits = [sum(oracles.sigmoid(k - rank, 1.0) for rank in ranks) for k in ks]
        hits = [min(hit, k) if clip else hit for hit, k in zip(hits, ks, strict=True)]
        total += 1 - sum(hit / min(k, 3) for hit, k in zip(hits, ks, strict=True)) / 3
    loss = SmoothRecall(ks, clip=clip, include_query=False, rank_query=True)
    assert loss(x, labels).item() == pytest.approx(total / 16, abs=1e-9)
    assert loss(x, labels) > SmoothRecall(ks, clip=clip, include_query=False)(x, labels)
    references = hierarchical_batch(1)
    without = SmoothRecall(ks, clip=clip, include_query=False)
    assert loss(x, labels, *references) == without(x, labels, *references)
    with pytest.raises(ConfigurationError, match="`rank_query` requires `include_query` false"):
        SmoothRecall(rank_query=True)
