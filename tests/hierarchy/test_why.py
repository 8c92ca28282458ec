import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from hgld import tables
from hgld.errors import InputError
from hgld.hierarchy.build_inputs import find_annotations
from hgld.hierarchy.settings import BuildConfig
from hgld.hierarchy.why import trace_landmark
from hgld.labels.clean import clean_file
from hgld.resources import annotation_file
from hgld.taxonomy.label_identity import label_id
from tests.commands import run_hgld
from tests.hierarchy.conftest import ATTRACTION, BRIDGE, CHURCH, LAKE, VOLCANO, WIDE, run
from tests.labels.label_tables import PROVENANCE


@pytest.fixture
def built(folder: Path, write_scraped: Callable[..., Path]) -> Path:
    """Landmarks that are in, dropped, undecided, and removed for each reason; every table beside."""
    train = write_scraped([[LAKE], [WIDE], [VOLCANO], [BRIDGE, LAKE], [ATTRACTION], []])
    index = write_scraped([[CHURCH]], "index")
    clean_file([train, index], folder / "clean.parquet", irrelevant=folder / "irrelevant.csv")
    row = {
        "label_id": "Q23397",
        "label": "lake",
        "landmarks_train": 1,
        "landmarks_index": 0,
        "cluster": 3,
        "cluster_name": "lake / river",
        "subcluster": 2,
        "distance": 0.5,
        "suggested_group": None,
        "suggestion_score": None,
        "suggestions": [],
    }
    clusters = pa.Table.from_pylist([row], schema=tables.CLUSTERS.schema)
    tables.write_table(folder / "clusters.parquet", tables.CLUSTERS, clusters, PROVENANCE)
    run(folder / "clean.parquet", BuildConfig(allow_undecided=True), force=True)
    return folder / "hierarchy.parquet"


def steps(hierarchy: Path, landmark: int, annotations: Path | None = None) -> dict[str, str]:
    """The trace of a landmark of train, with the decisions and the taxonomy in ``annotations``."""
    folder = annotations or hierarchy.parent
    files = {"decisions": folder / "decisions.csv", "taxonomy": folder / "taxonomy.csv"}
    (trace,) = trace_landmark(hierarchy, landmark, "train", **files)
    return dict(trace.steps)


def test_trace_lists_all_stages(built: Path) -> None:
    assert steps(built, 1) == {
        "category": "http://commons.wikimedia.org/wiki/Category:L1",
        "page": "Category:Landmark 1 (soft_redirect from Category:L1; api, 2026-03-01)",
        "item": "Q1, revision 1",
        "statement": "instance of lake (Q23397)",
        "class": "Q23397",
        "label": "lake",
        "cluster": "3, sub-cluster 2: lake / river",
        "decision": "group: lake, by ada, 2026-03-01T12:00:00Z",
        "comment": "clear",
        "guideline": "Standing water.",
        "group": "lake",
        "root": "natural",
    }


@pytest.mark.parametrize(
    ("landmark", "why"),
    [
        (2, "its label is dropped"),
        (3, "its label is undecided"),
        (4, "removed by hgld clean as multiple"),
        (5, "removed by hgld clean as irrelevant"),
        (6, "removed by hgld clean as unlabelled"),
    ],
)
def test_trace_names_the_stage_that_excluded_a_landmark(built: Path, landmark: int, why: str) -> None:
    assert why in steps(built, landmark)["hierarchy"]
    assert "root" not in steps(built, landmark)


def test_trace_shows_comment_on_undecided_label(built: Path) -> None:
    result = steps(built, 3)
    assert result["decision"] == "unsure: volcano, by ada, 2026-03-01T12:00:00Z"
    assert result["comment"] == "or a mountain?"
    assert result["cluster"] == f"unknown: the label is not in {built.with_name('clusters.parquet')}"


def test_trace_shows_further_groups_and_extra_levels(built: Path) -> None:
    classes = pa.Table.from_pylist(
        [{"item": "Q23397", "label": "lake", "language": None, "subclass_of": []}], schema=tables.CLASSES.schema
    )
    tables.write_table(built.with_name("x.classes.parquet"), tables.CLASSES, classes, PROVENANCE)
    run(built.parent / "clean.parquet", BuildConfig(allow_undecided=True, multi=True, extra_levels=1), force=True)
    result = steps(built, 4)
    assert (result["class"], result["group"], result["further groups"]) == ("Q12280", "bridge", "lake")
    assert result["extra level 1"] == "bridge"


def test_trace_notes_changed_decisions(built: Path) -> None:
    assert "note" not in steps(built, 1)
    decisions = built.with_name("decisions.csv")
    decisions.write_text(decisions.read_text().replace("clear", "quite clear"))
    assert steps(built, 1)["note"].startswith(f"{built} was built from other decisions than {decisions}")


def test_files_of_the_build_are_found_by_their_content(built: Path) -> None:
    moved = built.with_name("decisions") / "ada.csv"
    moved.parent.mkdir()
    built.with_name("decisions.csv").rename(moved)
    (trace,) = trace_landmark(built, 1, "train")
    assert dict(trace.steps)["decision"] == "group: lake, by ada, 2026-03-01T12:00:00Z"
    assert "note" not in dict(trace.steps)
    moved.write_text(moved.read_text().replace("clear", "quite clear"))
    assert find_annotations(built) == {"taxonomy": built.with_name("taxonomy.csv")}
    # Then the decisions that come with hgld are read, which have other groups than this taxonomy.
    with pytest.raises(InputError, match=re.escape(str(annotation_file("decisions/final.csv")))):
        trace_landmark(built, 1, "train")


def test_trace_names_missing_tables(built: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    alone = tmp_path_factory.mktemp("alone") / "hierarchy.parquet"
    alone.write_bytes(built.read_bytes())
    result = steps(alone, 1, built.parent)
    assert result["page"] == result["item"] == result["statement"] == "unknown: no scraped*.parquet in the folder"
    assert result["class"] == "unknown: no clean.parquet and no scraped*.parquet in the folder"
    assert result["cluster"] == "unknown: no clusters.parquet in the folder"
    assert result["group"] == "lake"
    # Found by its text, for the item is not known without the other tables.
    assert result["decision"].startswith("group: lake")
    expected = ["clean.parquet", "removed.parquet", "completed.parquet", "scraped*.parquet"]
    others = f"is in none of {alone}; there is no {' and no '.join(expected)} in {alone.parent}"
    with pytest.raises(InputError, match=f"^landmark 99 of train {re.escape(others)}$"):
        steps(alone, 99, built.parent)
    alone.unlink()
    all_tables = ", ".join(["hierarchy.parquet", *expected])
    message = f"there are no tables in {alone.parent} to find landmark 1 of train in; expected {all_tables}"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        steps(alone, 1, built.parent)


@pytest.mark.parametrize(
    ("renamed", "step"),
    [
        ("clusters", ("cluster", "unknown: no clusters.parquet in the folder")),
        ("hierarchy", ("hierarchy", "unknown, no hierarchy.parquet in the folder; its label has a group")),
        ("scraped_train", ("statement", "unknown: no scraped*.parquet in the folder")),
    ],
)
def test_trace_names_a_table_that_has_another_name(built: Path, renamed: str, step: tuple[str, str]) -> None:
    built.with_name("scraped_index.parquet").unlink()
    built.with_name(f"{renamed}.parquet").rename(built.with_name(f"my_{renamed}.parquet"))
    name, text = step
    assert steps(built, 1)[name].startswith(text)


def test_trace_of_an_excluded_landmark_names_the_tables_that_would_tell(built: Path) -> None:
    built.with_name("removed.parquet").rename(built.with_name("out.parquet"))
    assert steps(built, 6)["hierarchy"] == (
        "not in it: in neither clean.parquet nor removed.parquet of the folder, so the stage that excluded it is "
        "unknown"
    )


def test_why_command_prints_both_splits(built: Path) -> None:
    folder = built.parent
    options = ["--hierarchy", built, "--decisions", folder / "decisions.csv", "--taxonomy", folder / "taxonomy.csv"]
    first, second = run_hgld("why", 1, *options).stdout.split("\n\n")
    assert first.splitlines()[0] == "index 1"
    assert second.splitlines()[:2] == ["train 1", "  category   http://commons.wikimedia.org/wiki/Category:L1"]
    assert second.splitlines()[-1] == "  root       natural"
    assert "landmark 99 of train is in none of" in run_hgld("why", 99, "--split", "train", *options, code=1).output


def test_trace_of_a_plain_list_whose_groups_have_no_guideline(tmp_path: Path) -> None:
    products, tree = tmp_path / "products.csv", tmp_path / "tree.csv"
    products.write_text("id,label\n1,brie\n2,comte\n3,lemon\n")
    tree.write_text("path\ncheese > soft\ncheese > hard\n")
    run_hgld("labels", products, "--id", "id", "--label", "label", "-o", tmp_path / "clean.parquet")
    run_hgld("taxonomy", "import", tree, "-o", tmp_path / "taxonomy.csv")
    header = "label_id,label,decision,group,annotator,decided_at,blind,comment\n"
    rows = [
        f"{label_id(label, None)},{label},group,{group},ada,2026-01-01T00:00:00Z,yes,\n"
        for label, group in (("brie", "soft"), ("comte", "hard"))
    ]
    (tmp_path / "decisions.csv").write_text("".join([header, *rows]))
    files = ["--decisions", tmp_path / "decisions.csv", "--taxonomy", tmp_path / "taxonomy.csv"]
    hierarchy = tmp_path / "hierarchy.parquet"
    run_hgld("build", tmp_path / "clean.parquet", *files, "--allow-undecided", "-o", hierarchy)
    shown = run_hgld("why", 1, "--hierarchy", hierarchy).output
    assert [line.split(maxsplit=1) for line in shown.splitlines()] == [
        ["all", "1"],
        ["label", "brie"],
        ["cluster", "unknown: no clusters.parquet in the folder"],
        ["decision", "group: soft, by ada, 2026-01-01T00:00:00Z"],
        ["group", "soft"],
        ["level1", "cheese"],
    ]
    assert run_hgld("why", 3, "--hierarchy", hierarchy).output.splitlines()[-1].split(maxsplit=1) == [
        "hierarchy",
        "not in it: its label is undecided",
    ]


def test_id_may_be_typed_in_another_form_of_unicode(tmp_path: Path) -> None:
    (tmp_path / "products.csv").write_text("id,label\nbrie-\u00e9,brie\n", encoding="utf-8")
    run_hgld("labels", tmp_path / "products.csv", "--id", "id", "--label", "label", "-o", tmp_path / "clean.parquet")
    (trace,) = trace_landmark(tmp_path / "hierarchy.parquet", "brie-e\u0301")
    assert (trace.landmark_id, trace.steps[0]) == ("brie-\u00e9", ("label", "brie"))


def test_trace_says_why_the_class_of_a_label_is_unknown(built: Path, write_scraped: Callable[..., Path]) -> None:
    write_scraped([[(None, "lake")]])
    built.with_name("clean.parquet").unlink()
    assert steps(built, 1)["class"] == "unknown: the label has no item"
