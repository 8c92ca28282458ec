import math
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hgld.compute import scoring
from hgld.compute.scoring import Distance, Precision, float32_matmul
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation import ranking
from hgld.evaluation.evaluate import evaluate_retrieval
from hgld.evaluation.ranking import ExcludedPairs, KeyFormat, KeyRows, RankingConfig, ScoreRows, Ties
from hgld.evaluation.retrieval_task import LabelJudgements
from hgld.ragged import RaggedIndices
from tests.evaluation.helpers import Given, metric_values, rank

#: Scores that packing could put in a wrong order; all are float32.
HARD = [0, -0.0, 1e-45, -1e-45, 1.1754944e-38, -1.1754944e-38, 1, -1, 1.0000001, 0.99999994, 3e38, -3e38]
HARD = np.array(HARD, np.float32).tolist()
SCORES = st.one_of(st.sampled_from(HARD), st.floats(allow_nan=False, allow_infinity=False, width=32))
TIES = st.sampled_from(["pessimistic", "optimistic"])


def stored(
    rows: KeyRows | ScoreRows, scores: torch.Tensor, levels: Sequence[int], excluded: Sequence[int]
) -> list[list[int]]:
    """The sorted levels of a single query."""
    pairs = ExcludedPairs(np.zeros(0, np.int64), (np.zeros(len(excluded), np.int64), np.array(excluded, np.int64)))
    rows.put(slice(0, len(levels)), scores[None].clone(), torch.tensor([levels], dtype=torch.uint8), pairs)
    ranked: list[list[int]] = rows.ranked(1).tolist()
    return ranked


def order(
    scores: npt.ArrayLike,
    levels: npt.ArrayLike,
    *,
    excluded: Sequence[Sequence[int]] | None = None,
    gallery_mask: Sequence[bool] | None = None,
    part: tuple[int, int] = (0, 1),
    **config: Any,
) -> list[list[int]]:
    """The levels of the items that are ranked for each query, best first.

    Query i is the i-th unit vector, so its inner products with the gallery are row i of the scores; one more
    dimension keeps items from being all zeros.
    """
    table = torch.from_numpy(np.array(scores))
    ranked_levels = []
    for ranked in rank(
        torch.nn.functional.pad(torch.eye(len(table), dtype=table.dtype), (0, 1)),
        torch.nn.functional.pad(table.T, (0, 1), value=1.0),
        Given(levels),
        excluded=None if excluded is None else RaggedIndices.from_lists(excluded),
        gallery_mask=None if gallery_mask is None else np.array(gallery_mask, bool),
        config=RankingConfig(distance="dot", **config),
        part=part,
    ):
        assert len(range(ranked.queries.start, ranked.queries.stop)) == len(ranked.levels) == len(ranked.n_ranked)
        for row, n_ranked in zip(ranked.levels.tolist(), ranked.n_ranked.tolist(), strict=True):
            assert not any(row[n_ranked:]), "excluded items come last with level 0"
            ranked_levels.append(row[:n_ranked])
    return ranked_levels


def sorted_levels(
    scores: Sequence[float], levels: Sequence[int], ties: Ties, excluded: Sequence[int] = ()
) -> list[int]:
    """The best score first, and of equal ones (0.0 is -0.0) the lower level first, or the higher one."""
    sign = 1 if ties == "pessimistic" else -1
    items = [(-scores[i], sign * levels[i]) for i in range(len(scores)) if i not in set(excluded)]
    return [sign * level for _, level in sorted(items)]


def levels_and_scores(most: int, scores: st.SearchStrategy[float], n_items: int) -> st.SearchStrategy[Any]:
    return st.lists(st.tuples(scores, st.integers(0, most)), min_size=1, max_size=n_items)


@pytest.mark.parametrize(
    ("n_levels", "largest", "steps"),
    [
        (1, 1, 2**29),
        (3, 1, 2**28),
        (7, 1, 2**27),
        (15, 1, 2**26),
        (16, 1, 2**57),
        (254, 1, 2**54),
        (3, 1e-20, 2**60),
        (3, 300000.0, 2**60),
        (254, 300000.0, 2**54),
    ],
)
@given(st.data(), TIES, st.sampled_from([0, 2**14]))
def test_packed_keys_sort_like_fixed_point_scores(
    n_levels: int, largest: float, steps: int, data: st.DataObject, ties: Ties, radix_sort_from: int
) -> None:
    """Scores up to the largest and a little above, tiny ones, 0.0 and -0.0; some excluded."""
    cosines = st.floats(-1.125, 1.125, width=32) | st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-9, -1e-9, 1e-40])
    items = data.draw(levels_and_scores(n_levels, cosines, 30))
    excluded = data.draw(st.lists(st.integers(0, len(items) - 1), max_size=4))
    levels = [level for _, level in items]
    scores = (torch.tensor([score for score, _ in items]) * largest).clone()
    rows = KeyRows(1, len(items), KeyFormat.for_scores(n_levels, largest, ties), torch.device("cpu"))
    fixed = [int(score) for score in (scores * (steps / largest)).double().tolist()]
    expected = sorted_levels(fixed, levels, ties, excluded)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "_RADIX_SORT_FROM", radix_sort_from)
        assert stored(rows, scores, levels, excluded) == [expected + [0] * (len(items) - len(expected))]


def test_long_embedding_causes_no_ties_among_the_others() -> None:
    """Without normalising: steps of 2^-28 of the largest score would be too coarse for the first two."""
    scores = np.array([[1e-4, 1.5e-4, 1e6]], np.float32)
    assert order(scores, [[3, 1, 2]]) == [[2, 1, 3]]
    assert order(scores, [[1, 3, 2]]) == [[2, 3, 1]]


@given(levels_and_scores(254, SCORES, 12), TIES, st.data())
def test_float64_scores_of_any_magnitude_are_sorted_exactly(
    items: list[tuple[float, int]], ties: Ties, data: st.DataObject
) -> None:
    scores, levels = [score for score, _ in items], [level for _, level in items]
    excluded = data.draw(st.lists(st.integers(0, len(items) - 1)))
    rows = ScoreRows(1, len(items), torch.device("cpu"), ties)
    ranked = sorted_levels(scores, levels, ties, excluded)
    assert stored(rows, torch.tensor(scores).double(), levels, excluded) == [
        ranked + [0] * (len(items) - len(ranked))
    ]


@given(st.integers(1, 6), st.integers(1, 8), TIES, st.sampled_from(["float32", "float64"]), st.data())
def test_ranking_agrees_with_sorting(
    n_queries: int, n_items: int, ties: Ties, precision: str, data: st.DataObject
) -> None:
    """With few different scores, so with ties, and some items excluded, repeatedly or in several ways."""
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    scores = rng.choice(np.array([-2, -0.5, 0, 0.25, 1], np.float32), size=(n_queries, n_items))
    levels = rng.integers(0, 4, size=(n_queries, n_items))
    gallery_mask = data.draw(st.lists(st.booleans(), min_size=n_items, max_size=n_items).filter(any))
    others = sorted(set(range(n_items)) - {gallery_mask.index(True)})
    excluded = [list(rng.choice(others, size=rng.integers(9))) if others else [] for _ in range(n_queries)]
    ranked_levels = order(
        scores, levels, excluded=excluded, gallery_mask=gallery_mask, precision=precision, ties=ties, block_size=2
    )
    for query in range(n_queries):
        all_excluded = [*excluded[query], *np.flatnonzero(np.logical_not(gallery_mask))]
        assert ranked_levels[query] == sorted_levels(scores[query], levels[query], ties, all_excluded)


@pytest.mark.parametrize("width", [1, 3, 7, 8])
@pytest.mark.parametrize("precision", ["float32", "tf32", "float64"])
def test_ranking_does_not_depend_on_block_sizes(width: int, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    scores = rng.permutation(5 * 8).reshape(5, 8).astype(np.float32)
    levels = rng.integers(0, 4, size=(5, 8))
    whole = order(scores, levels, precision=precision)
    monkeypatch.setattr(scoring, "_WIDTH", {"cpu": width})
    for block_size in (1, 2, 4, 5, 99):
        assert order(scores, levels, precision=precision, block_size=block_size) == whole


@pytest.mark.parametrize("n_parts", [1, 2, 3, 5, 7])
def test_parts_form_the_whole_ranking(n_parts: int) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(11, 20)).astype(np.float32)
    levels = rng.integers(0, 4, size=(11, 20))
    whole = order(scores, levels, block_size=2)
    parts = [order(scores, levels, block_size=2, part=(i, n_parts)) for i in range(n_parts)]
    blocks = [whole[start : start + 2] for start in range(0, 11, 2)]
    for i, part in enumerate(parts):
        assert part == [row for block in blocks[i::n_parts] for row in block]


def test_progress_counts_the_queries_of_the_part() -> None:
    class Counted:
        def __init__(self) -> None:
            self.total, self.done = 0, 0

        def start(self, total: int, done: int = 0) -> None:
            self.total += total

        def advance(self, units: int = 1, **details: float) -> None:
            self.done += units

    embeddings, counted = torch.randn(11, 4), [Counted(), Counted()]
    labels = np.zeros((11, 1), np.int64)
    for i, progress in enumerate(counted):
        judgements = LabelJudgements(labels, labels)
        config = RankingConfig(block_size=2)
        list(rank(embeddings, embeddings, judgements, config=config, part=(i, 2), progress=progress))
    assert [progress.total for progress in counted] == [progress.done for progress in counted] == [6, 5]


def test_embeddings_are_normalised_but_not_modified() -> None:
    """By inner product the long one is first, by cosine the one in the query's direction."""
    query, gallery = torch.tensor([[2.0, 0.0]]), torch.tensor([[9.0, 9.0], [0.1, 0.0]])
    before = query.clone(), gallery.clone()
    judgements = Given([[1, 2]])
    distances: list[tuple[Distance, list[int]]] = [("cosine", [2, 1]), ("dot", [1, 2])]
    for distance, expected in distances:
        (ranked,) = rank(query, gallery, judgements, config=RankingConfig(distance=distance))
        assert ranked.levels.tolist() == [expected]
    assert torch.equal(query, before[0])
    assert torch.equal(gallery, before[1])


@pytest.mark.parametrize("precision", ["float32", "tf32"])
@pytest.mark.parametrize("elsewhere", ["highest", "high", "medium"])
def test_precision_setting_of_torch_is_restored(elsewhere: str, precision: Any) -> None:
    torch.set_float32_matmul_precision(elsewhere)
    try:
        list(rank(torch.ones(1, 2), torch.ones(3, 2), Given([[1, 2, 3]]), config=RankingConfig(precision=precision)))
        assert torch.get_float32_matmul_precision() == elsewhere
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="torch before 2.9 has one setting"
)
def test_threads_do_not_change_the_precision_of_each_other() -> None:
    """The setting of torch is that of the process."""
    matmul, both_started = torch.backends.cuda.matmul, threading.Barrier(2)
    before = matmul.fp32_precision

    def precisions(precision: Precision) -> set[str]:
        both_started.wait()
        found = set()
        for _ in range(50):
            with float32_matmul(precision):
                time.sleep(0.0002)  # lets the other thread run
                found.add(matmul.fp32_precision)
        return found

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(precisions, ["float32", "tf32"])) == [{"ieee"}, {"tf32"}]
    assert matmul.fp32_precision == before


@pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="torch before 2.9 has one setting"
)
def test_precision_set_by_backend_is_kept() -> None:
    """torch's older functions fail once the newer settings differ from them."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        list(rank(torch.ones(1, 2), torch.ones(3, 2), Given([[1, 2, 3]])))
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


# Ties between pessimistic and optimistic


def named(levels: Sequence[int], names: Sequence[str], **weights: Any) -> list[float]:
    ranked = torch.tensor([levels], dtype=torch.uint8)
    values = metric_values(ranked, 3, names, cutoffs=range(1, len(levels) + 1), relevance=weights.get("relevance"))
    return [values[name].item() for name in names]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=12), st.randoms(), st.data())
def test_any_order_of_ties_lies_between_pessimistic_and_optimistic(
    items: list[tuple[int, int]], random: Any, data: st.DataObject
) -> None:
    """For all metrics of levels, NDCG and ASI; for those with relevances where finer levels do not have less."""
    k = data.draw(st.integers(1, len(items)))
    names = ["ASI", "NDCG", f"NDCG@{k}", "H-AP", f"H-R@{k}"]
    names += [
        f"{name}_l{level}"
        for level in (1, 2, 3)
        for name in ("AP", "mAP@R", f"mAP@{k}", f"R@{k}", f"TR@{k}", f"P@{k}")
    ]
    random.shuffle(items)
    some = [level for _, level in sorted(items, key=lambda item: -item[0])]  # stable: ties as they were shuffled
    low = [level for _, level in sorted(items, key=lambda item: (-item[0], item[1]))]
    high = [level for _, level in sorted(items, key=lambda item: (-item[0], -item[1]))]
    own = [0.0, *sorted(data.draw(st.lists(st.floats(0.01, 1), min_size=3, max_size=3)))]
    three = (named(levels, names, relevance=own) for levels in (low, some, high))
    for name, least, value, most in zip(names, *three, strict=True):
        assert math.isnan(least) == math.isnan(value) == math.isnan(most)
        assert math.isnan(value) or least - 1e-12 <= value <= most + 1e-12, name


def test_optimistic_h_ap_can_be_lower_with_equation_20() -> None:
    """Two items of level 3 have a relevance of 1/2 each, the only one of level 2 has 2/3."""
    (low,), (high,) = named([2, 3, 3, 0], ["H-AP"]), named([3, 3, 2, 0], ["H-AP"])
    assert high < low


# Errors


def ranked(queries: Any, gallery: Any, levels: npt.ArrayLike = ((1, 2),), **options: Any) -> None:
    list(rank(torch.as_tensor(queries), torch.as_tensor(gallery), Given(levels), **options))


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("value", "problem"), [(math.nan, "NaN, infinite"), (math.inf, "NaN, infinite"), (-math.inf, "NaN")]
)
def test_embeddings_that_are_not_finite_are_refused(
    value: float, problem: str, dtype: torch.dtype, precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "_WIDTH", {"cpu": 4})
    good, bad = torch.ones(1, 2, dtype=dtype), torch.ones(20, 2, dtype=dtype)
    bad[[3, 17]] = value
    options: dict[str, Any] = {"config": RankingConfig(precision=precision)}
    with pytest.raises(InputError, match=rf"2 of 20 gallery embeddings have {problem}.*: rows 3, 17; embed"):
        ranked(good, bad, np.ones((1, 20)), **options)
    with pytest.raises(InputError, match=rf"2 of 20 query embeddings have {problem}.*: rows 3, 17; embed"):
        ranked(bad, good, np.ones((20, 1)), **options)
    with pytest.raises(InputError, match="2 of 20 query embeddings"):
        list(rank(bad, bad, Given(np.ones((20, 20))), **options))


def test_message_lists_only_the_first_rows() -> None:
    with pytest.raises(InputError, match=r"12 of 12 gallery .*: rows 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …; embed"):
        ranked(torch.ones(1, 2), torch.full((12, 2), torch.nan), np.ones((1, 12)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"excluded": RaggedIndices.from_lists([[0], [1]])},
            "`excluded` has lists for 2 queries, but there are 1 queries",
        ),
        ({"excluded": RaggedIndices.from_lists([[2]])}, "names the gallery position 2 for query 0; expected 0 to 1"),
        ({"excluded": RaggedIndices.from_lists([[-1]])}, "names the gallery position -1 for query 0"),
        (
            {"excluded": RaggedIndices.from_lists([[1, 0, 1]])},
            "no gallery item is left to rank for query 0: all 2 items",
        ),
        (
            {"excluded": RaggedIndices.from_lists([[1]]), "gallery_mask": np.array([False, True])},
            "no gallery item is left to rank",
        ),
        (
            {"gallery_mask": np.array([True])},
            r"`gallery_mask` has the shape \(1,\).*expected a bool for each of 2 gallery items",
        ),
        ({"gallery_mask": np.array([0, 1])}, "`gallery_mask` has .* the type int64; expected a bool for each"),
    ],
)
def test_invalid_exclusions_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ranked(torch.ones(1, 2), torch.ones(2, 2), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_size": 0}, "`block_size` is 0; expected 1 or more"),
        ({"precision": "float16"}, '`precision` is "float16"; choose float32, tf32 or float64'),
        ({"ties": "random"}, '`ties` is "random"; choose pessimistic, optimistic'),
        ({"device": "gpu"}, "`device` is gpu; expected cpu, cuda or cuda:N"),
        ({"device": "meta"}, "`device` is meta; expected cpu, cuda or cuda:N"),
        ({"device": "cuda:99"}, "device is 'cuda:99', but torch sees .* CUDA devices; use cpu, or a machine"),
    ],
)
def test_invalid_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        RankingConfig(**options)


def test_block_size_is_limited_by_memory() -> None:
    assert RankingConfig(block_size=5).queries_per_block(10**9) == 5
    assert RankingConfig().queries_per_block(10) == 512
    assert RankingConfig().queries_per_block(10**12) == 1
    assert 5 * 761_757 * RankingConfig().queries_per_block(761_757, "int32") <= 2**29
    assert 9 * 761_757 * RankingConfig().queries_per_block(761_757, "int64") <= 2**29


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that CUDA knows")
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("ties", ["pessimistic", "optimistic"])
def test_gpu_and_cpu_rank_alike(precision: str, ties: Ties) -> None:
    """Inner products of small integers are exact, so not a single rank may differ."""
    rng = np.random.default_rng(0)
    queries, gallery = (torch.from_numpy(rng.integers(1, 5, size=(n, 8)).astype(np.float16)) for n in (70, 5000))
    fine = rng.integers(50, size=5070)
    labels = np.stack([fine, fine // 5], axis=1)
    judgements = LabelJudgements(labels[:70], labels[70:])
    excluded = RaggedIndices.from_lists([rng.integers(5000, size=3) for _ in range(70)])
    options: dict[str, Any] = {"precision": precision, "ties": ties, "distance": "dot", "block_size": 32}
    by_device = []
    for device in ("cpu", "cuda"):
        config = RankingConfig(device=device, **options)
        blocks = rank(queries, gallery, judgements, excluded=excluded, config=config)
        by_device.append(torch.cat([block.levels.cpu().clone() for block in blocks]))
    assert torch.equal(*by_device)


METRICS = ("AP", "AP_l1", "H-AP", "NDCG", "NDCG@3", "mAP@3", "mAP@R", "R@1", "R@3", "P@3")
#: By level, the labels of an item that has this level for a query with the labels [0, 0].
LABELS = np.array([[9, 9], [5, 0], [0, 0]])


def by_equations(scores: list[float], levels: list[int]) -> dict[str, float]:
    """Each metric from the ranks of Eq. 3, by loops over pairs of items."""
    items = range(len(levels))
    rank = [1 + sum(scores[j] >= scores[k] for j in items if j != k) for k in items]
    counts = [levels.count(level) for level in range(3)]

    def ap(least: int, last: float = math.inf, divisor: int | None = None) -> float:
        positive = [k for k in items if levels[k] >= least]
        shares = [sum(scores[j] >= scores[k] for j in positive) / rank[k] for k in positive if rank[k] <= last]
        return sum(shares) / (divisor or len(positive))

    def h_ap() -> float:  # Eqs. 18 to 20
        relevance = [0.0] + [(level / 2) / counts[level] if counts[level] else 0.0 for level in (1, 2)]
        rel = [relevance[level] for level in levels]
        total = 0.0
        for k in items:
            h_rank = rel[k] + sum(min(rel[k], rel[j]) for j in items if j != k and scores[j] >= scores[k])
            total += h_rank / rank[k]
        return total / sum(rel)

    def ndcg(last: float = math.inf) -> float:
        gained = sum((2.0 ** levels[k] - 1) / math.log2(1 + rank[k]) for k in items if rank[k] <= last)
        best = sorted(levels, reverse=True)
        ideal = [(2.0**level - 1) / math.log2(2 + place) for place, level in enumerate(best) if place < last]
        return gained / sum(ideal)

    n_positive = counts[2]
    hits = {k: sum(rank[j] <= k for j in items if levels[j] == 2) for k in (1, 3)}
    return {
        "AP": ap(2), "AP_l1": ap(1), "H-AP": h_ap(), "NDCG": ndcg(), "NDCG@3": ndcg(3),
        "mAP@3": ap(2, 3, min(3, n_positive)), "mAP@R": ap(2, n_positive),
        "R@1": float(hits[1] > 0), "R@3": float(hits[3] > 0), "P@3": hits[3] / 3,
    }  # fmt: skip


def evaluated(scores: list[float], levels: list[int], **options: Any) -> dict[str, float]:
    gallery = np.array(scores)[:, None]
    settings = {"metrics": METRICS, "distance": "dot", **options}
    return evaluate_retrieval(np.ones((1, 1)), LABELS[2:], gallery, LABELS[levels], **settings).means


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 2)), min_size=3, max_size=15),
    st.sampled_from(["float32", "float64"]),
)
def test_metrics_are_those_of_the_equations(items: list[tuple[int, int]], precision: Precision) -> None:
    scores, levels = [float(score) for score, _ in items], [*[level for _, level in items[1:]], 2]
    found = evaluated(scores, levels, ties="heaviside", precision=precision)
    expected = by_equations(scores, levels)
    assert found == pytest.approx(expected, abs=1e-12)
    apart = [score + place / 64 for place, score in enumerate(scores)]
    assert evaluated(apart, levels, ties="heaviside") == pytest.approx(evaluated(apart, levels), abs=1e-12)


def test_excluded_items_do_not_count_in_ties() -> None:
    alone = evaluate_retrieval(torch.ones(4, 2), np.array([0, 0, 1, 1]), metrics=["AP"], ties="heaviside")
    assert alone.means["AP"] == pytest.approx(1 / 3)
