"""Rank losses against loops, with relevances of levels and of pairs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.relevance import hierarchical_relevance
from hgld.evaluation.retrieval_task import LabelSetJudgements
from hgld.hierarchy import LabelSets
from hgld.losses import (
    LOSSES,
    CrossBatchMemory,
    Heaviside,
    LabelSpace,
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
    happier,
    suprank_step,
)
from hgld.losses.base import pair_levels, summed_levels
from hgld.losses.kernels import rank_loss
from hgld.losses.kernels.rank_loss import rank
from hgld.losses.kernels.ranking import Ranking
from hgld.losses.registry import build_loss, loss_settings
from tests.losses import oracles
from tests.losses.batches import gradient, hierarchical_batch, unit_vectors
from tests.losses.test_label_sets import lists, padded, random_images

Make = Callable[..., RankLoss]
RANK_LOSSES: list[Make] = [SupHAP, SmoothHAP, SupNDCG, SmoothNDCG, SupAP, SmoothAP, SupRecall, SmoothRecall]


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
    scores, levels = torch.tensor(ranking[0], dtype=torch.float64), ranking[1]
    tensors = scores[None], torch.tensor([levels])
    counts = torch.tensor([[levels.count(level) for level in range(4)]], dtype=torch.float64)
    relevance = hierarchical_relevance(counts)[0].tolist()
    binary = [-1 if level < 0 else int(level == 3) for level in levels]
    h = oracles.h_minus
    cases: list[tuple[RankLoss, torch.Tensor, torch.Tensor | float]] = [
        (SupHAP(), oracles.h_ap(scores, levels, relevance, h), oracles.h_ap(scores, levels, relevance)),
        (SupAP(), oracles.h_ap(scores, binary, [0, 1], h), oracles.average_precision(scores, levels, 3)),
        (SupNDCG(), oracles.ndcg(scores, levels, h), oracles.ndcg(scores, levels)),
    ]
    for loss, surrogate, metric in cases:
        value = loss.query_losses(*tensors, 3).item()
        assert value == pytest.approx(1 - float(surrogate), abs=1e-9)
        assert value >= 1 - float(metric) - 1e-12
    recalls = [oracles.recall(scores, binary, k, 1.0, h) for k in (1, 4)]
    assert SupRecall((1, 4)).query_losses(*tensors, 3).item() == pytest.approx(1 - float(sum(recalls)) / 2, abs=1e-9)


@settings(max_examples=40)
@given(rankings(), st.sampled_from([SupRankStep(), suprank_step("cfg144")]))
def test_surrogate_of_the_rank_bounds_the_rank(ranking: tuple[list[float], list[int]], step: SupRankStep) -> None:
    scores, levels = torch.tensor([ranking[0]], dtype=torch.float64), torch.tensor([ranking[1]])
    items = Ranking(scores, levels, 3)
    true = rank(items, plus=Heaviside(), minus=Heaviside())
    expected = [
        float(oracles.rank(scores[0], ranking[1], k)) if level > 0 else 1 for k, level in enumerate(ranking[1])
    ]
    assert true[0].tolist() == expected
    assert (rank(items, plus=Heaviside(), minus=step) >= true - 1e-12).all()


def test_sup_recall_is_not_a_bound() -> None:
    # the only positive is second: recall at 1 is 0, but the sigmoid still counts a part of it
    scores, levels = torch.tensor([[0.5, 0.4]]), torch.tensor([[0, 1]])
    assert SupRecall((1,), 5.0, step=SupRankStep(rho=0)).query_losses(scores, levels, 1).item() < 0.6


@pytest.mark.parametrize("make", RANK_LOSSES)
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


@pytest.mark.parametrize("make", RANK_LOSSES)
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


@pytest.mark.parametrize("make", RANK_LOSSES)
def test_batch_as_its_own_references_includes_the_query(make: Make) -> None:
    embeddings, labels = hierarchical_batch()
    torch.testing.assert_close(
        make(include_query=False)(embeddings, labels, embeddings, labels), make()(embeddings, labels)
    )


@pytest.mark.parametrize("make", RANK_LOSSES)
def test_queries_without_positives_are_excluded(make: Make) -> None:
    embeddings, labels = hierarchical_batch()
    lonely = torch.nn.functional.normalize(torch.ones(1, 6, dtype=torch.float64))
    references = embeddings.clone(), labels.clone()
    queries = torch.cat([lonely, embeddings]).requires_grad_()
    loss = make()
    value = loss(queries, torch.cat([torch.tensor([[9, 9, 9]]), labels]), *references)
    torch.testing.assert_close(value, loss(embeddings, labels, *references))
    assert not gradient(value, queries)[0].any()
    assert gradient(value, queries).isfinite().all()
    query_losses = loss.query_losses(torch.zeros(2, 3), torch.tensor([[0, 0, -1], [0, 3, -1]]), 3)
    assert query_losses.isnan().tolist() == [True, False]


@pytest.mark.parametrize("make", RANK_LOSSES)
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
    scores = torch.tensor([0.9, 0.42, 0.5, 0.3, 0.46, 0.44], dtype=torch.float64)
    levels = [254, 1, 200, 127, 128, 0]
    relevance = hierarchical_relevance(torch.tensor([[levels.count(level) for level in range(255)]]))[0].tolist()
    expected = {
        SupHAP(): oracles.h_ap(scores, levels, relevance, oracles.h_minus),
        SupNDCG(): oracles.ndcg(scores, levels, oracles.h_minus),
    }
    for loss, surrogate in expected.items():
        value = loss.query_losses(scores[None].to(dtype), torch.tensor([levels]), 254)
        assert value.item() == pytest.approx(1 - surrogate.item(), abs=1e-5)
        embeddings, labels = unit_vectors(4).to(dtype).requires_grad_(), torch.zeros(4, 254, dtype=torch.int64)
        assert gradient(loss(embeddings, labels), embeddings).isfinite().all()
        with pytest.raises(InputError, match="the labels have 255 levels; expected at most 254"):
            loss(embeddings, torch.zeros(4, 255, dtype=torch.int64))


@pytest.mark.parametrize("make", [SupHAP, SupAP])
def test_labels_that_do_not_fit_are_errors(make: Make) -> None:
    embeddings, labels = hierarchical_batch()
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
        others = scores[q][:, None] - scores[q, positives]
        ranks = 0.5 + oracles.sigmoid(others).sum(0)  # the item itself counts 1/2
        hits = [oracles.sigmoid(k - ranks, 1.0).sum().item() for k in ks]
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


WEIGHTS = (0.2, 0.3, 0.5)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 99), weights=st.one_of(st.none(), st.tuples(*[st.floats(0.1, 3)] * 3)), include=st.booleans()
)
def test_smooth_h_ap_is_the_weighted_sum_of_the_smooth_ap_of_all_levels(
    seed: int, weights: tuple[float, ...] | None, include: bool
) -> None:
    """Property 1 also holds for the surrogates, as one step compares all levels."""
    x, labels = hierarchical_batch(seed)
    loss = SmoothHAP(relevance="weighted_ap", level_weights=weights, include_query=include)
    shares = weights or (1, 1, 1)
    expected = sum(
        share / sum(shares) * SmoothAP(level=level, include_query=include)(x, labels)
        for level, share in enumerate(shares, start=1)
    )
    torch.testing.assert_close(loss(x, labels), torch.as_tensor(expected), rtol=0, atol=1e-9)


def test_sup_h_ap_with_exact_ranks_is_the_weighted_sum_of_the_ap_of_all_levels() -> None:
    x, labels = hierarchical_batch()
    value = SupHAP(relevance="weighted_ap", level_weights=WEIGHTS, step=Heaviside())(x, labels)
    terms = [SupAP(level=level, step=Heaviside())(x, labels) for level in (1, 2, 3)]
    expected = sum(weight * term for weight, term in zip(WEIGHTS, terms, strict=True))
    torch.testing.assert_close(value, torch.as_tensor(expected), rtol=0, atol=1e-12)
    assert SupHAP(relevance="weighted_ap", level_weights=WEIGHTS)(x, labels) >= value  # an upper bound


@pytest.mark.parametrize("name", ["sup_hap", "smooth_hap", "happier", "happier_f"])
def test_settings_choose_the_relevance(name: str) -> None:
    settings_type = loss_settings(name)
    x, labels = hierarchical_batch(dtype=torch.float32)
    space = LabelSpace.from_labels(6, labels.numpy())

    def value(**options: Any) -> torch.Tensor:
        torch.manual_seed(0)
        result: torch.Tensor = build_loss(settings_type.model_validate({"name": name, **options}), space)(x, labels)
        return result

    assert value() == value(relevance="hierarchical") != value(relevance="weighted_ap")
    assert value(relevance="weighted_ap") == value(relevance="weighted_ap", level_weights=[1 / 3] * 3)
    assert value(relevance="weighted_ap") == value(relevance="weighted_ap", alpha=2.0)
    assert value(relevance="weighted_ap") != value(relevance="weighted_ap", level_weights=[0.2, 0.3, 0.5])


def slow_sup_h_ap(scores: torch.Tensor, relevance: list[float]) -> torch.Tensor:
    """Return the surrogate of 1 - H-AP of one query, with sets of items compared by their relevance."""
    distinct = sorted({0.0, *relevance})
    levels = [distinct.index(each) for each in relevance]
    return 1 - oracles.h_ap(scores, levels, distinct, oracles.h_minus)


def algorithm1(query: list[list[int]], item: list[list[int]]) -> float:
    """Return rel(q, k) of the thesis, with nested labels: L - LCA is the number of equal columns."""
    best = [max(sum(a == b for a, b in zip(own, other, strict=True)) for other in item) for own in query]
    return sum(best) / (len(query) * len(query[0]))


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


@pytest.mark.parametrize("loss", [SupHAP, SmoothHAP])
def test_relevance_is_linear_in_the_level_by_default(loss: type[SupHAP]) -> None:
    embeddings = torch.nn.functional.normalize(torch.randn(12, 8, generator=torch.Generator().manual_seed(0)))
    labels = torch.stack([torch.arange(12) // 2, torch.arange(12) // 4, torch.arange(12) // 8], dim=1)
    assert loss()(embeddings, labels) == loss(alpha=1.0)(embeddings, labels)
    assert loss()(embeddings, labels) != loss(alpha=2.0)(embeddings, labels)
