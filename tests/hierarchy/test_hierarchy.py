from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hgld
from hgld import tables
from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy import Hierarchy, column_of, load_hierarchy, lowest_common_level, relevance
from hgld.hierarchy.files import write_official
from tests.assertions import not_none
from tests.child_processes import run_script

PROVENANCE = tables.Provenance("test")
#: Group and root by super-category.
TREE = {
    "lake": ("water", "natural"),
    "pond": ("water", "natural"),
    "hill": ("mountain", "natural"),
    "church building": ("church", "human-made"),
    "chapel": ("church", "human-made"),
    "castle": ("castle / fort", "human-made"),
}


def frame(*landmarks: tuple[str, int, str], multi: bool = False, extra: bool = False) -> pd.DataFrame:
    """Landmarks of (split, id, super-category)."""
    table: pd.DataFrame = pd.DataFrame(landmarks, columns=["split", "landmark_id", "supercategory"])
    places = [TREE[label] for _, _, label in landmarks]
    groups, roots = zip(*places, strict=True)
    table.insert(
        2, "category", [f"http://commons.wikimedia.org/wiki/Category:L{number}" for _, number, _ in landmarks]
    )
    table = table.assign(hierarchical_label=groups, natural_or_human_made=roots)
    if extra:
        table["extra_levels"] = [
            [f"{group} and such", f"all {root}"] for group, root in zip(groups, roots, strict=True)
        ]
    if multi:
        table["hierarchical_labels"] = [list(dict.fromkeys([group, "church"])) for group in groups]
    return table


SOME = [
    ("train", 5, "lake"),
    ("index", 5, "chapel"),
    ("train", 2, "pond"),
    ("train", 9, "castle"),
    ("index", 1, "hill"),
]


@pytest.fixture
def some() -> Hierarchy:
    return Hierarchy.from_pandas(frame(*SOME))


landmarks = st.lists(
    st.tuples(st.sampled_from(["train", "index"]), st.integers(0, 10**6), st.sampled_from(sorted(TREE))),
    min_size=1,
    max_size=30,
    unique_by=lambda landmark: landmark[:2],
)


@st.composite
def hierarchies(draw: st.DrawFn) -> Hierarchy:
    return Hierarchy.from_pandas(frame(*draw(landmarks), multi=draw(st.booleans()), extra=draw(st.booleans())))


@st.composite
def nested_labels(draw: st.DrawFn, n_levels: int, n: int) -> npt.NDArray[np.int64]:
    """Labels [n, n_levels] of a random tree: a label is the path from the root so far."""
    steps = np.array(
        draw(st.lists(st.lists(st.integers(0, 2), min_size=n_levels, max_size=n_levels), min_size=n, max_size=n))
    )
    steps = steps.reshape(n, n_levels)
    paths = np.zeros(n, np.int64)
    columns = []
    for level in range(n_levels):
        paths = paths * 3 + steps[:, level]
        columns.append(paths)
    return np.stack(columns[::-1], axis=1)


def slow_level(query: npt.NDArray[np.int64], item: npt.NDArray[np.int64]) -> int:
    level = 0
    for a, b in zip(reversed(query.tolist()), reversed(item.tolist()), strict=True):
        if a != b:
            break
        level += 1
    return level


def slow_relevance(queries: npt.NDArray[np.int64], gallery: npt.NDArray[np.int64], alpha: float) -> list[list[float]]:
    n_levels = queries.shape[1]
    rows = []
    for query in queries:
        levels = [slow_level(query, item) for item in gallery]
        rows.append([(level / n_levels) ** alpha / levels.count(level) if level else 0.0 for level in levels])
    return rows


# Levels and relevance


@pytest.mark.parametrize(("n_levels", "columns"), [(1, [0]), (3, [2, 1, 0]), (5, [4, 3, 2, 1, 0])])
def test_level_1_is_the_last_column(n_levels: int, columns: list[int]) -> None:
    assert [column_of(level, n_levels) for level in range(1, n_levels + 1)] == columns
    for level in (0, n_levels + 1):
        with pytest.raises(ConfigurationError, match=f"no level {level}"):
            column_of(level, n_levels)


@given(st.data(), st.sampled_from([1, 2, 3, 5]), st.sampled_from([0.0, 1.0, 3.5]))
def test_relevance_matches_naive_implementation(data: st.DataObject, n_levels: int, alpha: float) -> None:
    labels = data.draw(nested_labels(n_levels, 12))
    queries, gallery = labels[:4], labels[4:]
    expected = [[slow_level(query, item) for item in gallery] for query in queries]
    assert lowest_common_level(queries, gallery).tolist() == expected
    np.testing.assert_allclose(
        relevance(queries, gallery, alpha), slow_relevance(queries, gallery, alpha), rtol=1e-12
    )
    in_chunks = [relevance(queries[row : row + 1], gallery, alpha) for row in range(4)]
    np.testing.assert_array_equal(np.concatenate(in_chunks), relevance(queries, gallery, alpha))


def test_relevance_of_levels_adds_up_to_their_weight() -> None:
    tree = Hierarchy.from_pandas(frame(*SOME, extra=True))
    assert tree.n_levels == 5
    query = tree.labels_of([5], "train")
    levels, values = lowest_common_level(query, tree.labels)[0], tree.relevance(query, alpha=2.0)[0]
    # index 1 (hill), index 5, train 2 (pond), train 5 itself, train 9
    assert levels.tolist() == [2, 0, 4, 5, 0]
    np.testing.assert_allclose(values, [0.4**2, 0, 0.8**2, 1, 0])
    # By default, alpha is that of H-AP in the paper.
    np.testing.assert_allclose(tree.relevance(query)[0], [0.4, 0, 0.8, 1, 0])
    np.testing.assert_array_equal(relevance(query, tree.labels), tree.relevance(query, alpha=1.0))
    some = tree.labels[1:4]
    np.testing.assert_array_equal(tree.relevance(query, some, alpha=2.0), relevance(query, some, alpha=2.0))


@pytest.mark.parametrize("case", ["loo_L1_N200", "loo_L3_N600", "edge_no_positive_L3_N60"])
@pytest.mark.parametrize("alpha", [1, 3, 5])
def test_h_ap_with_this_relevance_is_the_golden_one(shared: Path, case: str, alpha: int) -> None:
    golden = np.load(shared / "golden" / "metrics.npz")
    labels, order = golden[f"{case}/q_labels"], golden[f"{case}/order"]
    expected = golden[f"{case}/paper/HAP_a{alpha}"]
    for row in range(0, len(labels), 7):
        # Ranked without the query; Eq. 18 and 19.
        values = relevance(labels[row : row + 1], labels[order[row]], alpha)[0]
        before = np.tril(np.ones((len(values), len(values)), bool))
        rank_plus = (np.minimum(values[:, None], values[None, :]) * before).sum(axis=1)
        ranks = np.arange(1, len(values) + 1)
        h_ap = (rank_plus / ranks).sum() / values.sum() if values.any() else np.nan
        np.testing.assert_allclose(h_ap, expected[row], atol=1e-12)


def test_unlabelled_images_share_nothing() -> None:
    labels = np.array([[2, 0], [-1, -1], [-1, -1]])
    assert lowest_common_level(labels, labels).tolist() == [[2, 0, 0], [0, 0, 0], [0, 0, 0]]
    for invalid in ([[2, -1]], [[-2, -2]]):
        with pytest.raises(
            InputError, match="1 of 4 images have labels below 0, first row 3: .* or -1 at every level"
        ):
            lowest_common_level(labels, np.array(invalid))


def test_labels_that_are_not_nested_are_refused() -> None:
    with pytest.raises(InputError, match=r"\[0, 0\] and \[0, 1\] agree in column 0.*: reverse the columns"):
        lowest_common_level(np.array([[0, 0]]), np.array([[0, 1]]))
    with pytest.raises(InputError, match="in the coarser column 1$"):  # in neither order
        lowest_common_level(np.array([[0, 0], [1, 0]]), np.array([[0, 1]]))
    with pytest.raises(InputError, match=r"shapes \(1, 2\) and \(1, 3\)"):
        lowest_common_level(np.zeros((1, 2), int), np.zeros((1, 3), int))
    with pytest.raises(ConfigurationError, match="`alpha` is -1"):
        relevance(np.zeros((1, 2), int), np.zeros((1, 2), int), -1)


# Looking around


def test_landmarks_are_found_by_split_and_id(some: Hierarchy) -> None:
    labels = some.labels_of([9, 5, 5], "train")
    assert labels.dtype == np.int64
    groups, roots = some.names(2), some.names(1)
    assert [groups[label] for label in labels[:, some.column("hierarchical_label")]] == [
        "castle / fort",
        "water",
        "water",
    ]
    assert [roots[label] for label in labels[:, some.column(1)]] == ["human-made", "natural", "natural"]
    assert labels[1, 0] != some.labels_of([5], "index")[0, 0]
    assert some.labels_of([], "train").shape == (0, 3)
    assert some.contains([1, 5, -3, 10**9], "index").tolist() == [True, True, False, False]


def test_unknown_landmarks_are_listed(some: Hierarchy) -> None:
    with pytest.raises(InputError, match=r"2 landmarks are not in the hierarchy \(train 7, 8\)"):
        some.labels_of([8, 2, 7, 8], "train")
    with pytest.raises(ConfigurationError, match="several splits"):
        some.labels_of([2])
    with pytest.raises(ConfigurationError, match='no split "test"'):
        some.labels_of([2], "test")
    with pytest.raises(ValueError, match="expected whole numbers"):
        some.labels_of([2.0], "train")
    assert len(some.filter(splits=["train"]).labels_of([2])) == 1


def test_children_and_ancestors(some: Hierarchy) -> None:
    assert some.names("landmark") == ("index/1", "index/5", "train/2", "train/5", "train/9")
    assert some.counts(2) == {"water": 2, "castle / fort": 1, "church": 1, "mountain": 1}
    assert some.children("natural", 1) == ("mountain", "water")
    assert some.children("water", 2) == ("train/2", "train/5")
    assert some.children("train/2", 3) == ()
    assert some.ancestors("train/9", "landmark") == ("castle / fort", "human-made")
    assert some.parent("water", 2) == "natural"
    assert some.parent("natural", 1) is None
    for name, level in (("river", 2), ("train/1", 3), ("train", 3), ("water", 1)):
        with pytest.raises(ConfigurationError, match=f'there is no "{name}"'):
            some.parent(name, level)
    with pytest.raises(ConfigurationError, match='no level "group"'):
        some.counts("group")


def test_repr_counts_the_levels(some: Hierarchy) -> None:
    assert repr(some).splitlines() == [
        "Hierarchy of 5 landmarks (index 2, train 3) in 3 levels",
        "  3  landmark                     5",
        "  2  hierarchical_label           4  water 2, castle / fort 1, church 1, mountain 1",
        "  1  natural_or_human_made        2  natural 3, human-made 2",
    ]


def test_hierarchy_is_immutable(some: Hierarchy) -> None:
    with pytest.raises(ValueError, match="read-only"):
        some.labels[0, 0] = 7
    with pytest.raises(AttributeError):
        some.level_names = ()  # type: ignore[misc]


# Checking


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda rows: rows.drop(columns="natural_or_human_made"), "no column natural_or_human_made"),
        (lambda rows: rows.assign(landmark_id="five"), "not a hierarchy: .*five"),
        (lambda rows: rows.assign(n_images=1), "unknown column n_images"),
        (lambda rows: rows.iloc[:0], "no rows|no column|missing"),
        (
            lambda rows: rows.assign(natural_or_human_made=["natural", None, *["natural"] * 3]),
            "missing in 1 of 5 rows",
        ),
        (lambda rows: rows.assign(hierarchical_label=["water", " ", *["water"] * 3]), r"row 1 \(index 5\)"),
        (lambda rows: pd.concat([rows, rows.iloc[2:3]]), r"row 2 \(train 2\) occurs again in row 5"),
        (
            lambda rows: rows.assign(hierarchical_label="water"),
            r'"water" has several natural_or_human_made: "human-made" in row 1 \(index 5\), "natural" in row 0',
        ),
        (
            lambda rows: rows.assign(extra_levels=[["a"], ["a"], [], ["a"], ["a"]]),
            r"1 values in row 0 .*, but 0 in row 2",
        ),
    ],
)
def test_invalid_hierarchies_are_rejected(change: Callable[[pd.DataFrame], pd.DataFrame], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        Hierarchy.from_pandas(change(frame(*SOME)))


# Reading


@given(hierarchies())
def test_round_trip_through_arrow_and_pandas(tree: Hierarchy) -> None:
    assert Hierarchy.from_arrow(tree.to_arrow()) == tree
    assert Hierarchy.from_pandas(tree.to_pandas().sample(frac=1, random_state=0)) == tree


def test_text_ids_and_categorical_columns_are_accepted() -> None:
    rows = frame(*SOME, ("train", 10, "lake"))
    texts = rows.assign(landmark_id=rows.landmark_id.astype(str), split=rows.split.astype("category"))
    assert Hierarchy.from_pandas(texts) == Hierarchy.from_pandas(rows)


@pytest.mark.parametrize("extra", [False, True])
@pytest.mark.parametrize("multi", [False, True])
def test_built_table_is_loaded(tmp_path: Path, extra: bool, multi: bool) -> None:
    tree = Hierarchy.from_pandas(frame(*SOME, extra=extra, multi=multi))
    tables.write_table(tmp_path / "hierarchy.parquet", tables.HIERARCHY, tree.to_arrow(), PROVENANCE)
    assert hgld.load_hierarchy(tmp_path / "hierarchy.parquet") == tree
    assert hgld.load_hierarchy(str(tmp_path)) == tree
    assert tree.n_levels == (5 if extra else 3)
    if multi:
        assert not_none(tree.hierarchical_labels).tolist()[0] == ("mountain", "church")


def test_official_files_are_loaded(tmp_path: Path, some: Hierarchy) -> None:
    train, index = write_official(tmp_path, some.to_arrow())
    assert load_hierarchy(tmp_path) == some
    assert load_hierarchy(train) == some.filter(splits=["train"])
    other = index.rename(tmp_path / "labels.csv")
    assert load_hierarchy(other, split="index") == some.filter(splits=["index"])
    with pytest.raises(ConfigurationError, match=r"labels\.csv: the file name does not begin with a split"):
        load_hierarchy(other)


def test_bad_rows_of_a_csv_file_are_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "train_label_to_hierarchical.csv"
    header = "landmark_id,hierarchical_label,natural_or_human_made\n"
    path.write_text(header + "x1,lake,natural\n2,,natural\n3,lake,natural\n")
    with pytest.raises(
        InputError, match=r'(?s)line 2: the landmark_id is "x1".*line 3: the hierarchical_label is empty'
    ):
        load_hierarchy(path)
    path.write_text(header + "1,lake,natural\n\n1,lake,natural\n")
    with pytest.raises(
        InputError, match=r"csv line 2 \(train 1\) occurs again in train_label_to_hierarchical\.csv line 4"
    ):
        load_hierarchy(path)
    path.write_text(header + "1,lake,natural\n2,lake,human-made\n")
    with pytest.raises(
        InputError, match=r'"human-made" in .* line 3 \(train 2\), "natural" in .* line 2 \(train 1\)'
    ):
        load_hierarchy(path)


def test_missing_files_are_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no hierarchy\.parquet and no train_label_to_hierarchical\.csv"):
        load_hierarchy(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        load_hierarchy(tmp_path / "hierarchy.parquet")


def test_released_labels_round_trip(shared: Path, tmp_path: Path) -> None:
    released = shared / "released" / "index_label_to_hierarchical.csv"
    tree = load_hierarchy(released)
    assert len(tree) == 55_529
    assert len(tree.names(2)) == 78
    assert tree.counts(1) == {"human-made": 42_199, "natural": 13_330}
    assert tree.parent("ocean area", 2) == "natural"
    (written,) = write_official(tmp_path, tree.to_arrow())
    assert written.read_bytes() == released.read_bytes()


@pytest.mark.slow
def test_304_000_landmarks_load(tmp_path: Path) -> None:
    names = sorted(TREE)
    landmarks = [("train" if n < 203_000 else "index", n * 2, names[n % len(names)]) for n in range(304_000)]
    path = tmp_path / "hierarchy.parquet"
    table = pa.Table.from_pandas(frame(*landmarks), schema=tables.HIERARCHY.schema, preserve_index=False)
    tables.write_table(path, tables.HIERARCHY, table, PROVENANCE)
    tree = load_hierarchy(path)
    labels = tree.labels_of(np.arange(0, 400_000, 2), "train")
    assert labels.shape == (200_000, 3)


def test_package_imports_hierarchy_lazily() -> None:
    heavy = "print('numpy' in sys.modules)"
    script = f"import sys, hgld; print(hgld.__version__); {heavy}; hgld.Hierarchy; {heavy}"
    assert run_script(script) == f"{hgld.__version__}\nFalse\nTrue\n"
    assert not hasattr(hgld, "hierarchies")


# Changing


@given(hierarchies(), st.data())
def test_filter_by_group_root_and_size(tree: Hierarchy, data: st.DataObject) -> None:
    group = data.draw(st.sampled_from(tree.names("hierarchical_label")))
    kept = tree.filter(groups=[group])
    rows = tree.to_pandas()
    assert kept == Hierarchy.from_pandas(rows[rows.hierarchical_label == group])
    root = tree.ancestors(group, "hierarchical_label")[-1]
    assert set(tree.filter(roots=root).counts("natural_or_human_made")) == {root}
    most = max(tree.counts("hierarchical_label").values())
    assert min(tree.filter(min_landmarks=most).counts("hierarchical_label").values()) == most


@given(hierarchies())
def test_merged_groups_are_one_with_all_their_landmarks(tree: Hierarchy) -> None:
    group = tree.names("hierarchical_label")[0]
    parent = tree.ancestors(group, "hierarchical_label")[0]
    groups = tree.children(parent, tree.n_levels - 2)
    counts = tree.counts("hierarchical_label")
    merged = tree.merge(groups, "merged")
    assert merged.children(parent, tree.n_levels - 2) == ("merged",)
    assert merged.counts("hierarchical_label")["merged"] == sum(counts[name] for name in groups)


def test_merge_renames_further_groups_too() -> None:
    tree = Hierarchy.from_pandas(frame(*SOME, multi=True)).merge(["church", "castle / fort"], "building")
    assert not_none(tree.hierarchical_labels).tolist() == [
        ("mountain", "building"),
        ("building",),
        ("water", "building"),
        ("water", "building"),
        ("building",),
    ]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda tree: tree.filter(groups=["river"]), 'there is no "river"'),
        (lambda tree: tree.filter(splits="test"), "no split test"),
        (lambda tree: tree.filter(roots=["natural"], min_landmarks=9), "no landmark is left"),
        (lambda tree: tree.merge(["water", "church"], "a"), '"water" is below natural; "church" is below human-made'),
        (lambda tree: tree.merge(["water", "mountain"], "church"), 'a group "church" already'),
    ],
)
def test_invalid_edits_are_rejected(some: Hierarchy, change: Callable[[Hierarchy], Hierarchy], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        change(some)
