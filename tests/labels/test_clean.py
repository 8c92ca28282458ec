from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld import tables
from hgld.cli.labels import format_clean
from hgld.errors import ConfigurationError, InputError
from hgld.labels.class_tree import ancestors
from hgld.labels.clean import (
    InstanceOf,
    IrrelevantLabels,
    choose_label,
    clean_file,
    clean_table,
    most_specific,
    read_irrelevant_labels,
)
from hgld.labels.settings import CleanConfig, KeepMultiple
from hgld.resources import annotation_file
from hgld.tables.column_values import RemovalReason
from tests.assertions import not_none
from tests.labels.label_tables import scraped_table, write_classes

CHURCH, MUSEUM = ("Q16970", "church building"), ("Q33506", "museum")
CATEGORY = ("Q4167836", "Wikimedia category")
IRRELEVANT = IrrelevantLabels(frozenset({"Q4167836"}), frozenset({"wikimedia category", "human"}))


#: Item and label.
RawValue = tuple[str | None, str]


def outcome(
    *values: RawValue, keep_multiple: KeepMultiple | None = None, parents: dict[str, list[str]] | None = None
) -> InstanceOf | RemovalReason:
    return choose_label([InstanceOf(*value) for value in values], IRRELEVANT, keep_multiple, parents or {})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([CHURCH], InstanceOf(*CHURCH)),
        ([CHURCH, MUSEUM], "multiple"),
        ([], "unlabelled"),
        ([CATEGORY], "irrelevant"),
        ([CATEGORY, CHURCH], InstanceOf(*CHURCH)),
        ([("Q4167836", "Wikimedia-Kategorie")], "irrelevant"),
        ([(None, "WIKIMEDIA  Category")], "irrelevant"),
        ([(None, "Human")], "irrelevant"),
        ([("Q77", "Q77")], "unlabelled"),
        ([("Q77", "Q77"), CHURCH], InstanceOf(*CHURCH)),
        ([("Q77", "Q77"), CATEGORY], "irrelevant"),
        ([("Q4167836", "Q4167836")], "irrelevant"),
        ([("Q77", " ")], "unlabelled"),
        ([("Q1", "gate"), ("Q2", "Gate ")], InstanceOf("Q1", "gate")),
        ([("Q1", "gate"), ("Q1", "portal")], InstanceOf("Q1", "gate")),
        ([(None, "Q"), (None, "Q0")], "multiple"),
    ],
)
def test_label_choice(values: list[RawValue], expected: InstanceOf | RemovalReason) -> None:
    assert outcome(*values) == expected


def test_keep_first_relevant_value() -> None:
    assert outcome(CATEGORY, MUSEUM, CHURCH, keep_multiple="first") == InstanceOf(*MUSEUM)
    assert outcome(CATEGORY, keep_multiple="first") == "irrelevant"


#: cathedral < church building < building; museum < building; Q8 and Q9 are above each other.
PARENTS = {"Q1": ["Q16970"], "Q16970": ["Q41176"], "Q33506": ["Q41176"], "Q8": ["Q9"], "Q9": ["Q8"]}
CATHEDRAL, BUILDING = ("Q1", "cathedral"), ("Q41176", "building")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([BUILDING, CATHEDRAL], InstanceOf(*CATHEDRAL)),
        ([CATHEDRAL, CHURCH, BUILDING], InstanceOf(*CATHEDRAL)),
        ([CHURCH, MUSEUM, BUILDING], "multiple"),
        ([("Q8", "town"), ("Q9", "city")], "multiple"),
        ([("Q8", "town")], InstanceOf("Q8", "town")),
        ([CATHEDRAL, (None, "church building")], "multiple"),
    ],
)
def test_keep_most_specific(values: list[RawValue], expected: InstanceOf | RemovalReason) -> None:
    assert outcome(*values, keep_multiple="most-specific", parents=PARENTS) == expected


_NODES = [f"Q{n}" for n in range(1, 7)]
_GRAPHS = st.dictionaries(st.sampled_from(_NODES), st.lists(st.sampled_from(_NODES), max_size=3))


@given(_GRAPHS, st.lists(st.sampled_from(_NODES), unique=True, min_size=1))
def test_ancestors_and_most_specific_match_transitive_closure(
    parents: dict[str, list[str]], items: list[str]
) -> None:
    reach = {(a, b) for a, above in parents.items() for b in above}
    for via in _NODES:
        reach |= {(a, b) for a in _NODES for b in _NODES if (a, via) in reach and (via, b) in reach}
    for item in items:
        assert ancestors(item, parents) == {b for a, b in reach if a == item}
    kept = [value.item for value in most_specific([InstanceOf(item, item) for item in items], parents)]
    assert kept == [
        item for item in items if not any((other, item) in reach and (item, other) not in reach for other in items)
    ]
    assert kept, "something is always most specific"


_VALUES = st.lists(st.sampled_from([CHURCH, MUSEUM, CATEGORY, ("Q77", "Q77"), (None, "Church Building")]))


@settings(deadline=None)  # the first table takes longer than the others
@given(st.lists(_VALUES), st.sampled_from([None, "first", "most-specific"]))
def test_each_landmark_is_kept_or_removed_once_in_order(
    landmarks: list[list[RawValue]], keep_multiple: KeepMultiple | None
) -> None:
    scraped = scraped_table(landmarks)
    kept, removed, summary = clean_table(scraped, IRRELEVANT, keep_multiple, PARENTS)
    ids = [table["landmark_id"].to_pylist() for table in (kept, removed)]
    assert sorted(ids[0] + ids[1]) == list(range(len(landmarks)))
    assert ids == [sorted(ids[0]), sorted(ids[1])]
    for row in removed.to_pylist():
        assert [(v["item"], v["label"]) for v in row["instance_of"]] == landmarks[row["landmark_id"]]
    for row in kept.to_pylist():
        assert row["supercategory"] in {label for _, label in landmarks[row["landmark_id"]]} | {
            "church building",
            "Church Building",
        }
    assert sum(split.landmarks for split in summary.splits) == len(landmarks)
    assert sum(split.kept for split in summary.splits) == len(kept)


def test_labels_are_unified_over_splits(write_scraped: Callable[..., Path], tmp_path: Path) -> None:
    train = write_scraped([[CHURCH], [CHURCH], [(None, "Church building")]])
    index = write_scraped([[(None, "CHURCH BUILDING")], [MUSEUM]], split="index")
    out = tmp_path / "clean.parquet"
    summary = not_none(clean_file([train, index], out))
    rows = tables.read_table(out, tables.CLEAN).to_pylist()
    assert [(r["split"], r["landmark_id"], r["supercategory"], r["class_item"]) for r in rows] == [
        ("train", 0, "church building", "Q16970"),
        ("train", 1, "church building", "Q16970"),
        ("train", 2, "church building", "Q16970"),
        ("index", 0, "church building", "Q16970"),
        ("index", 1, "museum", "Q33506"),
    ]
    assert summary.unique_labels == 2


def test_summary_and_reasons(write_scraped: Callable[..., Path], tmp_path: Path) -> None:
    scraped = write_scraped([[CHURCH], [CHURCH, MUSEUM], [CATEGORY], []])
    out = tmp_path / "clean.parquet"
    summary = not_none(clean_file([scraped], out))
    assert format_clean(summary).splitlines() == [
        "train: 4 landmarks, 3 (75.00%) with a scraped label",
        "  removed, multiple: 1 (25.00%)",
        "  removed, irrelevant: 1 (25.00%)",
        "  removed, unlabelled: 1 (25.00%)",
        "  kept: 1 (25.00%), with 1 unique labels; most frequent:",
        "          1  church building",
        "unique labels in total: 1",
    ]
    removed = tables.read_table(out.with_name("removed.parquet"), tables.REMOVED)
    assert removed["reason"].to_pylist() == ["multiple", "irrelevant", "unlabelled"]
    assert clean_file([scraped], out, CleanConfig(keep_multiple="first")) is not None
    assert len(tables.read_table(out, tables.CLEAN)) == 2


def test_failed_rows_raise_or_count_as_unlabelled(write_scraped: Callable[..., Path], tmp_path: Path) -> None:
    train = write_scraped([[CHURCH]])
    index = write_scraped([[], [MUSEUM]], split="index", status="error")
    out = tmp_path / "clean.parquet"
    with pytest.raises(InputError, match=r"2 of 3 landmarks .*hgld scrape again.*`allow_errors`"):
        clean_file([train, index], out)
    assert not out.exists()
    summary = not_none(clean_file([train, index], out, CleanConfig(allow_errors=True)))
    assert [split.removed["unlabelled"] for split in summary.splits] == [0, 2]


def test_most_specific_finds_classes_beside_scraped_table(write_scraped: Callable[..., Path], tmp_path: Path) -> None:
    scraped = write_scraped([[BUILDING, CATHEDRAL]])
    out, config = tmp_path / "clean.parquet", CleanConfig(keep_multiple="most-specific")
    with pytest.raises(ConfigurationError, match=r"scraped\.train\.classes\.parquet.*`classes`"):
        clean_file([scraped], out, config)
    path = scraped.with_suffix(".classes.parquet")
    write_classes(path, {item: (item, above) for item, above in PARENTS.items()})
    clean_file([scraped], out, config)
    assert tables.read_table(out, tables.CLEAN)["supercategory"].to_pylist() == ["cathedral"]
    with pytest.raises(ConfigurationError, match="only if `keep_multiple` is most-specific"):
        clean_file([scraped], out, classes=[path])


def test_invalid_inputs_are_reported(write_scraped: Callable[..., Path], tmp_path: Path) -> None:
    scraped, out = write_scraped([[CHURCH], [MUSEUM]]), tmp_path / "clean.parquet"
    with pytest.raises(InputError, match=r"2 landmarks occur in more than one of .*first train 0"):
        clean_file([scraped, scraped], out)
    with pytest.raises(ConfigurationError, match='"last"; choose first or most-specific'):
        CleanConfig(keep_multiple="last")  # type: ignore[arg-type]


def test_clean_table_may_be_empty(write_scraped: Callable[..., Path], tmp_path: Path) -> None:
    out = tmp_path / "clean.parquet"
    clean_file([write_scraped([[]])], out)
    assert len(tables.read_table(out, tables.CLEAN)) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label,reason\n", "line 1: no column item"),
        ("item,label,reason\nX5,human,a person\n", 'line 2: the item is "X5"'),
        ("item,label,reason\nQ5,human,\n", "line 2: expected a label and a reason"),
        ("item,label,reason\nQ5\n", "line 2: 1 values, expected 3"),
    ],
)
def test_invalid_irrelevant_labels_are_rejected(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "irrelevant.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_irrelevant_labels(path)


def test_bundled_irrelevant_labels_are_unique_and_exclude_landmark_classes() -> None:
    path = annotation_file("irrelevant_labels.csv")
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    irrelevant = read_irrelevant_labels(path)
    assert len(irrelevant.labels) == len(lines)
    assert len(irrelevant.items) == sum(line.startswith("Q") for line in lines)
    assert InstanceOf("Q4167836", "anything") in irrelevant
    assert InstanceOf(None, "Wikimedia disambiguation page") in irrelevant
    assert InstanceOf("Q16970", "church building") not in irrelevant


def test_real_landmarks(shared: Path, tmp_path: Path) -> None:
    """The Washington world: one value each, one Wikimedia category, two without any."""
    import gzip
    import json

    world = json.loads(gzip.decompress((shared / "wikimedia_replica/worlds/washington.json.gz").read_bytes()))
    items = {item["id"]: item for item in world["items"]}
    landmarks = []
    for category in world["categories"]:
        values = items[category["item"]].get("claims", {}).get("P31", [])
        ids = [value if isinstance(value, str) else value["value"] for value in values]
        landmarks.append([(item, items[item]["labels"]["en"]) for item in ids])
    kept, removed, summary = clean_table(
        scraped_table(landmarks), read_irrelevant_labels(annotation_file("irrelevant_labels.csv"))
    )
    assert (len(kept), removed["reason"].to_pylist()) == (841, ["unlabelled", "unlabelled", "irrelevant"])
    assert summary.unique_labels == 230
    assert summary.splits[0].most_frequent[0] == ("Washington state park", 57)
