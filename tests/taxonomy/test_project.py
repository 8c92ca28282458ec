"""The project file, by which commands know the taxonomy and the words of a list without being told again."""

from pathlib import Path

import pyarrow as pa
import pytest

from hgld.errors import ConfigurationError
from hgld.resources import annotation_file
from hgld.tables import CLEAN, Provenance, write_table
from hgld.taxonomy.groups import find_taxonomy
from hgld.taxonomy.project import (
    PROJECT_FILE,
    Role,
    create_project,
    find_project_file,
    nouns_of,
    project_file_of,
    read_project,
    remember_in_project,
    words_of_list,
)
from tests.commands import run_hgld


def clean_table(path: Path, *, neutral: bool) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = {
        "split": "train",
        "landmark_id": 1,
        "category": "https://commons.wikimedia.org/wiki/Category:Brie",
        "supercategory": "soft cheese",
        "class_item": None,
        "source": "api",
    }
    table = pa.Table.from_pylist([{name: rows[name] for name in CLEAN.schema.names}], CLEAN.schema)
    write_table(path, CLEAN, table, Provenance("labels"), neutral=neutral)
    return path


@pytest.fixture
def cheeses(tmp_path: Path) -> Path:
    """Folder with a clean table of cheeses."""
    clean_table(tmp_path / "clean.parquet", neutral=True)
    return tmp_path


def test_the_nearest_project_file_counts(cheeses: Path) -> None:
    table = cheeses / "tables" / "clean.parquet"
    assert find_project_file(table) is None
    for name in ("outer.csv", "inner.csv"):
        (cheeses / name).touch()
    (cheeses / PROJECT_FILE).write_text("taxonomy: outer.csv\n")
    assert find_taxonomy(None, table).resolve() == cheeses / "outer.csv"
    (cheeses / "tables").mkdir()
    (cheeses / "tables" / PROJECT_FILE).write_text("taxonomy: ../inner.csv\n")
    assert find_taxonomy(None, table).resolve() == cheeses / "inner.csv"


@pytest.mark.parametrize(
    ("role", "name"),
    [("taxonomy", "taxonomy.csv"), ("decisions", "decisions/final.csv"), ("irrelevant", "irrelevant_labels.csv")],
)
def test_files_of_gldv2_are_for_gldv2_alone(cheeses: Path, tmp_path: Path, role: Role, name: str) -> None:
    landmarks = clean_table(tmp_path / "gldv2" / "clean.parquet", neutral=False)
    assert project_file_of(role, landmarks) == annotation_file(name)
    assert project_file_of(role, cheeses / "clean.parquet") is None
    (tmp_path / "gldv2" / PROJECT_FILE).write_text(f"{role}: mine.csv\n")
    with pytest.raises(ConfigurationError, match=f"hgld.yaml: {role}: .*mine.csv: no such file; correct it, or give"):
        project_file_of(role, landmarks)
    (tmp_path / "gldv2" / "mine.csv").touch()
    own = project_file_of(role, landmarks)
    assert own is not None
    assert own.resolve() == tmp_path / "gldv2" / "mine.csv"


def test_a_list_without_a_taxonomy_is_told_so(cheeses: Path) -> None:
    with pytest.raises(ConfigurationError, match="no taxonomy is known for this list; give it as `taxonomy`"):
        find_taxonomy(None, cheeses / "clean.parquet")
    error = run_hgld("build", cheeses / "clean.parquet", "-o", cheeses / "hierarchy.parquet", code=1).stderr
    assert "clean.parquet: no decisions are known for this list; give a file of hgld import-sheet," in error


def test_words_of_a_list_are_kept(cheeses: Path) -> None:
    table = cheeses / "clean.parquet"
    assert nouns_of(table) == ("entity", "entities")
    assert words_of_list(table) == ("entity", "entities")
    words = words_of_list(table, "cheese")
    assert create_project(table, *words) == cheeses / PROJECT_FILE
    assert nouns_of(table) == words_of_list(table) == words_of_list(table, "cheese") == ("cheese", "cheeses")
    assert create_project(table, *words) is None
    with pytest.raises(ConfigurationError, match=r'`entity` is "ship", but .*hgld.yaml says entity: cheese'):
        words_of_list(table, "ship")
    for word in ("", " ship", "ship\nboat"):
        with pytest.raises(ConfigurationError, match="`entity` is .*; expected a word on one line"):
            words_of_list(table, word)
    ships = cheeses / "ships" / "clean.parquet"
    assert words_of_list(ships) == ("cheese", "cheeses")  # of a part of the same project
    assert create_project(ships, *words_of_list(ships, "ship")) == cheeses / "ships" / PROJECT_FILE


def test_counts_of_a_list_are_noted(cheeses: Path) -> None:
    table = cheeses / "clean.parquet"
    create_project(table, "cheese", "cheeses", counts=False)
    without = (cheeses / PROJECT_FILE).read_text()
    assert create_project(table, "cheese", "cheeses", counts=True) is None
    assert read_project(table).counts
    assert nouns_of(table) == ("cheese", "cheeses"), "rows are cheeses"
    create_project(table, "cheese", "cheeses")
    assert read_project(table).counts, "nothing is known of the counts"
    create_project(table, "cheese", "cheeses", counts=False)
    assert (cheeses / PROJECT_FILE).read_text() == without


def test_files_are_added_where_none_is_named(cheeses: Path) -> None:
    table = cheeses / "clean.parquet"
    assert remember_in_project(table, "taxonomy", cheeses / "tree.csv") is None  # there is no project file
    create_project(table, "cheese", "cheeses")
    text = (cheeses / PROJECT_FILE).read_text()
    changed = remember_in_project(table, "taxonomy", cheeses / "trees" / "tree.csv")
    assert changed is not None
    assert changed.resolve() == cheeses / PROJECT_FILE
    assert (cheeses / PROJECT_FILE).read_text() == f"{text}taxonomy: trees/tree.csv\n"
    assert remember_in_project(table, "taxonomy", cheeses / "trees" / "tree.csv") is None
    with pytest.raises(
        ConfigurationError, match=r"hgld.yaml keeps taxonomy: trees/tree.csv; edit it if .*other.csv is"
    ):
        remember_in_project(table, "taxonomy", cheeses / "other.csv")
    (cheeses / "trees").mkdir()
    (cheeses / "trees" / "tree.csv").touch()
    assert find_taxonomy(None, table).resolve() == cheeses / "trees" / "tree.csv"
    assert find_taxonomy(cheeses / "other.csv", table) == cheeses / "other.csv"


@pytest.mark.parametrize("text", ["{entity: cheese}", "  entity: cheese", "entity: cheese\n..."])
def test_a_file_in_which_nothing_can_be_added_stays_as_it_is(cheeses: Path, text: str) -> None:
    (cheeses / PROJECT_FILE).write_text(text)
    with pytest.raises(ConfigurationError, match="nothing can be added at its end; write taxonomy: tree.csv into it"):
        remember_in_project(cheeses / "clean.parquet", "taxonomy", cheeses / "tree.csv")
    assert (cheeses / PROJECT_FILE).read_text() == text


def test_files_of_gldv2_are_not_for_the_folder_of_another_list(cheeses: Path) -> None:
    create_project(cheeses / "clean.parquet", "cheese", "cheeses")
    assert project_file_of("decisions", cheeses / "hierarchy.parquet") is None  # not built yet
    assert (
        "decision   unknown: no decisions are known for this list"
        in run_hgld("why", "1", "--hierarchy", cheeses / "hierarchy.parquet").stdout
    )
    missing = run_hgld("why", "9", "--hierarchy", cheeses / "hierarchy.parquet", code=1).stderr
    assert "cheese 9 is in none of" in missing


def test_mistakes_in_the_file_are_named(cheeses: Path) -> None:
    (cheeses / PROJECT_FILE).write_text("taxonmy: tree.csv\n")
    with pytest.raises(
        ConfigurationError, match=r"hgld.yaml: taxonmy: there is no such setting; did you mean taxonomy"
    ):
        find_taxonomy(None, cheeses / "clean.parquet")
    (cheeses / PROJECT_FILE).write_text('entity: "two\\nlines"\n')
    with pytest.raises(ConfigurationError, match="hgld.yaml: entity: "):
        nouns_of(cheeses / "clean.parquet")
    (cheeses / PROJECT_FILE).write_text("entity: berry\n")
    assert nouns_of(cheeses / "clean.parquet") == ("berry", "berries")


def test_commands_speak_of_the_list_and_know_its_taxonomy(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("id,label\n1,Brie\n2,brie\n3,Gouda\n")
    (tmp_path / "tree.csv").write_text("path\nCheese > soft\nCheese > hard\n")
    clean = tmp_path / "tables" / "clean.parquet"
    shown = run_hgld("labels", tmp_path / "list.csv", "--label", "label", "--entity", "cheese", "-o", clean).stdout
    assert "3 cheeses: 3 spellings of 2 labels" in shown
    tree = tmp_path / "tables" / "trees" / "taxonomy.csv"
    noted = run_hgld("taxonomy", "import", tmp_path / "tree.csv", "--levels", "kind,all", "-o", tree).stderr
    assert "hgld.yaml: noted the taxonomy" in noted
    assert find_taxonomy(None, clean).resolve() == tree

    (tmp_path / "ada.csv").write_text(
        "label_id,label,decision,group,annotator,decided_at\n"
        "label-brie,Brie,group,soft,ada,2026-03-01T12:00:00Z\n"
        "label-gouda,Gouda,group,hard,ada,2026-03-01T12:00:00Z\n"
    )
    built = run_hgld("build", clean, "--decisions", tmp_path / "ada.csv", "-o", tmp_path / "hierarchy.parquet")
    assert "3 of 3 cheeses kept, in 2 groups" in built.stdout
    assert "hgld.yaml: noted the decisions" in built.stderr
    other = tmp_path / "ben.csv"
    other.write_text((tmp_path / "ada.csv").read_text())
    again = run_hgld("build", clean, "--decisions", other, "-o", tmp_path / "tables" / "hierarchy.parquet")
    assert "hgld.yaml keeps decisions: ../ada.csv; edit it if " in again.stderr
    hierarchy = tmp_path / "tables" / "hierarchy.parquet"
    assert "cheeses  all         3    3" in run_hgld("stats", hierarchy, "-o", tmp_path / "stats.png").stdout
    assert "3 cheeses in 2 groups" in (tmp_path / "stats.tree.html").read_text()
    assert "identical: the same cheeses" in run_hgld("compare", hierarchy, hierarchy).stdout
    refused = run_hgld("build", clean, "-o", tmp_path / "h.parquet", "--csv", tmp_path / "official", code=1)
    assert "--csv writes the official files of H-GLDv2, which are of GLDv2's landmarks alone" in refused.stderr
    second = run_hgld("labels", tmp_path / "list.csv", "--label", "label", "-o", tmp_path / "tables" / "b.parquet")
    assert "hgld.yaml: this list, too, is of cheeses; give --entity if it is another one" in second.stderr
