"""The nearest items, beside a full sort."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld.errors import ConfigurationError, InputError
from hgld.evaluation import ranking
from hgld.evaluation.ranking import Precision, RankingConfig, rank
from hgld.evaluation.relevance_judgements import LabelJudgements
from hgld.inspection.search import nearest
from hgld.ragged import RaggedIndices


def slow(
    scores: np.ndarray, k: int, excluded: list[list[int]], gallery_mask: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Sort everything that is allowed, by falling score and then by position."""
    found, where = np.full((len(scores), k), np.nan, np.float32), np.full((len(scores), k), -1)
    for row, gone in enumerate(excluded):
        allowed = [item for item in range(scores.shape[1]) if item not in gone and gallery_mask[item]]
        best = sorted(allowed, key=lambda item, row=row: (-scores[row, item], item))[:k]
        found[row, : len(best)], where[row, : len(best)] = scores[row, best], best
    return found, where


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of the gallery so small that many are merged."""
    monkeypatch.setitem(ranking._WIDTH, "cpu", 7)


@pytest.mark.usefixtures("narrow")
@settings(deadline=None, max_examples=60)
@given(data=st.data(), precision=st.sampled_from(["float32", "float64"]))
def test_it_is_the_front_of_a_full_sort(data: st.DataObject, precision: Precision) -> None:
    n_queries, n_gallery = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 40))
    # Few whole numbers: many scores are equal, and all of them are exact.
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    queries = rng.integers(1, 3, (n_queries, 2)).astype(np.float32)
    gallery = rng.integers(-1, 3, (n_gallery, 2)).astype(np.float32)
    gallery[(gallery == 0).all(axis=1)] = 1
    positions = st.lists(st.integers(0, n_gallery - 1), max_size=5)
    excluded = data.draw(st.lists(positions, min_size=n_queries, max_size=n_queries))
    gallery_mask = rng.random(n_gallery) >= data.draw(st.sampled_from([0.0, 0.3, 1.0]))
    k = data.draw(st.integers(1, 45))
    config = RankingConfig(precision=precision, normalize=False, block_size=data.draw(st.sampled_from([None, 1, 4])))
    found, where = nearest(
        queries, gallery, k, excluded=RaggedIndices.of(excluded), gallery_mask=gallery_mask, config=config
    )
    expected, expected_where = slow(queries @ gallery.T, k, excluded, gallery_mask)
    np.testing.assert_array_equal(where, expected_where)
    np.testing.assert_array_equal(found, expected)
    assert (found.dtype, where.dtype) == (np.float32, np.int64)


@pytest.mark.usefixtures("narrow")
def test_levels_are_those_of_the_rankings_that_are_evaluated() -> None:
    rng = np.random.default_rng(3)
    embeddings = torch.from_numpy(rng.normal(size=(50, 8))).half()
    labels = np.stack([np.arange(50) // 3, np.arange(50) // 12], axis=1)
    judgements = LabelJudgements(labels, labels)
    itself = RaggedIndices.of([[row] for row in range(50)])
    _, where = nearest(embeddings, embeddings, 50, excluded=itself)
    levels = judgements.levels(slice(None), slice(None)).numpy()
    (ranked,) = rank(embeddings, embeddings, judgements, excluded=itself)
    np.testing.assert_array_equal(np.take_along_axis(levels, where[:, :49], axis=1), ranked.levels[:, :49])
    assert (where[:, 49] == -1).all()


def test_scores_are_cosines() -> None:
    scores, _ = nearest(np.array([[3.0, 4.0]]), np.array([[30.0, 40.0], [-3.0, -4.0], [4.0, -3.0]]), k=3)
    np.testing.assert_allclose(scores, [[1, 0, -1]], atol=1e-7)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"k": 0}, ConfigurationError, "the 0 nearest items are asked for"),
        ({"excluded": RaggedIndices.of([[9], []])}, InputError, "names the gallery position 9 for query 0"),
        ({"gallery_embeddings": np.ones((3, 5))}, InputError, "2 dimensions and the gallery embeddings 5"),
        (
            {"query_embeddings": np.array([[1, np.nan], [0, 1]])},
            InputError,
            r"1 of 2 query embeddings have NaN.*rows 0",
        ),
    ],
)
def test_what_does_not_fit_is_told(change: dict[str, object], error: type[Exception], message: str) -> None:
    arguments = {"query_embeddings": np.ones((2, 2)), "gallery_embeddings": np.ones((3, 2)), "k": 1}
    with pytest.raises(error, match=message):
        nearest(**arguments | change)
