import csv
import json
import re
import shutil
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from hgld import tables
from hgld.benchmark.statistics import compare
from hgld.cli.hierarchy import format_release
from hgld.errors import BusyError, ConfigurationError, InputError
from hgld.hierarchy import load_hierarchy
from hgld.hierarchy.build import build_file
from hgld.hierarchy.settings import BuildConfig
from hgld.io.files import sha256_of
from hgld.io.folder_replacement import folder_draft
from hgld.io.locks import exclusive_lock
from hgld.io.settings import read_settings, to_dict, to_yaml
from hgld.labels.clean import clean_file
from hgld.labels.settings import CleanConfig
from hgld.release import croissant
from hgld.release.facts import ORIGINS, ReleaseSettings, annotations_creators, count_origins
from hgld.release.publish import ReleaseSummary, verify_checksums, write_release
from hgld.resources import subset_file
from hgld.taxonomy.decisions import Decision
from tests.assertions import not_none
from tests.child_processes import run_child, run_script
from tests.commands import run_hgld
from tests.evaluation.sample_results import result
from tests.hierarchy.conftest import (
    BRIDGE,
    CHURCH,
    LAKE,
    MOUNTAIN,
    VOLCANO,
    WIDE,
    scraped_file,
    write_annotations,
)
from tests.release.conftest import CROISSANT_WARNINGS, FACTS, load_with_datasets

pytestmark = CROISSANT_WARNINGS


#: What the tables of the fixtures record of their source.
SCRAPED_FROM = "5 landmarks, 2026-03-01: The APIs of Wikidata and Wikimedia Commons. 2 landmarks, 2026-03-01"


@pytest.fixture(scope="module")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a hierarchy of both splits, with one train landmark in two groups, and its release."""
    folder = write_annotations(tmp_path_factory.mktemp("built") / "own")
    train = scraped_file(folder, [[LAKE], [MOUNTAIN], [CHURCH], [LAKE], [BRIDGE, LAKE]])
    index = scraped_file(folder, [[CHURCH], [BRIDGE]], "index")
    clean_file([train, index], folder / "clean.parquet", CleanConfig(), irrelevant=folder / "irrelevant.csv")
    build(folder, BuildConfig(multi=True))
    release(folder / "hierarchy.parquet", folder.parent / "release")
    return folder.parent


@pytest.fixture
def built(built_once: Path, tmp_path: Path) -> Path:
    """Return the hierarchy, which a test may change."""
    return shutil.copytree(built_once / "own", tmp_path, dirs_exist_ok=True) / "hierarchy.parquet"


def build(folder: Path, config: BuildConfig, **further: Path) -> None:
    further = files(folder) | {"irrelevant": folder / "irrelevant.csv"} | further
    build_file(folder / "clean.parquet", folder / "hierarchy.parquet", config, **further)  # type: ignore[arg-type]


def files(folder: Path) -> dict[str, Path]:
    return {"decisions": folder / "decisions.csv", "taxonomy": folder / "taxonomy.csv"}


def release(built: Path, out: Path, settings: ReleaseSettings = FACTS, **options: Any) -> ReleaseSummary | None:
    return write_release(built, out, settings, **(files(built.parent) | options))


def with_facts(**facts: Any) -> ReleaseSettings:
    return ReleaseSettings.model_validate(to_dict(FACTS) | facts)


@pytest.fixture
def released(built_once: Path, tmp_path: Path) -> Path:
    return shutil.copytree(built_once / "release", tmp_path / "release")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_release_contains_all_label_files_with_decisions_and_taxonomy(released: Path, built: Path) -> None:
    assert sorted(contents(released)) == [
        *("LICENSE", "README.md", "checksums.sha256", "croissant.json", "data/index.parquet"),
        *("data/train.parquet", "datasheet.md", "decisions.csv", "index_label_to_hierarchical.csv"),
        "suprank/index_label_to_subcategory_with_clusters.csv",
        *("suprank/train_label_to_subcategory_with_clusters.csv", "taxonomy.csv"),
        "train_label_to_hierarchical.csv",
    ]
    for name in ("decisions.csv", "taxonomy.csv"):
        assert (released / name).read_bytes() == (built.parent / name).read_bytes()
    landmarks = load_hierarchy(built)
    parts = [load_hierarchy(released / "data" / f"{split}.parquet") for split in ("index", "train")]
    assert [len(part) for part in parts] == [2, 5]
    assert load_hierarchy(released) == landmarks
    shutil.rmtree(released / "data")
    assert np.array_equal(load_hierarchy(released).labels, landmarks.labels), "from the official files"


def test_same_input_gives_same_bytes_in_another_folder(built: Path, released: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(built.parent, tmp_path / "elsewhere" / "copy", ignore=shutil.ignore_patterns("elsewhere"))
    release(moved / built.name, tmp_path / "another" / "name")
    assert contents(tmp_path / "another" / "name") == contents(released)
    assert not any(str(tmp_path).encode() in content for content in contents(released).values())


def test_checksums_detect_changes(released: Path) -> None:
    assert verify_checksums(released) == ([], [])
    if shutil.which("sha256sum"):
        run_child(["sha256sum", "--check", "--strict", "--quiet", "checksums.sha256"], cwd=released)
    (released / "README.md").write_text("mine")
    (released / "LICENSE").unlink()
    (released / "data" / "more.csv").write_text("1")
    assert verify_checksums(released) == (["data/more.csv"], ["LICENSE", "README.md"])


def test_unchanged_release_is_up_to_date(built: Path, released: Path) -> None:
    def written() -> tuple[int, ...]:
        stat = (released / "README.md").stat()
        return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns

    before = written()
    assert release(built, released) is None
    assert written() == before
    summary = not_none(release(built, released, force=True))
    assert format_release(summary) == "train 5, index 2 landmarks in 4 groups; 13 files, valid Croissant"


def test_release_replaces_an_earlier_one(built: Path, released: Path) -> None:
    build(built.parent, BuildConfig())
    assert release(built, released, NEXT) is not None
    assert "# Lakes and more 1.1.0" in (released / "README.md").read_text()
    assert verify_checksums(released) == ([], [])
    assert not list(released.parent.glob(".*")), "no draft remains beside it"


def test_foreign_files_are_never_lost(built: Path, released: Path, tmp_path: Path) -> None:
    (released / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"not written by hgld release; move them away:\n  notes\.txt"):
        release(built, released, force=True)
    (released / "notes.txt").unlink()
    (released / "README.md").write_text("mine")
    with pytest.raises(InputError, match=r"changed since hgld release wrote them[^\n]*\n  README\.md"):
        release(built, released)
    assert (released / "README.md").read_text() == "mine"
    assert release(built, released, force=True) is not None

    other = tmp_path / "other"
    other.mkdir()
    assert release(built, other) is not None, "an empty folder may be replaced"
    (other / "checksums.sha256").unlink()
    with pytest.raises(InputError, match="not written by hgld release \\(no"):
        release(built, other, force=True)
    with pytest.raises(InputError, match="a file of this name exists"):
        release(built, released / "README.md", force=True)


def test_failed_release_keeps_the_earlier_one(built: Path, released: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(released)
    monkeypatch.setattr(croissant, "_croissant_metadata", lambda *_, **__: {"@type": "sc:Dataset"})
    with pytest.raises(InputError, match=r"croissant\.json: invalid Croissant"):
        release(built, released, with_facts(version="2.0.0"))
    assert contents(released) == before
    assert not list(released.parent.glob(".*"))


KILLED = """
import shutil, sys
from pathlib import Path
from hgld.release import croissant
from tests.kill_points import kill_points, killed_before_change
from tests.release.test_publish import NEXT, contents, release

built, earlier, later, home = map(Path, sys.argv[1:])
out = home / "release"
croissant._is_valid_croissant = lambda path: False  # which only reads, for a second

def prepare():
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(earlier, out)

def write():
    release(built, out, NEXT)

for number in kill_points(write, home, prepare):
    assert not out.exists() or contents(out) in (contents(earlier), contents(later)), number
    assert not killed_before_change(10_000, write, home)
    assert contents(out) == contents(later)
    assert [path.name for path in home.iterdir()] == ["release"], number
print(number)
"""
NEXT = with_facts(version="1.1.0")


@pytest.mark.slow
def test_killed_release_is_whole_and_the_next_one_cleans_up(built: Path, released: Path, tmp_path: Path) -> None:
    release(built, tmp_path / "later", NEXT)
    arguments = (built, released, tmp_path / "later", tmp_path / "home")
    assert int(run_script(KILLED, *arguments)) > 20


def test_releases_at_the_same_time_do_not_disturb_each_other(built: Path, released: Path) -> None:
    with exclusive_lock(released), folder_draft(released) as draft:
        with pytest.raises(BusyError, match="another run is writing"):
            release(built, released, NEXT)
        assert draft.is_dir()
    assert release(built, released, NEXT) is not None


def test_decisions_and_taxonomy_are_those_of_the_build(built: Path, released: Path, tmp_path: Path) -> None:
    write_release(built, tmp_path / "found", FACTS)
    assert contents(tmp_path / "found") == contents(released)
    for name in ("decisions", "taxonomy"):
        other = tmp_path / f"other_{name}.csv"
        other.write_bytes((built.parent / f"{name}.csv").read_bytes() + b"\n")
        options: dict[str, Any] = {name: other}
        with pytest.raises(InputError, match=f"not built with .*other_{name}.*`{name}`.*, or build again"):
            release(built, tmp_path / "not built", **options)
    assert not (tmp_path / "not built").exists()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("name", '"a\\nb"', "expected one line"),
        ("version", "1.0.0.0", "three numbers such as 1.0.0"),
        (
            "licence",
            "CC BY 4.0",
            'an identifier of SPDX such as CC-BY-4.0, found "CC BY 4.0"; did you mean CC-BY-4.0',
        ),
        ("licence", "CC-BY", "did you mean CC-BY-4.0"),
        ("licence", "CC0", "did you mean CC0-1.0"),
        ("licence", "odbl", "did you mean ODbL-1.0"),
        ("licence", "gpl-3.0", "did you mean GPL-3.0-only or GPL-3.0-or-later"),
        ("licence", "MIT OR Apache-2.0", "an identifier of SPDX"),
        ("licence", "LicenseRef-Mine", "an identifier of SPDX"),
        ("url", "example.org", "https://"),
        ("date", "2026-3-1", "date"),
        ("date", "2026-02-30", "day is out of range"),
        ("creators", "[]", "at least 1 item"),
        ("ids", "", "ids: is missing"),
    ],
)
def test_invalid_facts_are_refused(tmp_path: Path, key: str, value: str, message: str) -> None:
    text = re.sub(f"(?m)^{key}:.*(\n[ -].*)*$", lambda _: f"{key}: {value}", to_yaml(FACTS))
    (tmp_path / "release.yaml").write_text(text)
    with pytest.raises((ConfigurationError, InputError), match=f"release.yaml.*{message}"):
        read_settings(ReleaseSettings, tmp_path / "release.yaml")


def test_suprank_code_can_read_its_label_files(released: Path) -> None:
    # The steps of suprank/datasets/gldv2.py of elias-ramzi/SupRank, on images of five landmarks.
    images = pd.DataFrame({"landmark_id": [1, 2, 3, 5, 77], "images": ["a b", "c", "d", "e", "f"]})
    path = released / "suprank" / "train_label_to_subcategory_with_clusters.csv"
    labels = pd.read_csv(path)[["landmark_id", "cluster", "overall_cluster"]]
    for column in ("cluster", "overall_cluster"):
        ids = {name: number for number, name in enumerate(sorted(labels[column].dropna().unique()))}
        labels[f"{column}_id"] = labels[column].map(ids)
    merged = images.merge(labels, on="landmark_id", how="left")
    assert merged["cluster"].fillna("").tolist() == ["lake", "mountain", "church", "bridge", ""]
    assert merged["overall_cluster_id"].fillna(-1).tolist() == [1, 1, 0, 0, -1]
    assert path.read_text(encoding="utf-8").startswith("landmark_id,cluster,overall_cluster\n1,lake,natural\n")


@pytest.mark.slow
def test_hugging_face_datasets_loads_the_folder(released: Path, tmp_path: Path) -> None:
    splits = load_with_datasets(released, tmp_path / "cache")
    assert list(splits) == ["train", "index"]
    for split, rows in splits.items():
        assert rows == pq.read_table(released / "data" / f"{split}.parquet").to_pylist()


def test_duckdb_and_pandas_read_the_folder(released: Path) -> None:
    import duckdb

    query = "SELECT hierarchical_label, count(*) FROM read_parquet(?) GROUP BY ALL ORDER BY ALL"
    with duckdb.connect() as connection:
        counts = connection.execute(query, [f"{released}/data/*.parquet"]).fetchall()
    assert counts == [("bridge", 2), ("church", 2), ("lake", 2), ("mountain", 1)]
    frame = pd.read_parquet(released / "data")
    assert frame.groupby("hierarchical_label").size().to_dict() == dict(counts)
    assert frame.loc[frame["landmark_id"] == 5, "hierarchical_labels"].item().tolist() == ["bridge", "lake"]


def test_croissant_reads_every_row_of_both_splits(released: Path) -> None:
    import mlcroissant

    dataset = mlcroissant.Dataset(jsonld=released / "croissant.json")
    assert not dataset.metadata.ctx.issues.errors
    assert not dataset.metadata.ctx.issues.warnings
    for split in ("train", "index"):
        rows = pq.read_table(released / "data" / f"{split}.parquet").to_pylist()
        records = [
            {name.removeprefix(f"{split}/"): decoded(value) for name, value in record.items()}
            for record in dataset.records(split)
        ]
        assert records == rows


def decoded(value: Any) -> Any:
    """Decode the strings, which mlcroissant returns as bytes."""
    if isinstance(value, list | np.ndarray):
        return [decoded(part) for part in value]
    return value.decode() if isinstance(value, bytes) else value


def test_croissant_lists_files_with_digests(released: Path) -> None:
    described = json.loads((released / "croissant.json").read_text(encoding="utf-8"))
    for file in described["distribution"]:
        path = released / file["contentUrl"]
        assert file["sha256"] == sha256_of(path)
        assert file["contentSize"] == f"{path.stat().st_size} B"
    assert described["datePublished"] == "2026-03-01"
    assert [person["name"] for person in described["creator"]] == ["Zoë"]


def test_summary_says_if_croissant_was_not_checked(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlcroissant", None)
    summary = not_none(release(built, tmp_path / "release"))
    assert "not checked (pip install '.[croissant]' in a clone of hgld)" in format_release(summary)


def test_card_states_counts_and_provenance(released: Path, built: Path) -> None:
    card = (released / "README.md").read_text(encoding="utf-8")
    assert "| train | 5 | 3 | 2 |\n| index | 2 | 0 | 2 |\n| groups | 4 | 2 | 2 |" in card
    assert "| church | human-made | 1 | 1 | 1 | church building |" in card
    assert "6 labels were decided on 2026-03-01 (4 group, 1 drop, 1 unsure)." in card
    assert sha256_of(built.parent / "decisions.csv") in card
    assert 'split="train")' in card, "the first split is the example"
    for name in contents(released).keys() - {"README.md", "checksums.sha256"}:
        assert f"| `{name}` |" in card
    for name in ("README.md", "datasheet.md", "LICENSE"):
        assert not re.search(r"\$[a-z_]", (released / name).read_text(encoding="utf-8")), "an unfilled placeholder"


@pytest.fixture
def uneven(folder: Path) -> Path:
    """Return a release of groups of unequal sizes, one of them with four labels, decided on in three days."""
    further = [("Q108325", "chapel"), ("Q160742", "abbey"), ("Q44613", "monastery")]
    chapel, abbey, monastery = further
    with (folder / "decisions.csv").open("a", encoding="utf-8") as stream:
        for day, (item, label) in enumerate(further, 2):
            stream.write(f"{item},{label},group,church,ada,2026-03-0{day}T12:00:00Z,,\n")
    train = scraped_file(folder, [[MOUNTAIN], [CHURCH], [chapel], [chapel], [abbey], [LAKE], [LAKE]])
    index = scraped_file(folder, [[monastery], [chapel], [LAKE], [BRIDGE], [WIDE]], "index")
    clean_file([train, index], folder / "clean.parquet", CleanConfig(), irrelevant=folder / "irrelevant.csv")
    build(folder, BuildConfig())
    release(
        folder / "hierarchy.parquet", folder / "release", with_facts(keywords=["lakes", "a: b"], creators=["Z", "A"])
    )
    return folder / "release"


def test_documents_list_what_is_largest_first(uneven: Path) -> None:
    card, datasheet = ((uneven / name).read_text(encoding="utf-8") for name in ("README.md", "datasheet.md"))
    assert (
        "belongs to a group (church, lake, bridge, ...), and every group to a root (natural or human-made)." in card
    )
    groups = [
        "| group | root | train | index | labels | most frequent labels |",
        "| --- | --- | --- | --- | --- | --- |",
        "| church | human-made | 4 | 2 | 4 | chapel, abbey, church building |",
        "| lake | natural | 2 | 1 | 1 | lake |",
        "| bridge | human-made | 0 | 1 | 1 | bridge |",
        "| mountain | natural | 1 | 0 | 1 | mountain |",
    ]
    assert f"## Groups\n\n{chr(10).join(groups)}\n\n## Construction\n\nA list of our own.\n\n1. Scrape." in card
    counts = "| train | 7 | 3 | 4 |\n| index | 4 | 1 | 3 |\n| groups | 4 | 2 | 2 |\n"
    for text in (card, datasheet):
        assert f"\n\n|  | all | natural | human-made |\n| --- | --: | --: | --: |\n{counts}\n" in text
        assert "9 labels were decided from 2026-03-01 to 2026-03-04 (7 group, 1 drop, 1 unsure)." in text
        assert "Decisions are those of ada, ben." in text
        written_by = re.findall("^`hgld ([a-z]+)`, version ", text, re.MULTILINE)
        assert written_by == ["test", "test", "clean", "build"]
    # The shares 6/11, 3/11, 1/11 and 1/11 have an entropy of 1.121 and a Gini coefficient of 34/88.
    assert (
        "The largest group, church, contains 54.5% of the landmarks. The 4 groups are as imbalanced as\n3.1 " in card
    )
    assert "entropy; Gini coefficient 0.39)." in card
    assert "Groups are imbalanced: church alone contains 54.5% of the landmarks." in datasheet
    assert "\n2. Clean. A landmark has one relevant label. Of 12 landmarks: 12 kept.\n3. Decide. " in card
    assert (
        "\n4. Build. Landmark, label, group, root. 11 of these 12 landmarks have a group; left out are 1 whose label "
        "was dropped.\n" in card
    )
    assert "**Who created it?** Z, A. " in datasheet
    assert "**Are there recommended splits?** train and index; " in datasheet
    assert "from 2026-03-04 on." in datasheet


def test_header_of_the_card_describes_the_files(uneven: Path) -> None:
    header = yaml.safe_load((uneven / "README.md").read_text(encoding="utf-8").split("---\n")[1])
    texts = ["split", "landmark_id", "category", "supercategory", "hierarchical_label", "natural_or_human_made"]
    assert header == {
        "pretty_name": "Lakes and more",
        "license": "cc0-1.0",
        "language": ["en"],
        "annotations_creators": ["expert-generated"],
        "task_categories": ["image-feature-extraction", "image-classification"],
        "tags": ["image-retrieval", "hierarchical-labels", "lakes", "a: b"],
        "size_categories": ["n<1K"],
        "configs": [
            {
                "config_name": "default",
                "data_files": [{"split": split, "path": f"data/{split}.parquet"} for split in ("train", "index")],
            }
        ],
        "dataset_info": {
            "features": [{"name": name, "dtype": "int64" if name == "landmark_id" else "string"} for name in texts]
        },
    }


def test_sections_have_an_order(uneven: Path) -> None:
    card, datasheet = ((uneven / name).read_text(encoding="utf-8") for name in ("README.md", "datasheet.md"))
    assert re.findall("^## (.*)", card, re.MULTILINE) == [
        *("Use", "Columns", "Files", "Groups", "Construction", "Known limitations", "Licence", "Citation"),
    ]
    assert re.findall("^## (.*)", datasheet, re.MULTILINE) == [
        *("Motivation", "Composition", "Collection process", "Preprocessing, cleaning, labelling", "Uses"),
        *("Distribution", "Maintenance"),
    ]


def test_croissant_describes_splits_and_columns_in_their_order(uneven: Path) -> None:
    described = json.loads((uneven / "croissant.json").read_text(encoding="utf-8"))
    assert [file["@id"] for file in described["distribution"]] == sorted(
        contents(uneven).keys() - {"LICENSE", "README.md", "croissant.json", "datasheet.md", "checksums.sha256"}
    )
    formats = {"parquet": "application/x-parquet", "csv": "text/csv"}
    for file in described["distribution"]:
        assert file["encodingFormat"] == formats[file["name"].rpartition(".")[2]]
    for part, split in zip(described["recordSet"], ("train", "index"), strict=True):
        assert (part["@id"], part["description"]) == (split, f"The {split} landmarks, sorted by landmark_id.")
        assert part["key"] == [{"@id": f"{split}/split"}, {"@id": f"{split}/landmark_id"}]
        columns = pq.read_schema(uneven / "data" / f"{split}.parquet").names
        assert [field["source"]["extract"]["column"] for field in part["field"]] == columns
        assert {field["source"]["fileObject"]["@id"] for field in part["field"]} == {f"data/{split}.parquet"}
        assert [field["dataType"] for field in part["field"]] == [
            "sc:Integer" if name == "landmark_id" else "sc:Text" for name in columns
        ]
    assert described["rai:dataAnnotationProtocol"].startswith("several annotators (1 landmarks): ")
    assert [creator["name"] for creator in described["creator"]] == ["Z", "A"]
    assert (described["url"], described["version"]) == ("https://example.org/lakes", "1.0.0")
    assert described["keywords"] == ["lakes", "a: b"]


def test_card_says_how_models_do(built: Path, released: Path, tmp_path: Path) -> None:
    before = (released / "README.md").read_text()
    path = tmp_path / "results.parquet"
    small, large = ({"H-AP": value, "R@1": 0.5, "mistake_severity": 1.0} for value in (0.25, 0.75))
    compare([result("small", small), result("large", large)]).to_parquet(path)
    release(built, released, models=path)
    card = (released / "README.md").read_text()
    rows = [
        "| large | 75.0 [no interval] | 50.0 [no interval] |",
        "| small | 25.0 [no interval] | 50.0 [no interval] |",
    ]
    table = "\n".join(["| model | H-AP | R@1 |", "| --- | --: | --: |", *rows])
    assert f"\n## How models do on it\n\n{table}\n\nIn %" in card
    assert re.sub(r"\n## How models.*?\n(?=\n## Known)", "", card, flags=re.DOTALL) == before
    with pytest.raises(InputError, match="csv: lacks columns of a comparison .metric, name, mean, low, high.; name"):
        release(built, released, models=built.with_name("decisions.csv"))
    compared: dict[str, list[Any]] = {
        "metric": ["AP_l1", "R@1", "R@1", "R@10", "AP_l1"],
        "name": ["b", "b", "a", "a", "a"],
    }
    compared |= {"mean": [0.5, 0.25, 0.75, 1.0, 0.625], "low": [0.4] * 5, "high": [0.6, 0.3, 0.8, 1.0, 0.7]}
    pq.write_table(pa.table(compared), path)
    release(built, released, models=path)
    rows = ["| a | 62.5 [40.0, 70.0] | 75.0 [40.0, 80.0] |", "| b | 50.0 [40.0, 60.0] | 25.0 [40.0, 30.0] |"]
    table = "\n".join(["| model | AP_l1 | R@1 |", "| --- | --: | --: |", *rows])
    assert f"\n\n{table}\n\nIn %" in (released / "README.md").read_text(), "the best first by the first metric"
    compare([result("small", {"NDCG": 0.5})]).to_parquet(path)
    with pytest.raises(
        InputError, match="has none of the metrics H-AP, AP, mAP@R and R@1 to show; compare the models"
    ):
        release(built, released, models=path)


@pytest.mark.parametrize(
    ("licence", "header"),
    [
        ("CC-BY-4.0", ["cc-by-4.0"]),
        ("ODbL-1.0", ["odbl"]),
        ("ODC-By-1.0", ["odc-by"]),
        ("PDDL-1.0", ["pddl"]),
        ("GPL-3.0-only", ["gpl-3.0"]),
        ("LGPL-3.0-or-later", ["lgpl-3.0"]),
        ("GFDL-1.3-no-invariants-or-later", ["gfdl"]),
        ("C-UDA-1.0", ["c-uda"]),
        ("etalab-2.0", ["etalab-2.0"]),
        ("CC-BY-1.0", ["other", "cc-by-1.0", "https://spdx.org/licenses/CC-BY-1.0.html"]),
    ],
)
def test_card_names_the_licence_as_the_hub_does(built: Path, tmp_path: Path, licence: str, header: list[str]) -> None:
    release(built, tmp_path / "release", with_facts(licence=licence.swapcase()))
    card = (tmp_path / "release" / "README.md").read_text(encoding="utf-8")
    fields = yaml.safe_load(card.split("---\n")[1])
    assert [fields[name] for name in ("license", "license_name", "license_link") if name in fields] == header
    assert f"\n{licence}, see `LICENSE`" in card
    described = json.loads((tmp_path / "release" / "croissant.json").read_text(encoding="utf-8"))
    assert described["license"] == f"https://spdx.org/licenses/{licence}.html"


def test_name_is_escaped_in_every_document(built: Path, tmp_path: Path) -> None:
    name = 'A "quoted": name, $version'
    release(built, tmp_path / "release", with_facts(name=name))
    assert json.loads((tmp_path / "release" / "croissant.json").read_text(encoding="utf-8"))["name"] == name
    card = (tmp_path / "release" / "README.md").read_text(encoding="utf-8")
    assert f"pretty_name: {json.dumps(name)}\n" in card
    assert f"# {name} 1.0.0\n" in card


def test_release_of_one_split_does_not_mention_the_other(built: Path, tmp_path: Path) -> None:
    landmarks = load_hierarchy(built).filter(splits=["index"]).to_arrow()
    tables.write_table(built, tables.HIERARCHY, landmarks, tables.read_provenance(built))
    summary = not_none(release(built, tmp_path / "release"))
    assert summary.landmarks == {"index": 2}
    assert "train" not in "".join(contents(tmp_path / "release"))
    described = json.loads((tmp_path / "release" / "croissant.json").read_text(encoding="utf-8"))
    assert [part["name"] for part in described["recordSet"]] == ["index"]


def test_command_writes_the_release(built: Path, tmp_path: Path) -> None:
    command = ["release", built, "-o", tmp_path / "out"]
    assert "release.yaml: no such file; --init writes it" in run_hgld(*command, code=1).output
    built.with_name("release.yaml").write_text(to_yaml(FACTS), encoding="utf-8")
    assert "valid Croissant" in run_hgld(*command).output
    assert run_hgld(*command).output == f"{tmp_path / 'out'}: up to date\n"


def test_questions_are_answered_from_tables_only(built: Path) -> None:
    def ask() -> tuple[dict[str, Any], str]:
        run_hgld("release", built, "--init")
        text = facts.read_text(encoding="utf-8")
        facts.unlink()
        return yaml.safe_load(text), text

    facts = built.with_name("release.yaml")
    answers, text = ask()
    assert list(answers) == list(ReleaseSettings.model_fields)
    assert not re.search("gldv2|google", text, re.IGNORECASE)
    suggested = {"name": built.parent.name, "entity": "landmark", "entities": "landmarks", "licence": "CC-BY-4.0"}
    suggested |= {"description": "7 labelled entries of a list, each with its group and root."}
    suggested |= {"ids": "The id of the list, a whole number."}
    known = {"version": "1.0.0", "creators": ["ada", "ben"], "keywords": [], "raw": False}
    known |= {"unconfirmed": ["description", "creators", "licence", "ids"]}
    assert {key: value for key, value in answers.items() if value not in (None, "")} == known | suggested

    # Landmarks of GLDv2, whose ids and categories are known; with another category, the ids are not GLDv2's.
    with subset_file("washington/train_label_to_category.csv").open(encoding="utf-8", newline="") as stream:
        known_landmarks = list(csv.DictReader(stream))[:5]
    landmarks = load_hierarchy(built).filter(splits=["train"]).to_arrow()
    for column in ("landmark_id", "category"):
        field = landmarks.schema.field(column)
        values = pa.array([row[column] for row in known_landmarks]).cast(field.type)
        landmarks = landmarks.set_column(landmarks.column_names.index(column), field, values)
    provenance = tables.read_provenance(built)
    tables.write_table(built, tables.HIERARCHY, landmarks, provenance)
    answers, _ = ask()
    assert "GLDv2" in answers["ids"]
    assert (answers["name"], answers["url"]) == (built.parent.name, None), "it is not H-GLDv2"
    rows = landmarks.to_pylist()
    rows[2]["category"] += "_2"
    tables.write_table(built, tables.HIERARCHY, pa.Table.from_pylist(rows, landmarks.schema), provenance)
    assert "GLDv2" not in ask()[0]["ids"]


def test_questions_never_replace_answers(built: Path) -> None:
    built.with_name("release.yaml").write_text("name: mine\n")
    assert "release.yaml exists" in run_hgld("release", built, "--init", code=1).output
    assert built.with_name("release.yaml").read_text() == "name: mine\n"


def test_release_says_of_its_sources_what_its_tables_and_facts_say(
    built: Path, released: Path, tmp_path: Path
) -> None:
    for name, content in contents(released).items():
        shown = pq.read_schema(released / name).to_string() if name.endswith(".parquet") else content.decode()
        assert not re.search("gldv2|google", shown, re.IGNORECASE), name
    card, datasheet = ((released / name).read_text(encoding="utf-8") for name in ("README.md", "datasheet.md"))
    assert SCRAPED_FROM in card
    assert SCRAPED_FROM in datasheet
    assert "Of 7 landmarks: 6 kept, 1 multiple." in card
    answers = to_dict(FACTS)
    for key in ("purpose", "funding", "source", "ids", "images", "annotators", "ethics", "uses", "maintenance"):
        assert answers[key] in datasheet, key
    for key in ("description", "source", "ids", "images"):
        assert answers[key] in card, key
    built.with_name("scraped_train.parquet").unlink()
    release(built, tmp_path / "release")
    assert "so their source is not recorded" in (tmp_path / "release" / "README.md").read_text(encoding="utf-8")


def test_values_that_version_0_2_0_read_from_a_dump_are_released(folder: Path, tmp_path: Path) -> None:
    path = scraped_file(folder, [[LAKE], [MOUNTAIN]])
    rows = pq.read_table(path)
    for name, values in {"source": ["api", "dump"], "route": ["direct", "hard_redirect+commons_category"]}.items():
        rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), pa.array(values))
    pq.write_table(rows, path)
    clean_file([path], folder / "clean.parquet", CleanConfig(), irrelevant=folder / "irrelevant.csv")
    build(folder, BuildConfig())
    release(folder / "hierarchy.parquet", tmp_path / "release")
    card = (tmp_path / "release" / "README.md").read_text(encoding="utf-8")
    assert "2026-03-01: The APIs of Wikidata and Wikimedia Commons, A dump of Wikidata." in card


def build_with_undecided(folder: Path, *, multi: bool = False) -> Path:
    """Build from landmarks of which one is dropped and three are undecided; an annotator is unsure of two."""
    scraped = scraped_file(
        folder, [[LAKE], [MOUNTAIN], [VOLCANO], [VOLCANO], [WIDE], [("Q99", "odd thing")], [LAKE, BRIDGE]]
    )
    clean_file([scraped], folder / "clean.parquet", CleanConfig(), irrelevant=folder / "irrelevant.csv", force=True)
    build(folder, BuildConfig(allow_undecided=True, multi=multi))
    return folder / "hierarchy.parquet"


def in_one_line(path: Path) -> str:
    return " ".join(path.read_text(encoding="utf-8").split())


@pytest.mark.parametrize("multi", [False, True])
def test_documents_count_what_is_left_out(folder: Path, tmp_path: Path, multi: bool) -> None:
    release(build_with_undecided(folder, multi=multi), tmp_path / "release")
    card, datasheet = (in_one_line(tmp_path / "release" / name) for name in ("README.md", "datasheet.md"))
    for text in (card, datasheet):
        assert "Of 7 landmarks: 6 kept, 1 multiple." in text
        assert (
            "2 of these 6 landmarks have a group; left out are 1 whose label was dropped and 3 whose label is "
            "undecided (2 labels)." in text
        )
    assert "Every label is assigned to a group, or dropped, except 2 undecided labels." in card
    assert "Left out: 3 landmarks whose label is undecided (2 labels). The build excluded undecided labels." in card
    assert "labelled are excluded, also 3 landmarks whose label is undecided (2 labels)." in datasheet
    assert "groups of `taxonomy.csv` or dropped, except 2 undecided labels." in datasheet


def test_documents_say_if_what_is_left_out_is_not_known(folder: Path, tmp_path: Path) -> None:
    built = build_with_undecided(folder)
    built.with_name("clean.parquet").unlink()
    release(built, tmp_path / "release")
    card, datasheet = (in_one_line(tmp_path / "release" / name) for name in ("README.md", "datasheet.md"))
    for text in (card, datasheet):
        assert "Left out are landmarks whose label is undecided; how many is not recorded" in text
    assert "Every label is assigned to a group, or dropped, except undecided labels." in card
    assert "or dropped, except undecided labels." in datasheet


def test_documents_of_a_complete_build_say_nothing_of_undecided_labels(released: Path) -> None:
    card, datasheet = (in_one_line(released / name) for name in ("README.md", "datasheet.md"))
    assert "undecided" not in card.replace('"allow_undecided": false', "")
    assert "undecided" not in datasheet.replace('"allow_undecided": false', "")
    assert "Every label is assigned to a group, or dropped." in card
    assert "Each remaining label was assigned to one of the groups of `taxonomy.csv` or dropped." in datasheet


def test_suggestions_that_nobody_confirmed_are_published_as_such(
    built: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    facts = built.with_name("release.yaml")
    run_hgld("release", built, "--init", "--yes")
    assert yaml.safe_load(facts.read_text())["unconfirmed"] == ["description", "creators", "licence", "ids"]
    run_hgld("release", built, "-o", tmp_path / "out")
    assert "the documents say that nobody has confirmed description, creators, licence and ids" in caplog.text
    for name in ("README.md", "datasheet.md"):
        text = in_one_line(tmp_path / "out" / name)
        assert (
            "hgld suggested these facts, and nobody has confirmed them: description, creators, licence, ids." in text
        )
        assert text.count("which hgld suggested and nobody has confirmed") == 1, "at the licence"
    assert "which hgld suggested and nobody has confirmed" in in_one_line(tmp_path / "out" / "LICENSE")
    assert "Who funded it?** Not stated." in in_one_line(tmp_path / "out" / "datasheet.md")

    text = facts.read_text()
    facts.write_text(re.sub("unconfirmed:\\n(- .*\\n)*", "unconfirmed: [ids]\n", text))
    run_hgld("release", built, "-o", tmp_path / "out")
    assert "nobody has confirmed them: ids." in in_one_line(tmp_path / "out" / "README.md")
    assert "nobody has confirmed" not in (tmp_path / "out" / "LICENSE").read_text()
    facts.write_text(re.sub("unconfirmed:.*\\n", "", facts.read_text()))
    caplog.clear()
    run_hgld("release", built, "-o", tmp_path / "out")
    assert "confirmed" not in caplog.text
    for name, content in contents(tmp_path / "out").items():
        assert b"confirmed" not in content, name
    facts.write_text(facts.read_text() + "\nunconfirmed: [license]\n")
    assert "license" in run_hgld("release", built, "-o", tmp_path / "out", code=1).output


def test_answers_confirm_suggestions(built: Path) -> None:
    """An empty line takes a suggestion that somebody has read; what is not asked for, nobody has read."""
    run_hgld("release", built, "--init", input="Mine\n\n\n\n\n\n\n")
    answers = yaml.safe_load(built.with_name("release.yaml").read_text())
    assert (answers["name"], answers["licence"]) == ("Mine", "CC-BY-4.0")
    assert answers["unconfirmed"] == ["ids"]


def test_raw_values_and_removed_landmarks_are_released_if_wanted(built: Path, tmp_path: Path) -> None:
    release(built, tmp_path / "release", with_facts(raw=True))
    for name in ("scraped_train.parquet", "scraped_index.parquet", "removed.parquet"):
        assert (tmp_path / "release" / "raw" / name).read_bytes() == built.with_name(name).read_bytes()
        assert f"| `raw/{name}` |" in (tmp_path / "release" / "README.md").read_text(encoding="utf-8")
    built.with_name("removed.parquet").unlink()
    with pytest.raises(InputError, match="lacks scraped or removed tables"):
        release(built, tmp_path / "release", with_facts(raw=True))


def test_landmarks_with_a_group_from_photographs_are_marked_everywhere(
    built: Path, tmp_path: Path, write_completed: Callable[..., Path]
) -> None:
    plain, marked = tmp_path / "plain", tmp_path / "marked"
    release(built, plain)
    build(built.parent, BuildConfig(multi=True), completed=write_completed([("train", 9, "lake", 0.85)]))
    release(built, marked)
    sources = pd.read_parquet(marked / "data" / "train.parquet").set_index("landmark_id")["label_source"]
    assert sources.to_dict() == {**dict.fromkeys([1, 2, 3, 4, 5], "instance_of"), 9: "photographs"}
    for name in ("train_label_to_hierarchical.csv", "suprank/train_label_to_subcategory_with_clusters.csv"):
        assert (marked / name).read_bytes() == (plain / name).read_bytes()
    card, card_without = ((out / "README.md").read_text(encoding="utf-8") for out in (marked, plain))
    text = " ".join(card.split())
    assert (
        "The groups of 1 landmarks (12.5%; `label_source` is `photographs`) are predictions from photographs" in text
    )
    assert "calibrated on labelled landmarks, is at least 80%" in text
    assert "`label_source`" in card
    assert "photographs" not in card_without.partition("## Construction")[2].partition("## Licence")[0].replace(
        "content of a photograph", ""
    )


# Origins of groups


def decide(label: str, group: str, annotator: str, label_id: str = "") -> Decision:
    return Decision(
        label_id or f"label-{label}", label, "group", group, annotator, datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
    )


def landmarks(*rows: tuple[str, str]) -> pa.Table:
    return pa.Table.from_pylist([{"supercategory": label, "hierarchical_label": group} for label, group in rows])


def counts(hierarchy: pa.Table, *decisions: Decision) -> dict[str, int]:
    return {origin.name: n for origin, n in count_origins(hierarchy, decisions).items()}


@pytest.mark.parametrize(
    ("annotator", "origin"),
    [
        ("ada+ben", "several annotators"),
        ("ada", "one annotator"),
        ("ada+seed", "one annotator"),
        ("machine+ada", "one annotator"),
        ("seed", "draft"),
        ("machine", "draft"),
        ("machine+seed", "draft"),
    ],
)
def test_origin_follows_from_the_people_who_decided(annotator: str, origin: str) -> None:
    assert counts(landmarks(("lake", "lake")), decide("lake", "lake", annotator)) == {origin: 1}


def test_least_reliable_decision_on_a_label_counts() -> None:
    decisions = [decide("temple", "temple", "ada+ben", "Q1"), decide("Temple", "temple", "seed", "Q2")]
    assert counts(landmarks(("temple", "temple"), ("temple", "temple")), *decisions) == {"draft": 2}
    # Decisions for another group do not fit, and of a renamed label only the group is known.
    decisions = [decide("temple", "temple", "ada+ben"), decide("temple", "church", "seed", "Q2")]
    assert counts(landmarks(("temple", "temple"), ("shrine", "church")), *decisions) == {
        "several annotators": 1,
        "draft": 1,
    }


def test_groups_from_photographs_have_an_origin_of_their_own() -> None:
    hierarchy = landmarks(("lake", "lake"), ("lake", "lake"))
    sources = pa.array(["instance_of", "photographs"])
    hierarchy = hierarchy.append_column("label_source", sources)
    assert counts(hierarchy, decide("lake", "lake", "ada")) == {"one annotator": 1, "photographs": 1}


def test_terms_are_those_of_the_hugging_face_hub() -> None:
    assert annotations_creators(ORIGINS) == ["expert-generated", "found", "machine-generated"]
    package = find_spec("datasets")
    if package is None or package.origin is None:
        pytest.skip("datasets is not installed")
    vocabulary = json.loads((Path(package.origin).parent / "utils/resources/creators.json").read_text())
    assert {origin.creator for origin in ORIGINS} <= set(vocabulary["annotations"])


@pytest.mark.parametrize(
    ("names", "creators"),
    [
        ({}, ["expert-generated"]),
        ({"ada+ben": "seed", "ada": "seed", "ben": "machine"}, ["machine-generated"]),
        ({"ben": "seed"}, ["expert-generated", "machine-generated"]),
    ],
)
def test_documents_state_who_decided(
    folder: Path, write_scraped: Callable[..., Path], names: dict[str, str], creators: list[str]
) -> None:
    decisions = folder / "decisions.csv"
    lines = decisions.read_text().splitlines()
    for number, line in enumerate(lines[1:], 1):
        for name, replacement in names.items():
            line = line.replace(f",{name},", f",{replacement},")
        lines[number] = line
    decisions.write_text("\n".join([*lines, ""]))
    scraped = write_scraped([[LAKE], [MOUNTAIN], [CHURCH], [LAKE], [BRIDGE]])
    clean_file([scraped], folder / "clean.parquet", irrelevant=folder / "irrelevant.csv")
    build(folder, BuildConfig())
    release(folder / "hierarchy.parquet", folder / "release")

    card, datasheet = ((folder / "release" / name).read_text() for name in ("README.md", "datasheet.md"))
    croissant = json.loads((folder / "release" / "croissant.json").read_text())
    assert yaml.safe_load(card.split("---")[1])["annotations_creators"] == creators
    people = [] if "expert-generated" not in creators else ["ada", "ben"]
    protocol = croissant["rai:dataAnnotationProtocol"]
    assert ("rai:machineAnnotationTools" in croissant) == ("machine-generated" in creators)
    for text in (card, datasheet):
        if people:
            assert f"Decisions are those of {', '.join(people)}." in text
        else:
            assert "No annotator has reviewed the labels." in text
            assert "expert" not in text
    if not names:
        assert "| several annotators | Two or more people gave the landmark's label the same group. | " in card
        assert "| expert-generated | 1 |" in card
        assert protocol.startswith("several annotators (1 landmarks): ")
        assert "one annotator (4 landmarks)" in protocol
    elif not people:
        assert "| machine-generated | 5 |" in card
    else:
        assert "draft (1 landmarks)" in protocol
