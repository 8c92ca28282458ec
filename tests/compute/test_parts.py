"""Parts of work, and Ray as far as it needs no cluster."""

from importlib.util import find_spec
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.compute.parts import Part, PartsConfig
from hgld.errors import ConfigurationError
from tests.child_processes import run_script


@given(n_items=st.integers(0, 100), count=st.integers(1, 30))
def test_parts_have_each_item_once_in_order_and_nearly_the_same_size(n_items: int, count: int) -> None:
    items = range(n_items)
    parts = [Part(number, count).of(items) for number in range(1, count + 1)]
    assert list(chain.from_iterable(parts)) == list(items)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_text_of_a_part_is_parsed() -> None:
    assert Part.parse(str(Part(3, 16))) == Part(3, 16)


@pytest.mark.parametrize("text", ["0/4", "5/4", "1/0", "3", "", "1/2/3", "-1/4", "a/b", "1.0/2"])
def test_text_that_names_no_part_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"`part` is .*expected"):
        Part.parse(text)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ray": "auto"}, "`ray` and `parts` need each other; give both"),
        ({"parts": 3}, "`ray` and `parts` need each other; give both"),
        ({"ray": "auto", "parts": 0}, "`parts` is 0; expected 1 or more"),
        ({"ray": "auto", "parts": 3, "part": Part(1, 3)}, "`part` does one part, and `ray` all of them"),
    ],
)
def test_wrong_divisions_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        PartsConfig(**settings)  # type: ignore[arg-type]


NO_CLUSTER = """
from hgld.compute.parts import PartsConfig
from hgld.errors import ConfigurationError
from hgld.progress import NoProgress

try:
    PartsConfig(ray="127.0.0.1:1", parts=2).run_on_ray(print, NoProgress())
except ConfigurationError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
def test_a_cluster_that_is_not_there_is_an_error() -> None:
    # In a process of its own, as Ray reads the number of its attempts (40 s each) when it is first imported.
    assert run_script(NO_CLUSTER).startswith("no Ray cluster answers at `ray` 127.0.0.1:1 (")
