import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy.label_matrix import TEMPERATURE
from hgld.search.gallery import Gallery
from hgld.search.searcher import Searcher
from tests.search.galleries import LEVELS, obvious_neighbours, obvious_vote, toy_gallery


@given(n=st.integers(1, 15), k=st.integers(1, 20), seed=st.integers(0, 50))
def test_search_finds_what_the_obvious_search_finds(n: int, k: int, seed: int) -> None:
    """Vectors of few small integers: many are equal or parallel, and k may exceed the gallery."""
    rng = np.random.default_rng(seed)
    vectors = rng.integers(1, 3, (n, 3)).astype(np.float32)
    queries = rng.integers(1, 3, (4, 3)).astype(np.float32)
    names = [[f"p{row}", f"g{row // 2}"] for row in rng.integers(0, 4, n).tolist()]
    gallery = Gallery.from_arrays(vectors, [str(row) for row in range(n)], names, ["product", "group"])
    answers = Searcher(gallery).search(queries, k)
    expected = obvious_neighbours(queries, vectors, k)
    for row in range(4):
        results = list(answers.results(row))
        assert len(results) == min(k, n)
        assert [score for _, score, _ in results] == pytest.approx([score for _, score in expected[row]], abs=1e-6)
        votes = obvious_vote([(score, names[position]) for position, score, _ in results], TEMPERATURE)
        answer = answers.answer(row)
        assert [level.share for level in answer] == pytest.approx([share for _, share in votes], abs=1e-5)
        for position, _, level in results:
            shared = [name == level.name for name, level in zip(names[position], answer, strict=True)]
            assert level == sum(shared)


def test_equal_images_are_in_the_order_of_the_gallery() -> None:
    gallery = Gallery.from_arrays(np.ones((5, 2)), list("abcde"))
    assert [position for position, *_ in Searcher(gallery).search(np.ones((1, 2)), 3).results(0)] == [0, 1, 2]


def test_image_of_the_gallery_finds_itself_first() -> None:
    gallery = toy_gallery()
    answers = Searcher(gallery).search(gallery.vectors, 3, ids=gallery.ids.tolist())
    assert [next(answers.results(row))[0] for row in range(len(gallery))] == list(range(len(gallery)))
    assert answers.query_ids[7] == "image 7"


def test_gallery_without_labels_has_no_answer() -> None:
    answers = Searcher(Gallery.from_arrays(np.eye(3), "abc")).search(np.eye(3), 2)
    assert answers.answer(0) == ()
    assert [level for _, _, level in answers.results(0)] == [0, 0]


@pytest.mark.parametrize(
    ("queries", "k", "message"),
    [
        (np.ones((1, 3)), 1, r"the queries have the shape \(1, 3\); expected \(n, 4\), the dimension of the gallery"),
        (np.ones(4), 1, r"the queries have the shape \(4,\)"),
        (np.full((1, 4), np.nan), 1, "NaN, infinite or huge"),
        (np.zeros((1, 4)), 1, "only zeros"),
        (np.ones((1, 4)), 0, "`k` is 0; expected at least 1"),
    ],
)
def test_bad_queries_are_refused(queries: np.ndarray, k: int, message: str) -> None:
    with pytest.raises((InputError, ConfigurationError), match=message):
        Searcher(toy_gallery()).search(queries, k)


def test_bad_galleries_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="2 `vectors`, 1 `ids` and 1 `labels` of 0 levels"):
        Gallery.from_arrays(np.eye(2), ["a"])
    with pytest.raises(ConfigurationError, match="a label for each level"):
        Gallery.from_arrays(np.eye(2), ["a", "b"], [["x"], ["y"]], ["group", "kind"])
    with pytest.raises(ConfigurationError, match="`temperature` is 0"):
        Searcher(toy_gallery(), temperature=0)


def test_results_share_nested_levels_with_the_answer() -> None:
    answers = Searcher(toy_gallery(60, 3)).search(np.eye(3), 20)
    for row in range(3):
        answer = [level.name for level in answers.answer(row)]
        assert [level.level for level in answers.answer(row)] == list(LEVELS)
        for position, _, level in answers.results(row):
            names = answers.gallery.names_of(position)
            assert list(names[len(LEVELS) - level :]) == answer[len(LEVELS) - level :]
            assert level == len(LEVELS) or names[len(LEVELS) - level - 1] != answer[len(LEVELS) - level - 1]
