"""Rankings, and sums of steps over them, by sorting, by blocks of pairs and compiled, against plain loops."""

from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hgld.compute.compiled import SWITCH
from hgld.errors import ConfigurationError
from hgld.losses.kernels import pair_sums, rank_loss
from hgld.losses.kernels import ranking as module
from hgld.losses.kernels.ranking import Ranking, heaviside_sums
from hgld.losses.kernels.steps import Heaviside, LeakyStep, Sigmoid, Step, SupRankStep, suprank_step
from tests.losses import oracles

STEPS: list[Step] = [Heaviside(), Sigmoid(), SupRankStep(), suprank_step("cfg144"), LeakyStep()]


def random_queries(
    seed: int, n_query: int, n_items: int, n_levels: int, dtype: torch.dtype = torch.float64, spread: float = 0.1
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return scores with ties, levels from -1 on, and weights of which a third is zero."""
    generator = torch.Generator().manual_seed(seed)
    scores = spread * torch.randn(n_query, n_items, dtype=dtype, generator=generator)
    tied = torch.randint(0, n_items, (n_query, n_items // 2), generator=generator)
    scores[:, : n_items // 2] = scores.gather(1, tied)
    levels = torch.randint(-1, n_levels + 1, (n_query, n_items), generator=generator)
    weights = torch.rand(1 if seed % 2 else n_query, n_levels + 1, n_levels + 1, dtype=dtype, generator=generator)
    weights[weights < 1 / 3] = 0
    return scores, levels, weights


def sums_of(scores: torch.Tensor, levels: torch.Tensor, weights: torch.Tensor, step: Step) -> torch.Tensor:
    return rank_loss.step_sums(Ranking(scores, levels, weights.shape[1] - 1), (weights, step))


def loop_sums(scores: torch.Tensor, levels: torch.Tensor, weights: torch.Tensor, step: Step) -> torch.Tensor:
    queries = zip(scores.double(), levels.tolist(), weights.expand(len(scores), -1, -1), strict=True)
    sums = [[oracles.step_sum(s, lv, k, w, step) for k in range(len(s))] for s, lv, w in queries]
    return torch.tensor(sums, dtype=torch.float64)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    n_query=st.integers(1, 4),
    n_items=st.integers(1, 9),
    n_levels=st.integers(1, 3),
    step=st.sampled_from(STEPS),
)
def test_sums_agree_with_loops(seed: int, n_query: int, n_items: int, n_levels: int, step: Step) -> None:
    scores, levels, weights = random_queries(seed, n_query, n_items, n_levels)
    sums = sums_of(scores, levels, weights, step)
    torch.testing.assert_close(sums, loop_sums(scores, levels, weights, step), rtol=1e-12, atol=1e-12)


def test_ties_count_but_not_the_item_itself() -> None:
    scores, levels = torch.tensor([[0.5, 0.5, 0.5, 0.4]]), torch.tensor([[1, 1, 0, -1]])
    sums = sums_of(scores, levels, torch.ones(1, 2, 2), Heaviside())
    assert sums.tolist() == [[2.0, 2.0, 0.0, 0.0]]


@pytest.mark.parametrize("step", STEPS, ids=str)
@pytest.mark.parametrize("block_pairs", [1, 7, 40, 10**6])
def test_block_size_does_not_change_the_sums(monkeypatch: pytest.MonkeyPatch, step: Step, block_pairs: int) -> None:
    monkeypatch.setenv(SWITCH, "0")
    scores, levels, weights = random_queries(4, 6, 20, 3)
    scores.requires_grad_()
    whole = sums_of(scores, levels, weights, step)
    upstream = torch.randn_like(whole)
    monkeypatch.setitem(pair_sums.BLOCK_PAIRS, "cpu", block_pairs)
    sums = sums_of(scores, levels, weights, step)
    torch.testing.assert_close(sums, whole)
    if whole.requires_grad:
        monkeypatch.setitem(pair_sums.BLOCK_PAIRS, "cpu", 2**18)
        (expected,) = torch.autograd.grad(whole, scores, upstream)
        monkeypatch.setitem(pair_sums.BLOCK_PAIRS, "cpu", block_pairs)
        torch.testing.assert_close(torch.autograd.grad(sums, scores, upstream)[0], expected)


@pytest.mark.parametrize("step", STEPS[1:], ids=str)
@pytest.mark.parametrize("seed", [0, 1])
def test_gradients_agree_with_finite_differences(step: Step, seed: int) -> None:
    _, levels, weights = random_queries(seed, 3, 8, 3)
    # no difference is near a jump or a bend of a step
    scores = (torch.stack([torch.randperm(8) for _ in range(3)]) * 0.031 + 0.0007).double().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda scores: sums_of(scores, levels, weights, step), scores, eps=1e-7, atol=1e-5
    )


def test_only_pairs_of_positive_items_are_evaluated() -> None:
    evaluated = []

    class CountingStep(SupRankStep):
        def value(self, t: torch.Tensor) -> torch.Tensor:
            evaluated.append(t.numel())
            return super().value(t)

        def split(self) -> tuple[float, Step | None]:
            return 0.0, self

    scores = torch.randn(4, 60)
    levels = torch.tensor([0] * 30 + [1] * 20 + [2] * 10).repeat(4, 1)
    sums_of(scores, levels, torch.ones(1, 3, 3).tril(-1), CountingStep())
    assert sum(evaluated) == 4 * 30 * 60


def fail(*_: Any) -> None:
    raise AssertionError("the other way was taken")


@pytest.mark.parametrize("step", [Sigmoid(), SupRankStep(), suprank_step("cfg144")], ids=str)
def test_many_pairs_are_summed_by_interpolation(monkeypatch: pytest.MonkeyPatch, step: Step) -> None:
    scores, levels, _ = random_queries(2, 3, 100, 3)
    weights = torch.ones(1, 4, 4, dtype=torch.float64).tril(-1)
    by_pairs = sums_of(scores, levels, weights, step)
    monkeypatch.setattr(rank_loss, "pair_sums", fail)
    with pytest.raises(AssertionError, match="the other way was taken"):
        sums_of(scores, levels, weights, step)
    monkeypatch.setattr(rank_loss, "PAIRS_PER_ITEM", 1)
    monkeypatch.setattr(rank_loss, "PAIRS_PER_POINT", 1)
    torch.testing.assert_close(sums_of(scores, levels, weights, step), by_pairs, rtol=1e-5, atol=1e-5)
    with pytest.raises(AssertionError, match="the other way was taken"):
        sums_of(scores, levels.clamp(max=0), weights, step)  # no pairs at all


@pytest.mark.parametrize("tau", [1e-4, 1e-5])
def test_pairs_are_summed_where_a_grid_would_have_many_points(monkeypatch: pytest.MonkeyPatch, tau: float) -> None:
    monkeypatch.setattr(rank_loss, "interpolated_sums", fail)
    scores = torch.linspace(-1, 1, 1000).view(1, -1)[:, torch.randperm(1000, generator=torch.manual_seed(0))]
    levels = (torch.arange(1000) % 2).view(1, -1)
    sums = sums_of(scores, levels, torch.ones(1, 2, 2).tril(-1), Sigmoid(tau))
    above = (scores[0, :, None] < scores[0]) & (levels == 0)
    torch.testing.assert_close(sums[0], above.sum(1).float() * levels[0])


@pytest.mark.parametrize("way", ["compiled pairs", "pairs", "interpolation"])
def test_second_derivatives_are_an_error(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setenv(SWITCH, "0" if way == "pairs" else "1")
    if way == "interpolation":
        monkeypatch.setattr(rank_loss, "PAIRS_PER_ITEM", 0)
        monkeypatch.setattr(rank_loss, "PAIRS_PER_POINT", 0)
        monkeypatch.setattr(rank_loss, "pair_sums", fail)
    scores, levels, weights = random_queries(0, 3, 20, 3)
    sums = sums_of(scores.requires_grad_(), levels, weights, Sigmoid())
    with pytest.raises(ConfigurationError, match="no second derivatives"):
        torch.autograd.grad(sums.sum(), scores, create_graph=True)


@given(
    seed=st.integers(0, 10**6),
    n_query=st.integers(0, 4),
    n_items=st.integers(1, 30),
    n_levels=st.integers(1, 4),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
@example(seed=0, n_query=1, n_items=1, n_levels=1, dtype=torch.float32)
def test_compiled_counts_are_those_of_torch(
    seed: int, n_query: int, n_items: int, n_levels: int, dtype: torch.dtype
) -> None:
    scores, levels, weights = random_queries(seed, max(n_query, 1), n_items, n_levels, dtype)
    scores, levels = scores[:n_query], levels[:n_query]
    ranking = Ranking(scores, levels, n_levels)
    assert torch.equal(ranking.ascending, scores.sort(1).values)
    assert torch.equal(ranking.order.sort(1).values, torch.arange(n_items).expand(n_query, -1))
    assert torch.equal(ranking.counts, torch.stack([(levels == level).sum(1) for level in range(n_levels + 1)], 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "is_compiled", lambda device: False)
        expected = heaviside_sums(ranking, weights)
        counts = heaviside_sums(ranking, weights.sign())
    sums = heaviside_sums(ranking, weights)
    assert sums.dtype == expected.dtype
    torch.testing.assert_close(sums, expected)
    assert torch.equal(heaviside_sums(ranking, weights.sign()), counts)  # whole numbers are exact
