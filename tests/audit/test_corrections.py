"""From photographs that contradict a group to a corrected hierarchy: the queue, the page with undo, build, why."""

import datetime
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from selenium.webdriver import Chrome

from hgld.hierarchy import load_hierarchy
from hgld.hierarchy.compare import compare_files
from hgld.io.settings import to_yaml
from hgld.tables import CLEAN, CLUSTERS, HIERARCHY, Provenance, read_provenance, read_table, write_table
from hgld.tables.embeddings import write_embeddings
from hgld.taxonomy.decisions import Decision, read_decisions, write_decisions
from tests.assertions import not_none
from tests.commands import run_hgld
from tests.release.conftest import FACTS
from tests.review.page.page_server import Server
from tests.review.page.tab import open_tab, wait_for
from tests.review.photograph_files import jpeg, write_photographs

LAKE, LAGOON, RESERVOIR = ("Q23397", "lake"), ("Q187223", "lagoon"), ("Q131681", "reservoir")
MOUNTAIN, SUMMIT = ("Q8502", "mountain"), ("Q207326", "summit")
#: Label of each landmark, and what its photographs look like: both reservoirs and landmark 8 are contradicted.
LANDMARKS = {
    1: (LAKE, "lake"),
    2: (LAKE, "lake"),
    3: (LAKE, "lake"),
    4: (RESERVOIR, "mountain"),
    5: (RESERVOIR, "mountain"),
    6: (MOUNTAIN, "mountain"),
    7: (MOUNTAIN, "mountain"),
    8: (MOUNTAIN, "lake"),
    **dict.fromkeys(range(9, 17), (SUMMIT, "mountain")),
    **dict.fromkeys((17, 18), (LAGOON, "lake")),
    **dict.fromkeys((19, 20), (MOUNTAIN, "mountain")),
}
N_IMAGES = 4
WHEN = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.timezone.utc)


def run(*arguments: str | Path) -> str:
    return run_hgld(*arguments).output


def refused(*arguments: str | Path) -> str:
    return run_hgld(*arguments, code=1).output


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A hierarchy of lakes and mountains with its tables, photographs, manifest and embeddings."""
    rows = [
        {
            "split": "train",
            "landmark_id": number,
            "category": f"http://commons.wikimedia.org/wiki/Category:Place_{number}",
            "supercategory": label,
            "class_item": item,
        }
        for number, ((item, label), _) in LANDMARKS.items()
    ]
    table = CLEAN.schema.empty_table().from_pylist(rows, CLEAN.schema)
    write_table(tmp_path / "clean.parquet", CLEAN, table, Provenance("clean", {}, {}))
    groups = {LAKE: "lake", LAGOON: "lake", RESERVOIR: "lake", MOUNTAIN: "mountain", SUMMIT: "mountain"}
    decided = [Decision(*label, "group", group, "ben", WHEN) for label, group in groups.items()]
    write_decisions(tmp_path / "decisions.csv", decided)
    output = ("-o", tmp_path / "hierarchy.parquet")
    run("build", tmp_path / "clean.parquet", *output, "--decisions", tmp_path / "decisions.csv")

    colours = {"lake": jpeg("navy"), "mountain": jpeg("gray")}
    photographs = {
        f"{number}-{image}": colours[look] for number, (_, look) in LANDMARKS.items() for image in range(N_IMAGES)
    }
    write_photographs(tmp_path, dict.fromkeys(LANDMARKS, N_IMAGES), photographs)
    rng = np.random.default_rng(0)
    centres = {"lake": rng.normal(size=16), "mountain": rng.normal(size=16)}
    vectors = [
        2 * centres[look] + 0.4 * rng.normal(size=16) for _, look in LANDMARKS.values() for _ in range(N_IMAGES)
    ]
    write_embeddings(tmp_path / "e.npy", torch.from_numpy(np.stack(vectors)), [*photographs])
    files = ("--images", tmp_path / "images.parquet", "--hierarchy", tmp_path / "hierarchy.parquet")
    run("manifest", "gldv2", tmp_path, "--labels", tmp_path / "train.csv", *files, "-o", tmp_path / "m.parquet")
    return tmp_path


def queue(project: Path, hierarchy: str = "hierarchy.parquet") -> str:
    embeddings = ("--embeddings", project / "e.npy", "-o", project / "labels.csv")
    chosen = ("--queue", project / "recheck", "--hierarchy", project / hierarchy)
    return run("audit", "labels", project / "m.parquet", *embeddings, *chosen)


def correct(project: Path, *corrections: Decision) -> str:
    write_decisions(project / "corrections.csv", corrections)
    files = ("--decisions", project / "decisions.csv", "--corrections", project / "corrections.csv")
    return run("build", project / "clean.parquet", "-o", project / "corrected.parquet", *files)


def test_labels_and_single_landmarks_are_queued(project: Path) -> None:
    assert "to decide again: 1 label, 1 single landmark" in queue(project)
    entries = {row["label_id"]: row for row in read_table(project / "recheck/clusters.parquet", CLUSTERS).to_pylist()}
    assert {key: (row["label"], row["landmarks_train"]) for key, row in entries.items()} == {
        "Q131681": ("reservoir", 2),
        "train/8": ("Place 8 (mountain)", 1),
    }
    first, second = entries["train/8"]["suggestions"]
    assert (first["group"], second["group"]) == ("lake", "mountain")
    assert first["score"] > 0.9
    assert np.isnan(second["score"])
    assert second["reason"].startswith("the present group; ")
    clean = read_table(project / "recheck/clean.parquet", CLEAN).to_pylist()
    assert {row["landmark_id"]: row["class_item"] for row in clean} == {4: "Q131681", 5: "Q131681", 8: "train/8"}


def test_the_split_of_the_manifest_is_found_among_equal_ids(project: Path) -> None:
    """A later split with the same ids has other landmarks, whose groups are not those of the manifest."""
    path = project / "hierarchy.parquet"
    built = read_table(path, HIERARCHY)
    other_split = built.set_column(0, built.schema.field("split"), pa.array(["index"] * len(built)))
    level = built.column_names.index("hierarchical_label")
    other_split = other_split.set_column(level, built.schema.field(level), pa.array(["church"] * len(built)))
    table = pa.concat_tables([built, other_split])
    write_table(path, HIERARCHY, table, read_provenance(path))
    assert "to decide again: 1 label, 1 single landmark" in queue(project)


@pytest.mark.parametrize(("n_like_lakes", "first"), [(0, "Q131681"), (2, "train/8")])
def test_the_most_contradicted_are_first_in_the_queue(
    project: Path, monkeypatch: pytest.MonkeyPatch, n_like_lakes: int, first: str
) -> None:
    """Labels and single landmarks in one order: the label is contradicted less if some of its photographs fit."""
    vectors = np.load(project / "e.npy")
    contradicted = [row for row in range(len(vectors)) if row // N_IMAGES + 1 in (4, 5)]
    vectors[contradicted[:n_like_lakes]] = vectors[0]
    landmark_8 = slice(7 * N_IMAGES, 8 * N_IMAGES)
    if not n_like_lakes:
        vectors[landmark_8][0] = vectors[5 * N_IMAGES]
    np.save(project / "e.npy", vectors)
    monkeypatch.setattr("hgld.audit.review_queue.BATCH", 1)
    queue(project)
    rows = read_table(project / "recheck/clusters.parquet", CLUSTERS).to_pylist()
    (second,) = {"Q131681", "train/8"} - {first}
    assert [(row["label_id"], row["cluster"]) for row in rows] == [(first, 0), (second, 1)]


def test_a_corrected_landmark_is_queued_by_itself(project: Path) -> None:
    correct(project, Decision("train/4", "Place 4", "group", "mountain", "ada", WHEN))
    files = ("--images", project / "images.parquet", "--hierarchy", project / "corrected.parquet")
    run("manifest", "gldv2", project, "--labels", project / "train.csv", *files, "-o", project / "m.parquet")
    assert "to decide again: 0 labels, 2 single landmarks" in queue(project, "corrected.parquet")


def test_corrections_replace_decisions_on_labels_and_landmarks(project: Path) -> None:
    output = correct(
        project,
        Decision("Q131681", "reservoir", "group", "dam", "ada", WHEN, "walls"),
        Decision("train/8", "Place 8", "group", "lake", "ada", WHEN, "a lake below a mountain"),
        Decision("train/9", "Place 9", "drop", None, "ada", WHEN),
        Decision("train/7", "Place 7", "unsure", "lake", "ada", WHEN),
        Decision("train/6", "Place 6", "group", "mountain", "ada", WHEN, "it is right"),
        Decision("train/99", "Place 99", "group", "lake", "ada", WHEN),
    )
    assert "corrections moved 1 landmark to another group, excluded 1 and decided 1 label again" in output
    assert "1 correction of labels or landmarks that CLEAN lacks" in output
    rows = load_hierarchy(project / "corrected.parquet").to_arrow().to_pylist()
    groups = {row["landmark_id"]: (row["hierarchical_label"], row["label_source"]) for row in rows}
    assert groups == {
        **dict.fromkeys((1, 2, 3, 17, 18), ("lake", "instance_of")),
        **dict.fromkeys((4, 5), ("dam", "instance_of")),
        **dict.fromkeys((6, 7, *range(10, 17), 19, 20), ("mountain", "instance_of")),
        8: ("lake", "correction"),
    }
    assert next(row["supercategory"] for row in rows if row["landmark_id"] == 8) == "mountain"

    def why(number: int) -> str:
        return run("why", str(number), "--hierarchy", project / "corrected.parquet")

    assert "correction  group: lake, by ada" in why(8)
    assert "a lake below a mountain" in why(8)
    assert "decision    group: mountain, by ben" in why(8)
    assert "a correction of the landmark drops it" in why(9)
    assert "decision   group: dam, by ada" in why(4)

    changes = not_none(compare_files(project / "hierarchy.parquet", project / "corrected.parquet").explanation)
    assert {cause.cause: (cause.moved, cause.lost) for cause in changes.causes} == {"decisions": (3, 1)}


def test_wrong_inputs_are_explained(project: Path) -> None:
    arguments = ("audit", "labels", project / "m.parquet", "--embeddings", project / "e.npy", "-o", project / "l.csv")
    assert "--queue and --hierarchy go together" in refused(*arguments, "--queue", project / "recheck")
    correct(project, Decision("train/8", "Place 8", "group", "lake", "ada", WHEN))
    chosen = ("--queue", project / "recheck", "--hierarchy", project / "corrected.parquet")
    assert "no split with the landmarks of the manifest in the same groups" in refused(*arguments, *chosen)
    (project / "clean.parquet").unlink()
    chosen = ("--queue", project / "recheck", "--hierarchy", project / "hierarchy.parquet")
    assert "has no clean table that" in refused(*arguments, *chosen)


@pytest.mark.filterwarnings("ignore:ConjunctiveGraph is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The inplace keyword:DeprecationWarning")
def test_from_a_found_error_to_a_corrected_release(project: Path, browser: Chrome) -> None:
    queue(project)
    recheck = project / "recheck"
    images = ["--images", str(project / "images.parquet")]
    server = Server(["review", str(recheck / "clusters.parquet"), "--annotator", "ada", *images])
    try:
        with open_tab(browser, server.address) as tab:
            wait_for(lambda: len(tab.texts(".photographs img, .photograph img")) > 0, True)
            assert tab.current == "Q131681"
            tab.press("1")
            tab.wait_for_decisions(Q131681="✓ mountain")
            tab.press("z")  # a reservoir is a lake, whatever stands behind it
            tab.wait_for_decisions()
            assert tab.current == "Q131681"
            tab.press("2")
            tab.wait_for_decisions(Q131681="✓ lake")
            assert tab.current == "train/8"
            tab.press("1")
            tab.wait_for_decisions(**{"Q131681": "✓ lake", "train/8": "✓ lake"})
    finally:
        server.stop(signal.SIGINT)
    assert server.process.returncode == 0

    run("decisions", recheck / "review/ada.sqlite", "-o", project / "corrections.csv")
    assert {row.label_id: row.group for row in read_decisions(project / "corrections.csv", None)} == {
        "Q131681": "lake",
        "train/8": "lake",
    }
    files = ("--decisions", project / "decisions.csv", "--corrections", project / "corrections.csv")
    output = run("build", project / "clean.parquet", "-o", project / "hierarchy.parquet", *files)
    assert "corrections moved 1 landmark to another group, excluded 0 and decided 1 label again" in output
    assert "correction  group: lake, by ada" in run("why", "8", "--hierarchy", project / "hierarchy.parquet")
    (project / "release.yaml").write_text(to_yaml(FACTS), encoding="utf-8")
    run("release", project / "hierarchy.parquet", "-o", project / "release")
    official = (project / "release/train_label_to_hierarchical.csv").read_text()
    assert "8,http://commons.wikimedia.org/wiki/Category:Place_8,mountain,lake,natural" in official.replace('"', "")
    assert (project / "release/corrections.csv").read_bytes() == (project / "corrections.csv").read_bytes()
    card = (project / "release/README.md").read_text()
    assert "`corrections.csv`" in card
    assert "Of single entries, 1 was corrected." in (project / "release/datasheet.md").read_text() + card
