"""Landmarks that take their group from photographs, from build to stats and why."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hgld import tables
from hgld.cli.hierarchy import format_build, format_stats
from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy import Hierarchy, load_hierarchy
from hgld.hierarchy.settings import BuildConfig
from hgld.hierarchy.stats import hierarchy_stats
from hgld.hierarchy.why import trace_landmark
from hgld.labels.clean import clean_file
from tests.assertions import not_none
from tests.commands import run_hgld
from tests.hierarchy.conftest import BRIDGE, CHURCH, LAKE, MOUNTAIN, WIDE, rerun, run


@pytest.fixture
def clean(folder: Path, write_scraped: Callable[..., Path]) -> Path:
    """Train: lake, mountain, a dropped label, several labels, no label twice; index: church, no label."""
    train = write_scraped([[LAKE], [MOUNTAIN], [WIDE], [BRIDGE, LAKE], [], []])
    index = write_scraped([[CHURCH], []], "index")
    clean_file([train, index], folder / "clean.parquet", irrelevant=folder / "irrelevant.csv")
    return folder / "clean.parquet"


@pytest.fixture
def completed(write_completed: Callable[..., Path]) -> Path:
    """Proposals with scores around 0.8, and one for a landmark that has a decided label."""
    return write_completed(
        [
            ("index", 2, "bridge", 0.95),
            ("train", 1, "church", 0.99),
            ("train", 3, "church", 0.81),
            ("train", 5, "lake", 0.8),
            ("train", 6, None, None),
        ]
    )


def groups(hierarchy: Hierarchy) -> dict[tuple[str, int], tuple[str, str | None]]:
    """The group and its source by landmark."""
    table = hierarchy.to_arrow().to_pylist()
    return {(row["split"], row["landmark_id"]): (row["hierarchical_label"], row.get("label_source")) for row in table}


def test_proposals_from_the_score_on_are_taken_and_marked(clean: Path, completed: Path) -> None:
    summary = run(clean, completed=completed)
    hierarchy = load_hierarchy(clean.with_name("hierarchy.parquet"))
    assert groups(hierarchy) == {
        ("index", 1): ("church", "instance_of"),
        ("index", 2): ("bridge", "photographs"),
        ("train", 1): ("lake", "instance_of"),
        ("train", 2): ("mountain", "instance_of"),
        ("train", 3): ("church", "photographs"),
        ("train", 5): ("lake", "photographs"),
    }
    assert not_none(hierarchy.supercategories)[1] == "bridge"
    assert hierarchy.ancestors("index/2", "landmark") == ("bridge", "human-made")
    assert format_build(summary).splitlines()[3:5] == [
        "  3 take their group from photographs, as no label of theirs has one; 85.3% of these are expected to be "
        "right",
        "  1 proposals not used, as a label has a group by now",
    ]
    provenance = tables.read_provenance(clean.with_name("hierarchy.parquet"))
    assert provenance.parameters["completed_above"] == 0.8
    assert "completed" in provenance.inputs
    assert rerun(clean, completed=completed) is None
    run(clean, BuildConfig(completed_above=0.9), completed=completed)
    left = {("index", 1), ("index", 2), ("train", 1), ("train", 2)}
    assert set(groups(load_hierarchy(clean.with_name("hierarchy.parquet")))) == left


def test_without_proposals_nothing_changes(clean: Path, completed: Path) -> None:
    out = clean.with_name("hierarchy.parquet")
    run(clean)
    before = out.read_bytes()
    assert "label_source" not in tables.read_table(out, tables.HIERARCHY).column_names
    run(clean, completed=completed)
    assert out.read_bytes() != before
    run(clean, BuildConfig(completed_above=0.5))
    assert out.read_bytes() == before


def test_official_files_leave_completed_landmarks_out(clean: Path, completed: Path) -> None:
    plain, marked = clean.with_name("plain"), clean.with_name("marked")
    run(clean, csv=plain)
    run(clean, completed=completed, csv=marked)
    names = sorted(path.name for path in marked.iterdir())
    assert names == ["index_label_to_hierarchical.csv", "train_label_to_hierarchical.csv"]
    for name in names:
        assert (marked / name).read_bytes() == (plain / name).read_bytes()


def test_several_groups_are_not_mixed_with_proposals(clean: Path, completed: Path) -> None:
    summary = run(clean, BuildConfig(multi=True, extra_levels=0), completed=completed)
    several = not_none(summary.several)
    assert (several.restored, several.with_several) == (1, 1)
    hierarchy = load_hierarchy(clean.with_name("hierarchy.parquet"))
    assert not_none(hierarchy.hierarchical_labels).tolist()[:2] == [("church",), ("bridge",)]


def test_proposals_alone_make_no_error_of_missing_labels(
    folder: Path, write_scraped: Callable[..., Path], write_completed: Callable[..., Path]
) -> None:
    clean_file([write_scraped([[WIDE], []])], folder / "clean.parquet")
    run(folder / "clean.parquet", completed=write_completed([("train", 2, "lake", 0.9)]))
    assert groups(load_hierarchy(folder)) == {("train", 2): ("lake", "photographs")}


def test_unknown_groups_and_scores_are_refused(clean: Path, write_completed: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match="proposes groups that the taxonomy does not have: castle"):
        run(clean, completed=write_completed([("train", 5, "castle", 0.9)]))
    with pytest.raises(ConfigurationError, match=r"`completed_above` is 1\.5"):
        BuildConfig(completed_above=1.5)


def test_selections_and_edits_keep_the_source(clean: Path, completed: Path) -> None:
    run(clean, completed=completed)
    hierarchy = load_hierarchy(clean.with_name("hierarchy.parquet"))
    assert set(groups(hierarchy.filter(label_sources="photographs")).values()) == {
        ("bridge", "photographs"),
        ("church", "photographs"),
        ("lake", "photographs"),
    }
    assert len(hierarchy.filter(label_sources=["instance_of"])) == 3
    merged = hierarchy.merge(["lake", "mountain"], "nature")
    assert groups(merged)["train", 5] == ("nature", "photographs")
    assert Hierarchy.from_pandas(hierarchy.to_pandas()) == hierarchy
    with pytest.raises(ConfigurationError, match="there is no label source people; expected instance_of or photo"):
        hierarchy.filter(label_sources=["people"])
    run(clean)
    plain = load_hierarchy(clean.with_name("hierarchy.parquet"))
    assert plain.filter(label_sources=["instance_of"]) == plain
    with pytest.raises(ConfigurationError, match="no landmark is left"):
        plain.filter(label_sources=["photographs"])


def test_stats_count_completed_landmarks(clean: Path, completed: Path) -> None:
    run(clean, completed=completed)
    stats = hierarchy_stats(load_hierarchy(clean.with_name("hierarchy.parquet")))
    assert stats.from_photographs == {"train": 2, "index": 1}
    assert "2 train landmarks take their group from photographs, not from a label" in format_stats(stats, "landmarks")


def steps(clean: Path, landmark: int, split: str = "train") -> dict[str, str]:
    folder = clean.parent
    annotations = {"decisions": folder / "decisions.csv", "taxonomy": folder / "taxonomy.csv"}
    (trace,) = trace_landmark(folder / "hierarchy.parquet", landmark, split, **annotations)
    return dict(trace.steps)


def test_why_names_the_votes_and_the_nearest_landmarks(clean: Path, completed: Path) -> None:
    run(clean, completed=completed)
    assert {name: text for name, text in steps(clean, 5).items() if name not in ("category", "page", "item")} == {
        "statement": "none",
        "proposal": "lake, score 0.80, 2.5 of 3 votes of its photographs; second bridge, 0.5",
        "nearest": "train/1 (lake, 0.75)",
        "source": "photographs, not a label: the proposal of hgld complete, taken from a score of 0.8 on",
        "group": "lake",
        "root": "natural",
    }
    dropped = steps(clean, 3)
    assert (dropped["label"], dropped["decision"], dropped["group"]) == (
        "building",
        "drop, by ben, 2026-03-01T12:00:00Z",
        "church",
    )
    assert dropped["source"].startswith("photographs, not a label")
    labelled = steps(clean, 1)
    assert "proposal" not in labelled
    assert "source" not in labelled
    assert steps(clean, 6)["proposal"] == "none: no photographs of it are embedded"
    assert steps(clean, 6)["hierarchy"].startswith("not in it: removed by hgld clean as unlabelled")


def test_why_says_if_the_proposals_are_gone_or_others(
    clean: Path, completed: Path, write_completed: Callable[..., Path]
) -> None:
    run(clean, completed=completed)
    write_completed([("train", 5, "lake", 0.9)])
    assert "was built from other completed than" in steps(clean, 5)["note"]
    completed.unlink()
    assert steps(clean, 5)["source"].endswith("0.8 on; it is in no completed.parquet of the folder")


def test_command_takes_proposals(clean: Path, completed: Path) -> None:
    folder = clean.parent
    command = ["build", clean, "-o", folder / "out.parquet", "--completed", completed, "--completed-above", "0.9"]
    options = ["--decisions", folder / "decisions.csv", "--taxonomy", folder / "taxonomy.csv"]
    assert "  1 take their group from photographs" in run_hgld(*command + options).stdout
    result = run_hgld(*command[:-1], "2", *options, code=1)
    assert result.stderr == "error: --completed-above is 2.0; expected a score from 0 to 1\n"
