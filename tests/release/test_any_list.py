"""Releases of lists that are not landmarks, and what they say."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from hgld import tables
from hgld.hierarchy import Hierarchy, load_hierarchy
from hgld.release.publish import verify_checksums
from hgld.tables import Provenance
from tests.commands import run_hgld
from tests.hierarchy.test_any_list import build
from tests.hub_server import Hub
from tests.release.conftest import CROISSANT_WARNINGS, load_with_datasets

pytestmark = CROISSANT_WARNINGS

#: What no release may say of another list. The vocabulary of the metadata is that of mlcommons.org.
OF_LANDMARKS = re.compile("landmark|gldv2|google|(?<!ml)commons|natural|human-made|hierarchical_label", re.IGNORECASE)
BIRDS = {
    "split": ["north wing", "north wing", "north/wing", "2024"],
    "id": ["c/1", "o 1", "c/1", "p"],
    "page": ["https://www.wikidata.org/wiki/Q26198", None, None, "https://www.wikidata.org/wiki/Q25485"],
    "label": ["carrion crow", "barn owl", "hooded crow", "great tit"],
    "genus": ["Corvus", "Tyto", "Corvus", "Parus"],
    "sub family": ["Corvinae", "Tytoninae", "Corvinae", "Parinae"],
    "order": ["Passeriformes", "Strigiformes", "Passeriformes", "Passeriformes"],
}


@pytest.fixture
def birds(tmp_path: Path) -> Path:
    """Return a hierarchy without decisions, from the classes on Wikidata."""
    path = tmp_path / "Birds of two wings" / "hierarchy.parquet"
    path.parent.mkdir()
    rows = Hierarchy.from_arrow(pa.table(BIRDS)).to_arrow()
    tables.write_table(path, tables.HIERARCHY, rows, Provenance("build", {"levels_from": "parents"}))
    return path


def hgld(*arguments: str | Path, answers: str = "") -> str:
    return run_hgld(*arguments, input=answers).stdout


def texts(folder: Path) -> dict[str, str]:
    """Return all files as text; of tables, the columns with their metadata."""
    return {
        path.relative_to(folder).as_posix(): pq.read_schema(path).to_string()
        if path.suffix == ".parquet"
        else path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_list_is_released_with_suggested_answers_and_says_nothing_of_landmarks(birds: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert hgld("release", birds, "--init", "--yes") == f"{birds.with_name('release.yaml')}\n"
    printed = hgld("release", birds, "-o", out)
    assert printed == f"2024 1, north wing 2, north/wing 1 entities in 3 groups; 8 files, valid Croissant\n{out}\n"
    assert verify_checksums(out) == ([], [])
    files = texts(out)
    assert [path for path in files if path.startswith("data/")] != []
    assert {path for path in files if "/" in path} == {
        "data/2024.parquet", "data/north_wing.parquet", "data/north_wing_2.parquet"
    }  # fmt: skip
    assert not {name: found[0] for name, text in files.items() if (found := OF_LANDMARKS.search(text))}
    assert load_hierarchy(out) == load_hierarchy(birds)

    card = yaml.safe_load(files["README.md"].split("---\n")[1])
    assert [part["split"] for part in card["configs"][0]["data_files"]] == ["2024", "north_wing", "north_wing_2"]
    assert [column["name"] for column in card["dataset_info"]["features"]] == [*BIRDS]
    assert card["annotations_creators"] == ["found"]
    for row in (
        "| order | 2024 | north wing | north/wing | sub family | genus |",
        "| all | 1 | 2 | 1 | 3 | 3 |",
        "| Passeriformes | 1 | 1 | 1 | 2 | 2 |",
        "| Corvus | Corvinae | Passeriformes | 0 | 1 | 1 | 2 | carrion crow, hooded crow |",
        "| `sub family` | Level above genus. |",
    ):
        assert row in files["README.md"]
    assert "Decide. Groups and levels are the classes above each label on Wikidata" in files["README.md"]
    assert "Scrape." not in files["README.md"]
    assert "`page`, for 2 entities;" in files["datasheet.md"]


def test_a_large_list_is_counted_and_its_largest_groups_are_named(birds: Path, tmp_path: Path) -> None:
    groups = [f"group {number:04}" for number in range(501) for _ in range(3 if number == 7 else 2)]
    n = len(groups)
    columns = {
        "split": ["train"] * n,
        "id": list(range(n)),
        "page": pa.nulls(n, pa.string()),
        "label": groups,
        "group": groups,
        "root": [f"root {int(name[-4:]) % 6}" for name in groups],
    }
    rows = Hierarchy.from_arrow(pa.table(columns)).to_arrow()
    tables.write_table(birds, tables.HIERARCHY, rows, Provenance("build"))
    hgld("release", birds, "--init", "--yes")
    hgld("release", birds, "-o", tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "\nsize_categories:\n- 1K<n<10K\n" in card
    assert (
        "(group 0007, group 0000, group 0001, ...), and every group to a root (root 1 or root 0 or root 2 or ...)."
        in card
    )
    assert "\n\nThe 500 largest ones:\n\n| group | root | train | labels | most frequent labels |\n" in card
    named = re.findall(r"^\| (group \d+) \|", card, re.MULTILINE)
    assert (len(named), named[0], named[-1]) == (500, "group 0007", "group 0499")
    counts = ["| root | train | group |", "| --- | --: | --: |", "| all | 1,003 | 501 |", "| root 1 | 169 | 84 |"]
    assert "\n".join(counts) in card


@pytest.mark.parametrize("ids", [BIRDS["id"], [7, 8, 7, 9]], ids=["text", "numbers"])
def test_croissant_has_the_levels_and_reads_every_row(
    birds: Path, tmp_path: Path, ids: list[str] | list[int]
) -> None:
    import mlcroissant

    rows = Hierarchy.from_arrow(pa.table({**BIRDS, "id": ids})).to_arrow()
    tables.write_table(birds, tables.HIERARCHY, rows, Provenance("build"))
    hgld("release", birds, "--init")
    hgld("release", birds, "-o", tmp_path / "out")
    dataset = mlcroissant.Dataset(jsonld=tmp_path / "out" / "croissant.json")
    assert not dataset.metadata.ctx.issues.errors
    found = [
        [value.decode() if isinstance(value, bytes) else value for value in record.values()]
        for split in ("2024", "north_wing", "north_wing_2")
        for record in dataset.records(split)
    ]
    assert [[None if value != value else value for value in row] for row in found] == [
        [*row.values()] for row in rows.to_pylist()
    ]
    described = json.loads((tmp_path / "out" / "croissant.json").read_text())
    assert "rai:dataAnnotationProtocol" not in described, "nobody knows"


@pytest.mark.slow
def test_hugging_face_datasets_loads_every_split(birds: Path, tmp_path: Path) -> None:
    hgld("release", birds, "--init", "--yes")
    hgld("release", birds, "-o", tmp_path / "out")
    splits = load_with_datasets(tmp_path / "out", tmp_path / "cache")
    assert [*splits] == ["2024", "north_wing", "north_wing_2"]
    assert [row for rows in splits.values() for row in rows] == load_hierarchy(birds).to_arrow().to_pylist()


def test_the_plural_is_the_one_of_the_project_file(birds: Path) -> None:
    hgld("release", birds, "--init", answers="Cities\ncity\n\n1.0.0\n\nAda\n")
    facts = yaml.safe_load(birds.with_name("release.yaml").read_text(encoding="utf-8"))
    assert (facts["entity"], facts["entities"]) == ("city", "cities")


def test_paintings_are_called_so_and_released_with_decisions_and_scraped_values(
    paintings: Path, tmp_path: Path
) -> None:
    build(paintings)
    built, out = paintings / "hierarchy.parquet", tmp_path / "out"
    hgld("release", built, "--init", answers="Genres of paintings\npainting\n\n2.0.1\n\nAda, Zoë\n")
    facts = yaml.safe_load(built.with_name("release.yaml").read_text(encoding="utf-8"))
    assert (facts["entities"], facts["version"], facts["creators"]) == ("paintings", "2.0.1", ["Ada", "Zoë"])
    assert "date" not in facts or facts["date"] is None, "that of the decisions"
    assert "louvre 2, prado 1 paintings in 3 groups" in hgld("release", built, "-o", out, "--with-scraped")
    files = texts(out)
    assert {"decisions.csv", "taxonomy.csv", "raw/scraped.parquet", "raw/removed.parquet"} <= {*files}
    documents = {name: files[name] for name in ("README.md", "datasheet.md", "LICENSE", "croissant.json")}
    assert not {name: found[0] for name, text in documents.items() if (found := OF_LANDMARKS.search(text))}
    card = documents["README.md"]
    for text in (
        "# Genres of paintings 2.0.1",
        "Every painting belongs to a group (altarpieces, portraits, views, ...)",
        ", and every group to a root (world or heaven). The levels are `genre`, `subject` and `realm`.",
        "1. Scrape. Values of Wikidata were read. 5 paintings, ",
        "2. Clean. A painting has one relevant label. Of 5 paintings: 3 kept, 1 multiple, 1 unlabelled.",
        "Decisions are those of ada.",
        "4. Build. Painting, label, genre, subject, realm.",
        "One person decided on the label",
    ):
        assert text in card
    assert 'datePublished": "2026-03-01' in documents["croissant.json"]


@pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")
def test_a_release_is_pushed_with_a_tag_that_never_changes(birds: Path, hub: Hub, tmp_path: Path) -> None:
    out = tmp_path / "out"
    hgld("release", birds, "--init", "--yes")
    hgld("release", birds, "-o", out)
    assert ", tagged v1.0.0\n" in hgld("push-dataset", out, "ada/birds", "--private")
    repository = hub.repositories["datasets/ada/birds"]
    assert hub.head("datasets/ada/birds").keys() - {".gitattributes"} == texts(out).keys()
    assert hgld("push-dataset", out, "ada/birds") == "ada/birds: up to date\n"
    (out / "README.md").write_text("mine")
    assert "files are not those of hgld release" in run_hgld("push-dataset", out, "a/b", code=1).output
    facts = birds.with_name("release.yaml")
    facts.write_text(facts.read_text().replace("entity: entity", "entity: bird"))
    hgld("release", birds, "-o", out, "--force")
    refused = run_hgld("push-dataset", out, "ada/birds", code=1).output
    assert "v1.0.0 is published with other files; raise the version" in refused
    facts.write_text(facts.read_text().replace("version: 1.0.0", "version: 1.1.0"))
    hgld("release", birds, "-o", out)
    hgld("push-dataset", out, "ada/birds")
    assert [*repository.tags] == ["v1.0.0", "v1.1.0"]
