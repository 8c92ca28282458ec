import re
from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hgld.figures.groups import OTHER, draw_flows, fold_small, order_columns

names = st.sampled_from([f"group {n}" for n in range(8)])
flows = st.dictionaries(st.tuples(names, names), st.integers(1, 99), max_size=30).map(
    lambda counts: [(source, target, n) for (source, target), n in counts.items()]
)

LANDMARKS = ("landmark", "landmarks")


@given(flows, st.integers(1, 12))
def test_fold_small_keeps_every_landmark_and_the_largest_bands(
    bands: list[tuple[str, str, int]], max_bands: int
) -> None:
    folded = fold_small(bands, max_bands)
    assert sum(n for _, _, n in folded) == sum(n for _, _, n in bands)
    assert len({(source, target) for source, target, _ in folded}) == len(folded)
    large = sorted(bands, key=lambda band: (-band[2], band[:2]))[:max_bands]
    assert set(large) <= set(folded)
    for end in (0, 1):
        assert len({band[end] for band in folded} - {OTHER}) <= max_bands


@given(flows)
def test_columns_contain_all_landmarks_and_end_with_other_groups(bands: list[tuple[str, str, int]]) -> None:
    folded = fold_small(bands, 3)
    for end, column in enumerate(order_columns(folded)):
        expected: Counter[str] = Counter()
        for band in folded:
            expected[(band[0], band[1])[end]] += band[2]
        assert column == expected
        assert OTHER not in list(column)[:-1]


def test_columns_are_ordered_to_avoid_crossings() -> None:
    left, right = order_columns([("a", "x", 9), ("b", "y", 5), ("c", "z", 2), ("b", "z", 1)])
    assert (list(left), list(right)) == (["a", "b", "c"], ["x", "y", "z"])


def test_groups_are_labelled_with_their_landmarks(tmp_path: Path) -> None:
    draw_flows(
        tmp_path / "flows.svg",
        [("lake", "sea & <bay>", 7), ("lake", "$x$", 2), ("inn", "$x$", 1)],
        n_landmarks=50,
        nouns=LANDMARKS,
    )
    drawn = (tmp_path / "flows.svg").read_text(encoding="utf-8")
    assert re.findall(r"<!-- (.*) -->", drawn) == [
        "10 of 50 landmarks moved to another group",
        "before",
        "after",
        "9  lake",
        "1  inn",
        "sea &amp; &lt;bay&gt;  7",
        "$x$  3",
    ]


def test_draw_flows_without_bands(tmp_path: Path) -> None:
    draw_flows(tmp_path / "flows.png", [], n_landmarks=50, nouns=LANDMARKS)
    assert (tmp_path / "flows.png").read_bytes().startswith(b"\x89PNG")
