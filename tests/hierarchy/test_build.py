import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from hgld import tables
from hgld.cli.hierarchy import format_build, parse_extra_levels
from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy import load_hierarchy
from hgld.hierarchy.settings import BuildConfig
from hgld.labels.clean import clean_file
from hgld.labels.settings import CleanConfig
from tests.assertions import not_none
from tests.commands import run_hgld
from tests.hierarchy.conftest import ATTRACTION, BRIDGE, CHURCH, LAKE, MOUNTAIN, VOLCANO, WIDE, run
from tests.labels.label_tables import write_classes


@pytest.fixture
def clean(folder: Path, write_scraped: Callable[..., Path]) -> Path:
    """Six landmarks with one label, of which one is dropped, and two with several; one of index."""
    train = write_scraped([[LAKE], [MOUNTAIN], [CHURCH], [WIDE], [LAKE], [BRIDGE, LAKE], [ATTRACTION, WIDE, CHURCH]])
    index = write_scraped([[CHURCH]], "index")
    clean_file([train, index], folder / "clean.parquet", CleanConfig(), irrelevant=folder / "irrelevant.csv")
    return folder / "clean.parquet"


def rows(folder: Path, *columns: str) -> list[tuple[object, ...]]:
    table = tables.read_table(folder / "hierarchy.parquet", tables.HIERARCHY)
    return list(zip(*(table[name].to_pylist() for name in columns), strict=True))


def test_every_landmark_gets_the_group_of_its_label(clean: Path) -> None:
    summary = run(clean)
    assert rows(
        clean.parent, "split", "landmark_id", "supercategory", "hierarchical_label", "natural_or_human_made"
    ) == [
        ("index", 1, "church building", "church", "human-made"),
        ("train", 1, "lake", "lake", "natural"),
        ("train", 2, "mountain", "mountain", "natural"),
        ("train", 3, "church building", "church", "human-made"),
        ("train", 5, "lake", "lake", "natural"),
    ]
    assert format_build(summary).splitlines() == [
        "5 of 6 landmarks kept, in 3 groups",
        "  natural: 3 landmarks in 2 groups",
        "  human-made: 2 landmarks in 1 groups",
        "excluded, label dropped: 1 landmarks, 1 labels",
        "  1  building",
        "excluded, label undecided: 0 landmarks, 0 labels",
    ]


def test_undecided_labels_stop_the_build(folder: Path, write_scraped: Callable[..., Path]) -> None:
    scraped = write_scraped([[VOLCANO], [VOLCANO], [(None, "crater <b>")], [LAKE]])
    clean_file([scraped], folder / "clean.parquet")
    with pytest.raises(
        InputError, match=r"(?s)3 landmarks have a label without a decision, 2 labels in all"
    ) as problem:
        run(folder / "clean.parquet")
    assert '  2  volcano (Q8072): unsure, ada: "or a mountain?"\n  1  crater <b> (label-' in str(problem.value)
    assert not (folder / "hierarchy.parquet").exists()

    summary = run(folder / "clean.parquet", BuildConfig(allow_undecided=True))
    assert rows(folder, "landmark_id", "hierarchical_label") == [(4, "lake")]
    assert sum(summary.undecided.values()) == 3


def test_label_without_item_finds_its_decision_by_text(folder: Path, write_scraped: Callable[..., Path]) -> None:
    clean_file([write_scraped([[(None, "Church  building")]])], folder / "clean.parquet")
    run(folder / "clean.parquet")
    assert rows(folder, "supercategory", "hierarchical_label") == [("Church building", "church")]


def test_empty_hierarchy_is_an_error(folder: Path, write_scraped: Callable[..., Path]) -> None:
    clean_file([write_scraped([[WIDE]])], folder / "clean.parquet")
    with pytest.raises(InputError, match="of 1, none has a label with a group"):
        run(folder / "clean.parquet")


def test_the_official_files_are_written(clean: Path) -> None:
    folder = clean.parent / "official"
    run(clean, csv=folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        "index_label_to_hierarchical.csv",
        "train_label_to_hierarchical.csv",
    ]
    raw = (folder / "train_label_to_hierarchical.csv").read_bytes()
    assert raw.startswith(
        b"landmark_id,category,supercategory,hierarchical_label,natural_or_human_made\r\n"
        b"1,http://commons.wikimedia.org/wiki/Category:L1,lake,lake,natural\r\n"
    )
    assert load_hierarchy(folder) == load_hierarchy(clean.with_name("hierarchy.parquet"))


def test_commas_and_quotes_round_trip(folder: Path, write_scraped: Callable[..., Path]) -> None:
    clean_file([write_scraped([[(None, 'a "lake", or so')]])], folder / "clean.parquet")
    with (folder / "decisions.csv").open("a", newline="") as stream:
        csv.writer(stream).writerow(
            ["label-x", 'a "lake", or so', "group", "lake", "ada", "2026-03-01T12:00:00Z", "", ""]
        )
    run(folder / "clean.parquet", csv=folder / "official")
    assert load_hierarchy(folder / "official") == load_hierarchy(folder / "hierarchy.parquet")


def test_several_labels_are_kept_on_request(clean: Path) -> None:
    summary = run(clean, BuildConfig(multi=True), irrelevant=clean.with_name("irrelevant.csv"))
    kept = rows(clean.parent, "split", "landmark_id", "supercategory", "hierarchical_label", "hierarchical_labels")
    assert ("train", 6, "bridge", "bridge", ["bridge", "lake"]) in kept
    # Cleaning had kept "building" and "church building" apart: the dropped one does not keep the other out.
    assert ("train", 7, "church building", "church", ["church"]) in kept
    assert ("train", 1, "lake", "lake", ["lake"]) in kept
    several = not_none(summary.several)
    assert (summary.landmarks, several.restored, several.with_several) == (6, 2, 1)


def test_label_chosen_by_clean_comes_first(folder: Path, write_scraped: Callable[..., Path]) -> None:
    scraped = write_scraped([[BRIDGE, LAKE, VOLCANO], [VOLCANO, WIDE], [(None, "LAKE"), BRIDGE]])
    clean_file([scraped], folder / "clean.parquet", CleanConfig(keep_multiple="first"))
    summary = run(folder / "clean.parquet", BuildConfig(multi=True, allow_undecided=True))
    assert rows(folder, "landmark_id", "hierarchical_labels") == [(1, ["bridge", "lake"]), (3, ["lake", "bridge"])]
    several = not_none(summary.several)
    assert list(several.undecided) == list(summary.undecided)


def test_several_labels_need_the_scraped_tables(clean: Path) -> None:
    clean.with_name("scraped_index.parquet").unlink()
    with pytest.raises(InputError, match=r"1 rows of the clean table are in no scraped table \(first index 1\)"):
        run(clean, BuildConfig(multi=True))
    clean.with_name("scraped_train.parquet").unlink()
    with pytest.raises(
        ConfigurationError,
        match="`multi` needs tables of hgld scrape that are not beside .* name them with `scraped`",
    ):
        run(clean, BuildConfig(multi=True))
    with pytest.raises(ConfigurationError, match="`scraped` is used only with `multi`"):
        run(clean, scraped=[clean])


def test_extra_levels_stand_between_group_and_root(clean: Path) -> None:
    classes = clean.with_name("scraped_train.classes.parquet")
    with pytest.raises(ConfigurationError, match="`extra_levels` needs tables"):
        run(clean, BuildConfig(extra_levels=2))
    nature = {"Q8502": ("mountain", ["Q2"]), "Q1": ("water", ["Q2"]), "Q2": ("nature", [])}
    write_classes(classes, {"Q23397": ("lake", ["Q1"]), **nature})
    summary = run(clean, BuildConfig(extra_levels=2))
    tree = load_hierarchy(clean.with_name("hierarchy.parquet"))
    assert tree.level_names[2:4] == ("extra_level_1", "extra_level_2")
    assert tree.ancestors("lake", "hierarchical_label") == ("nature", "nature", "natural")
    assert tree.ancestors("church", "hierarchical_label") == ("church", "church", "human-made")
    assert list(summary.level_sizes) == [2, 2]


@pytest.mark.parametrize("text", ["2", "p279:0", "p279:", "p31:2", "p279:-1"])
def test_invalid_extra_levels_are_rejected(text: str) -> None:
    with pytest.raises(ConfigurationError, match="expected p279 and a number"):
        parse_extra_levels(text)
    with pytest.raises(ConfigurationError, match="expected 0 or more"):
        BuildConfig(extra_levels=-1)


def test_build_command(clean: Path) -> None:
    folder = clean.parent
    arguments = ["build", clean, "-o", folder / "out.parquet", "--decisions", folder / "decisions.csv"]
    arguments += ["--taxonomy", folder / "taxonomy.csv", "--csv", folder / "official"]
    ending = f"excluded, label undecided: 0 landmarks, 0 labels\n{folder / 'out.parquet'}\n"
    assert run_hgld(*arguments).stdout.endswith(ending)
    assert run_hgld(*arguments).stdout == f"{folder / 'out.parquet'}: up to date\n"
