"""The label pipeline on lists that are not landmarks, by the commands."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from openpyxl import load_workbook

from hgld import load_hierarchy
from hgld.release.facts import write_questions
from tests.commands import run_hgld
from tests.sheet_files import csv_rows, fill

LEVELS = ["genus", "family", "order"]
#: Cheeses by kind, texture, and milk, as somebody would write them down.
CHEESES = {
    "cow milk": {
        "soft cow cheese": {
            "bloomy rind": "Brie, Camembert, Coulommiers, Neufchâtel, Saint-André",
            "washed rind": "Époisses, Munster, Livarot, Pont-l'Évêque, Limburger, Taleggio",
            "fresh cow cheese": "Cottage cheese, Quark, Mascarpone, Ricotta, Cream cheese, Fromage blanc",
        },
        "semi-hard cow cheese": {
            "Dutch type": "Gouda, Edam, Maasdam, Leerdammer",
            "British territorial": "Cheddar, Cheshire, Double Gloucester, Red Leicester, Lancashire, Wensleydale",
            "monastery": "Port Salut, Saint-Paulin, Tilsit, Havarti, Esrom",
        },
        "hard cow cheese": {
            "alpine": "Gruyère, Emmental, Comté, Beaufort, Appenzeller, Sbrinz",
            "grana": "Parmigiano Reggiano, Grana Padano, Asiago",
        },
        "blue cow cheese": {"cow blue": "Stilton, Gorgonzola, Fourme d'Ambert, Bleu d'Auvergne, Danablu"},
    },
    "sheep milk": {
        "hard sheep cheese": {"pecorino": "Pecorino Romano, Pecorino Sardo, Manchego, Ossau-Iraty, Idiazabal"},
        "blue sheep cheese": {"sheep blue": "Roquefort"},
        "brined sheep cheese": {"brined": "Feta, Halloumi, Bryndza"},
    },
    "goat milk": {
        "soft goat cheese": {"goat log": "Sainte-Maure, Valençay, Crottin de Chavignol, Chabichou, Banon"},
        "hard goat cheese": {"goat tomme": "Garrotxa, Majorero"},
    },
}


def hgld(*arguments: object) -> str:
    return run_hgld(*arguments).stdout


_MLCROISSANT_WARNS = pytest.mark.filterwarnings("ignore:ConjunctiveGraph is deprecated:DeprecationWarning")


class Walk:
    """Commands of a new user in a folder; none may speak of landmarks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.commands: list[str] = []

    def __call__(self, command: str) -> str:
        """Run a command whose words that name files, with a dot or a slash, are below the folder."""
        self.commands.append(command)
        words = [str(self.folder / word) if "." in word or "/" in word else word for word in command.split()]
        result = run_hgld(*words)
        self.require_no_landmarks(result.output)
        return result.output

    def require_no_landmarks(self, text: str) -> None:
        assert "landmark" not in text.lower().replace(str(self.folder).lower(), "")
        assert "GLDv2" not in text


def fill_in(workbook: Path, group_of: Mapping[str, str], **others: str) -> None:
    """Choose the group of each label in a workbook, or another decision."""
    decisions: dict[str, dict[str, str | None]] = {}
    for row in csv_rows(workbook.with_suffix(".csv")):
        if row["label"] in others:
            decisions[row["label_id"]] = {"decision": others[row["label"]]}
        else:
            decisions[row["label_id"]] = {"group": group_of[row["label"]]}
    fill(workbook, **decisions)


@pytest.fixture(scope="module")
def birds(shared: Path) -> Path:
    return shared / "other_domains" / "birds"


@pytest.mark.slow
@_MLCROISSANT_WARNS
@pytest.mark.parametrize("link", ["item", "category"])
def test_birds_from_list_to_genus_family_and_order(
    birds: Path, replica: Callable[..., Any], tmp_path: Path, link: str
) -> None:
    species = pd.read_csv(birds / "list.csv").merge(pd.read_csv(birds / "categories.csv"))
    species[["id", link, "part"]].to_csv(tmp_path / "list.csv", index=False)
    scraped, clean, out = (tmp_path / f"{name}.parquet" for name in ("scraped", "clean", "hierarchy"))
    with replica("birds.json.gz") as server:
        urls = ["--commons-url", f"{server.base_url}/commons", "--wikidata-url", f"{server.base_url}/wikidata"]
        columns = ["--id", "id", f"--{link}", link, "--split-column", "part"]
        taxa = ["--property", "P171", "--parents", "P171"]
        shown = hgld("scrape", tmp_path / "list.csv", *columns, *taxa, "-o", scraped, "--rate", 0, *urls)
    assert "328 entities, 288 classes and superclasses" in shown
    hgld("clean", scraped, "-o", clean)
    assert 'Podargus (Q901000081): unsure, machine: "no family above it"' in hgld(
        "build", clean, "--levels-from", "parents", "-o", out
    )

    expected = pd.read_csv(birds / "expected.csv").set_index("id")
    rows = pd.read_parquet(scraped).set_index("id")
    # Whether the chain goes on to the order is not known before build.
    pd.testing.assert_series_equal(rows["status"], expected["status"].replace("incomplete", "ok"))
    built = pd.read_parquet(out).set_index("id")
    complete = expected[expected["status"] == "ok"].rename(columns={"part": "split"}).sort_index()
    pd.testing.assert_frame_equal(built.sort_index()[["split", *LEVELS]], complete[["split", *LEVELS]])
    hierarchy = load_hierarchy(out)
    assert (hierarchy.level_names, hierarchy.split_names) == (("entity", *LEVELS), ["east", "west"])
    assert "decision   none is needed: hgld build --levels-from parents" in hgld("why", "5", "--hierarchy", out)
    excluded = hgld("why", "84", "--hierarchy", out)
    assert "not in it: what is above its label on Wikidata gives it no group" in excluded
    counted = hgld("stats", out, "-o", tmp_path / "stats.svg")
    assert "Passeriformes                   40             26            66      35" in counted
    hgld("release", out, "--init", "--yes")
    assert "east 190, west 131 entities in 165 groups" in hgld("release", out, "-o", tmp_path / "release")
    for name in ("README.md", "datasheet.md"):
        text = (tmp_path / "release" / name).read_text()
        assert "Of 328 entities: 322 kept, 6 unlabelled." in text
        assert "321 of these 322 entities have a group; left out are 1 whose label leads to no group." in text
        assert "landmark" not in text
    before = shutil.copy(out, tmp_path / "before.parquet")
    hgld("build", clean, "--levels-from", "parents:genus,order", "-o", out)
    compared = hgld("compare", before, out)
    assert "agreement over 321 entities in both" in compared
    pictures = [(tmp_path / name).read_text() for name in ("stats.svg", "stats.tree.svg", "stats.tree.html")]
    assert not any("landmark" in text for text in (counted, compared, *pictures))
    assert pd.read_parquet(out).columns.tolist()[4:] == ["genus", "order"]


@pytest.mark.slow
@_MLCROISSANT_WARNS
def test_cheeses_from_a_list_with_a_tree_of_four_levels_to_a_release(tmp_path: Path) -> None:
    walk = Walk(tmp_path)
    group_of, paths, rows = {}, ["path"], ["id,name"]
    for milk, textures in CHEESES.items():
        for texture, kinds in textures.items():
            for kind, names in kinds.items():
                paths.append(f"Cheese > {milk} > {texture} > {kind}")
                for name in names.split(", "):
                    group_of[name] = kind
                    rows.append(f"{len(rows)},{name}")
    (tmp_path / "cheeses.csv").write_text("\n".join(rows))
    (tmp_path / "tree.csv").write_text("\n".join(paths))

    listed = walk("labels cheeses.csv --label name --entity cheese -o clean.parquet")
    assert "62 cheeses: 62 spellings of 62 labels" in listed
    assert "this list, too" not in walk("labels cheeses.csv --label name -o clean.parquet")
    walk("taxonomy import tree.csv -o taxonomy.csv --levels kind,texture,milk,all")
    walk("embed clean.parquet -o label_embeddings.parquet --encoder ngrams")
    assert "labels  cheeses  name" in walk("cluster label_embeddings.parquet -o clusters.parquet")
    assert "suggestions for 62 labels of 62 cheeses" in walk("suggest clusters.parquet -o clusters.parquet")
    exported = walk("export clusters.parquet -o review/ --annotators ada,ben")
    assert "62 labels of 62 cheeses" in exported
    assert "classes.parquet" not in exported, "labels of a list have no classes"
    for annotator in ("ada", "ben"):
        workbook = tmp_path / "review" / f"{annotator}.xlsx"
        sheets = "\n".join(
            str(cell) for sheet in load_workbook(workbook) for row in sheet.values for cell in row if cell
        )
        walk.require_no_landmarks(sheets)
        assert "or says nothing about the cheese, decide “drop”" in sheets
        group_of["Quark"] = {"ada": "fresh cow cheese", "ben": "bloomy rind"}[annotator]
        fill_in(workbook, group_of, Banon="unsure", Edam="drop")
        imported = walk(f"import-sheet review/{annotator}.xlsx")
        assert "62 of 62 labels decided (62 of 62 cheeses): 60 into 14 groups, 1 dropped, 1 unsure" in imported
    agreed = run_hgld("agreement", tmp_path / "decisions/ada.csv", tmp_path / "decisions/ben.csv").stdout
    assert "by label              by cheese" in agreed
    adjudicated = walk("adjudicate decisions/ada.csv decisions/ben.csv -o decisions/final.csv --rule prefer:ada")
    assert "60 labels agreed, 1 settled, 1 open" in adjudicated
    built = walk("build clean.parquet -o hierarchy.parquet --allow-undecided")
    assert "60 of 62 cheeses kept, in 14 groups" in built
    questions = []
    write_questions(tmp_path / "hierarchy.parquet", tmp_path / "asked.yaml", lambda text, _: questions.append(text))
    assert "What is the dataset called?" in questions
    assert not [text for text in questions if "one thing of the list" in text or "several of them" in text]
    walk("release hierarchy.parquet --init --yes")
    assert "all 60 cheeses in 14 groups" in walk("release hierarchy.parquet -o release/")
    assert len(walk.commands) == 13
    assert "--taxonomy" not in " ".join(walk.commands)

    card = (tmp_path / "release/README.md").read_text()
    sheet = (tmp_path / "release/datasheet.md").read_text()
    for text in (card, sheet):
        walk.require_no_landmarks(text)
        assert "62 cheeses with 62 labels were read from a list, whose column `name` has the labels." in text
        assert (
            "60 of these 62 cheeses have a group; left out are 1 whose label was dropped and 1 whose label is "
            "undecided (1 label)." in text
        )
    assert "Labels that say nothing were removed" not in sheet
    missing = run_hgld("why", "999", "--hierarchy", tmp_path / "hierarchy.parquet", code=1).stderr
    assert "cheese 999 is in none of" in missing
    assert "removed.parquet" not in missing
    above = load_hierarchy(tmp_path / "hierarchy.parquet").ancestors("alpine", "kind")
    assert above == ("hard cow cheese", "cow milk", "Cheese")


@pytest.mark.slow
@_MLCROISSANT_WARNS
def test_products_with_splits_text_ids_and_counts_to_a_release(shared: Path, tmp_path: Path) -> None:
    walk = Walk(tmp_path)
    plain = shared / "other_domains" / "plain"
    products = pd.read_csv(plain / "products.csv")
    products["shop"] = ["market", "web", "street"] * (len(products) // 3)
    products.to_csv(tmp_path / "products.csv", index=False)
    n_counted = f"{products['count'].sum():,}"
    shutil.copy(plain / "tree.csv", tmp_path)
    options = "--label label --id id --count count --split-column shop --entity product"
    listed = walk(f"labels products.csv {options} -o data/clean.parquet")
    assert f"300 products ({n_counted} counted products by the column count): 281 spellings of" in listed
    assert "counts: true" in (tmp_path / "data/hgld.yaml").read_text()
    walk("taxonomy import tree.csv -o trees/taxonomy.csv --levels leaf,shelf,aisle,department")
    walk("embed data/clean.parquet -o data/label_embeddings.parquet --encoder ngrams")
    assert "counted products  name" in walk("cluster data/label_embeddings.parquet -o data/clusters.parquet")
    suggested = walk("suggest data/clusters.parquet -o data/clusters.parquet --taxonomy trees/taxonomy.csv")
    assert f"labels of {n_counted} counted products, using" in suggested
    assert f"labels of {n_counted} counted products in" in walk(
        "export data/clusters.parquet -o data/review/ --annotators ada"
    )
    workbook = tmp_path / "data/review/ada.xlsx"
    assert "counted products" in csv_rows(workbook.with_suffix(".csv"))[0]
    assert "holds for all of its products" in str(load_workbook(workbook)["Read me"]["B4"].value)
    expected = pd.read_csv(plain / "expected.csv")
    leaves = expected["path"].str.split(" > ").str[-1]
    fill_in(workbook, dict(zip(expected["label"].str.strip(), leaves, strict=True)))
    imported = walk("import-sheet data/review/ada.xlsx")
    assert f"({n_counted} of {n_counted} counted products)" in imported
    forgotten = ("build", tmp_path / "data/clean.parquet", "-o", tmp_path / "data/hierarchy.parquet")
    assert "give " + str(tmp_path / "data/decisions/ada.csv as --decisions") in run_hgld(*forgotten, code=1).stderr
    built = walk("build data/clean.parquet -o data/hierarchy.parquet --decisions data/decisions/ada.csv")
    assert "300 of 300 products kept, in 76 groups" in built
    walk("release data/hierarchy.parquet --init --yes")
    assert "market 100, street 100, web 100 products in 76 groups" in walk(
        "release data/hierarchy.parquet -o release/"
    )
    assert len(walk.commands) == 10
    assert " ".join(walk.commands).count("--taxonomy") == 1
    assert "300 products with" in (tmp_path / "release/README.md").read_text()
    counted = run_hgld("stats", tmp_path / "data/hierarchy.parquet").stdout
    assert "products  all" in counted
    # The same list without its counts: rows alone are counted from then on.
    walk(f"labels products.csv {options.replace('--count count ', '')} -o data/clean.parquet")
    assert "counts" not in (tmp_path / "data/hgld.yaml").read_text()


#: Commands with one wrong, missing or misplaced file, and a part of the only line of their answer.
MISTAKES = {
    "suggest clusters.parquet -o x.parquet --taxonomy tree.csv": "tree.csv: a tree of paths, not yet a taxonomy",
    "suggest clusters.parquet -o x.parquet --taxonomy cheeses.csv": "cheeses.csv: line 1: no column guideline",
    "suggest clean.parquet -o x.parquet": 'expected a table "clusters/2", but it is a table "clean/1"; hgld',
    "suggest tree.csv -o x.parquet": 'tree.csv: not a Parquet file; expected a table "clusters/2"; hgld cluster',
    "suggest elsewhere/clusters.parquet -o x.parquet": "no taxonomy is known for this list; give it as --taxonomy",
    "embed cheeses.csv -o x.parquet": 'cheeses.csv: not a Parquet file; expected a table "clean/1"; hgld',
    "cluster missing.parquet -o x.parquet": "missing.parquet: no such file; hgld embed writes it",
    "export elsewhere/clusters.parquet -o x/ --annotators ada": "give the table that the labels come from as --clean",
    "import-sheet review/ada.csv": "ada.csv: does not say for whom it was exported; name the --annotator",
    "import-sheet tree.csv --annotator ada": "tree.csv",
    "build clean.parquet -o x.parquet": "no decisions are known for this list; give a file of",
    "build clean.parquet -o x.parquet --decisions clusters.parquet": "clusters.parquet: a Parquet file; expected a",
    "build clean.parquet -o x.parquet --levels-from parents": "needs tables of hgld scrape that are not beside",
    "build clusters.parquet -o x.parquet --decisions tree.csv": 'expected a table "clean/1"',
    "clean clean.parquet -o x.parquet": 'expected a table "scraped/1", but it is a table "clean/1"; hgld',
    "agreement cheeses.csv tree.csv": "no column label_id, label, decision, group, annotator, decided_at",
    "adjudicate a.csv b.csv -o x.csv --rule most-landmarks": "a.csv: no such file",
    "release hierarchy.parquet -o x/": "release.yaml: no such file; --init writes it",
    "release clean.parquet --init --yes": 'expected a table "hierarchy/1", but it is a table "clean/1"; hgld',
    "why 5 --hierarchy elsewhere/hierarchy.parquet": "to find cheese 5 in; expected hierarchy.parquet,",
}


@pytest.fixture(scope="module")
def cheese_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the tables of a few cheeses up to the sheets."""
    folder = tmp_path_factory.mktemp("cheeses")
    walk = Walk(folder)
    (folder / "cheeses.csv").write_text("id,name\n1,Brie\n2,Edam\n3,Gouda\n4,Feta\n")
    (folder / "tree.csv").write_text("path\nCheese > soft\nCheese > hard\n")
    walk("labels cheeses.csv --label name --entity cheese -o clean.parquet")
    walk("taxonomy import tree.csv -o taxonomy.csv --levels kind,all")
    walk("embed clean.parquet -o label_embeddings.parquet --encoder ngrams")
    walk("cluster label_embeddings.parquet -o clusters.parquet -k 2 --subclusters 2")
    walk("export clusters.parquet -o review/ --annotators ada")
    return folder


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_answered_by_a_line_that_says_what_to_do(
    cheese_tables: Path, tmp_path: Path, command: str
) -> None:
    folder = tmp_path / "cheeses"
    shutil.copytree(cheese_tables, folder)
    elsewhere = tmp_path / "cheeses" / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(folder / "clusters.parquet", elsewhere)
    (elsewhere / "hgld.yaml").write_text("entity: cheese\n")
    walk = Walk(folder)
    walk_words = [str(folder / word) if "." in word or "/" in word else word for word in command.split()]
    result = run_hgld(*walk_words, code=1)
    walk.require_no_landmarks(result.output.replace("most-landmarks", ""))
    (line,) = result.output.splitlines()
    assert MISTAKES[command] in line
