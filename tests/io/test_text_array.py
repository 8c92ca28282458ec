"""Arrays of texts behave like NumPy's arrays of str objects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.io.text_array import TextArray

TEXTS = st.lists(st.sampled_from(["", "a", "ab", "é", "train"]), min_size=1, max_size=12)


@given(TEXTS, st.data())
def test_rows_and_comparisons_are_those_of_an_object_array(texts: list[str], data: Any) -> None:
    expected, n = np.array(texts, object), len(texts)
    rows = data.draw(st.lists(st.integers(-n, n - 1), max_size=20))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    chunks = pa.chunked_array([texts[:2], texts[2:]], pa.string())
    for array in (TextArray(texts), TextArray.repeated(texts), TextArray(chunks), TextArray.repeated(chunks)):
        assert array.tolist() == [*array] == texts
        assert [array[row] for row in range(n)] == texts
        for chosen in (rows, mask, slice(1, None, 2), np.array(rows, np.int64)):
            key = np.array(chosen, np.int64) if isinstance(chosen, list) else chosen
            assert array[chosen].tolist() == expected[key].tolist()
            assert (array[chosen] != array[chosen][::-1]).tolist() == (expected[key] != expected[key][::-1]).tolist()
            assert (array[chosen] == "a").tolist() == (expected[key] == "a").tolist()
        assert array.distinct() == sorted(set(texts))
        assert np.array_equal(np.asarray(array), expected)


@given(texts=st.one_of(st.just([]), TEXTS), wanted=TEXTS)
def test_first_rows_are_found(texts: list[str], wanted: list[str]) -> None:
    found = TextArray(texts).find(TextArray(wanted))
    assert found.tolist() == [texts.index(text) if text in texts else -1 for text in wanted]
    assert TextArray(texts).is_unique() == (len(set(texts)) == len(texts))


@pytest.mark.parametrize(
    "texts", [TextArray(["b", "a"], np.array([1, 0, 0])), pa.array(["a", "b", "b"]).dictionary_encode()]
)
def test_positions_are_those_of_the_rows_of_another_array(texts: Any) -> None:
    assert TextArray(texts, np.array([2, 0])).tolist() == ["b", "a"]


def test_conversion_without_a_copy_is_refused() -> None:
    with pytest.raises(ValueError, match="without a copy"):
        TextArray(["a"]).__array__(copy=False)
