"""Trees that are published elsewhere become taxonomies, and taxonomies tables of paths, and back."""

import csv
import logging
import re
from pathlib import Path

import pytest

from hgld import tables
from hgld.errors import ConfigurationError, InputError
from hgld.resources import annotation_file
from hgld.taxonomy.groups import Group, read_taxonomy, write_taxonomy
from hgld.taxonomy.settings import ImportConfig
from hgld.taxonomy.trees import export_taxonomy, import_taxonomy
from tests.commands import run_hgld
from tests.labels.label_tables import PROVENANCE, classes_table

CLASSES = {
    "Q1": ("vehicle", []),
    "Q2": ("boat", ["Q1"]),
    "Q3": ("car", ["Q1"]),
    "Q4": ("amphibious car", ["Q3", "Q2"]),
    "Q5": ("ferry", ["Q12", "Q99"]),  # of a boat by the item that was merged into it
    "Q6": ("car ferry", ["Q5", "Q6"]),
    "Q12": ("boat", ["Q2"]),
    "Q7": ("Ferry", ["Q2"]),
}


def groups(source: Path, config: ImportConfig | None = None) -> list[list[str]]:
    """Import a tree; return the levels, then the path of each group, finest first, with its items and guideline."""
    out = source.with_name("taxonomy.csv")
    summary = import_taxonomy(source, out, config)
    read = read_taxonomy(out)
    assert summary == {
        level: len({group.path[column] for group in read}) for column, level in enumerate(read[0].levels)
    }
    with out.open(encoding="utf-8", newline="") as stream:
        return list(csv.reader(stream))


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "levels"), [("tree.csv", ()), ("expected.csv", ("level4", "level3", "level2", "level1"))]
)
def test_published_tree_is_the_same_in_both_forms(
    name: str, levels: tuple[str, ...], shared: Path, tmp_path: Path
) -> None:
    plain = shared / "other_domains" / "plain"
    source, config = plain / name, ImportConfig(levels)
    out = tmp_path / "taxonomy.csv"
    summary = import_taxonomy(source, out, config)
    assert summary == {"level4": 76, "level3": 37, "level2": 18, "level1": 6}
    with (plain / "expected.csv").open(encoding="utf-8", newline="") as stream:
        expected = [row["path"] for row in csv.DictReader(stream)]
    paths = [" > ".join(reversed(group.path)) for group in read_taxonomy(out)]
    assert {*paths} == {*expected}
    if name == "tree.csv":
        with (plain / "tree.csv").open(encoding="utf-8", newline="") as stream:
            assert paths == [row["path"] for row in csv.DictReader(stream) if row["path"].count(">") == 3]


@pytest.mark.parametrize(
    ("text", "levels", "expected"),
    [
        ("id,path\n1,A\n2,A > B\n3,A > B > C\n4,D\n", (), ["level3,level2,level1", "C,B,A", "D,D,D"]),
        ("path\nD\nA > B > C\nA > E\nD > F\n", ("x", "y", "z"), ["x,y,z", "F,F,D", "C,B,A", "E,E,A"]),
        ("path\n A>b >  C  d \n", (), ["level2,level1", "C d,A>b"]),
        ("path\nA\nB\n", (), ["level1", "A", "B"]),
        ("path\nA > B > B\nA > B > C\n", (), ["level3,level2,level1", "B,B,A", "C,B,A"]),
        # Names that others have below another parent
        ("path\nA > Other\nB > other\nB > C\n", (), ["level2,level1", "Other (A),A", "other (B),B", "C,B"]),
        ("path\nA > X > O\nB > X > O\n", (), ["level3,level2,level1", "O (X, A),X (A),A", "O (X, B),X (B),B"]),
        ("path\nA > O\nB > C > O\n", (), ["level3,level2,level1", "O (A),O (A),A", "O (C),C,B"]),
        ("path\nO\nB > O\n", (), ["level2,level1", "O,O", "O (B),B"]),
        # Columns of levels
        ("aisle,leaf,shelf\nA,C,B\nA,,D\nA,,\n", ("leaf", "shelf", "aisle"), ["leaf,shelf,aisle", "C,B,A", "D,D,A"]),
        ("leaf,x,root\nC,B,A\n", ("leaf", "root"), ["leaf,root", "C,A"]),
    ],
)
def test_paths_and_levels(text: str, levels: tuple[str, ...], expected: list[str], tmp_path: Path) -> None:
    rows = groups(write(tmp_path, "tree.csv", text), ImportConfig(levels))
    assert [",".join(row[:-2]) for row in rows] == expected


def test_items_guidelines_and_formulas_are_kept(tmp_path: Path) -> None:
    source = write(tmp_path, "tree.csv", "path,items,guideline\nA > =B,Q1 Q2,Small: b.\nA > C,,\n")
    assert groups(source) == [
        ["level2", "level1", "items", "guideline"],
        ["'=B", "A", "Q1 Q2", "Small: b."],
        ["C", "A", "", ""],
    ]


def test_renamed_names_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        groups(write(tmp_path, "tree.csv", "path\nA > Other\nB > Other\n"))
    assert "2 names with the parent, as others have the same: Other (A), Other (B)" in caplog.text


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    path = tmp_path / "x.classes.parquet"
    rows = classes_table(CLASSES).to_pylist()
    rows[1] |= {"redirected_from": ["Q12"], "description": "floats"}
    table = tables.CLASSES.schema.empty_table().from_pylist(rows, schema=tables.CLASSES.schema)
    tables.write_table(path, tables.CLASSES, table, PROVENANCE)
    return path


def test_classes_of_wikidata(classes: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        rows = groups(classes, ImportConfig(root="Q1"))
    assert [row[:-1] for row in rows[1:]] == [
        ["amphibious car", "amphibious car", "boat", "vehicle", "Q4"],
        ["car ferry", "ferry (Q5)", "boat", "vehicle", "Q6"],
        ["Ferry (Q7)", "Ferry (Q7)", "boat", "vehicle", "Q7"],
        ["car", "car", "car", "vehicle", "Q3"],
    ]
    assert "put below the nearest of several superclasses: Q4" in caplog.text
    assert groups(classes, ImportConfig(root="Q1", depth=1)) == [
        ["level2", "level1", "items", "guideline"],
        ["boat", "vehicle", "Q2", "floats"],
        ["car", "vehicle", "Q3", ""],
    ]


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        (
            "absent.csv",
            None,
            "",
            r"absent.csv: no such file; expected .csv or a table of classes",
        ),
        ("tree.xls", "x", "", r'tree.xls: the suffix is ".xls"; expected .csv or .parquet'),
        ("tree.csv", "id,name\n1,a\n", "", r"tree.csv: no column path; name the columns of levels, .* by --levels"),
        ("tree.csv", "leaf,root\na,b\n", "--levels leaf,shelf,root", "line 1: no column shelf; found leaf,root"),
        ("tree.csv", "path\nA > B\n", "--levels leaf", r"tree.csv: the tree has 2 levels, but --levels are 1: leaf"),
        (
            "tree.csv",
            "path\nA\n",
            "--levels label",
            r'--levels has "label"; give each level a name of its own, other',
        ),
        ("tree.csv", "path\nA\n", "--levels a,a", r'--levels has "a"; give each level a name of its own'),
        ("tree.csv", "path\nA > > B\n", "", r'line 2: a level of "A >  > B" has no name'),
        ("tree.csv", "path\nA > B > \n", "", r'line 2: a level of "A > B > " has no name'),
        ("tree.csv", "a,b,c\nx,,z\n", "--levels a,b,c", r'line 2: a level of "z >  > x" has no name'),
        ("tree.csv", "path\nA > B > A\n", "", r'line 2: a cycle: a name is below itself in "A > B > A"'),
        ("tree.csv", "path\nA > B\nA > b\n", "", r'tree.csv: "B" occurs 2 times below "A"; give each a name'),
        ("tree.csv", "path,items\nA,Q1\nB,Q1\n", "", r"tree.csv: .*line 3: the item Q1 is in line 2 already"),
        (
            "tree.csv",
            "path\nA\n",
            "--root Q1",
            r"tree.csv: --root, the class to import, goes with a table of classes",
        ),
        ("x.classes.parquet", None, "", r"--root, the class to import, goes with a table of classes"),
        ("x.classes.parquet", None, "--root Q77", r"x.classes.parquet: no class Q77 among its 8; scrape it, or name"),
        ("x.classes.parquet", None, "--root Q1 --depth 0", r"--depth is 0; expected 1 or more"),
    ],
)
def test_wrong_trees_get_one_message(
    name: str,
    text: str | None,
    options: str,
    message: str,
    classes: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path(name).write_text(text)
    before = sorted(tmp_path.iterdir())
    result = run_hgld("taxonomy", "import", name, "-o", "out.csv", *options.split(), code=1)
    assert result.stdout == ""
    first, *rows = result.stderr.splitlines()
    assert first.startswith("error: ")
    assert re.search(message, " ".join([first, *map(str.strip, rows)])), result.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_files_of_other_programs_are_not_replaced(tmp_path: Path) -> None:
    people = write(tmp_path, "people.csv", "name,age,city\nada,36,London\n")
    tree = write(tmp_path, "tree.csv", "path\nfood > bread\nfood > milk\n")
    taxonomy = write(tmp_path, "taxonomy.csv", "group,root,items,guideline\nlake,natural,,\n")
    with pytest.raises(
        ConfigurationError, match=r"^\S*people.csv: exists, and hgld did not write it .its columns are name"
    ):
        import_taxonomy(tree, people)
    with pytest.raises(
        ConfigurationError, match=r"^\S*people.csv: exists, and hgld did not write it .its columns are name"
    ):
        export_taxonomy(taxonomy, people)
    assert people.read_text() == "name,age,city\nada,36,London\n"
    import_taxonomy(tree, taxonomy)
    assert [group.name for group in read_taxonomy(taxonomy)] == ["bread", "milk"]


def test_source_is_not_overwritten(tmp_path: Path) -> None:
    source = write(tmp_path, "tree.csv", "path\nA > B\n")
    with pytest.raises(ConfigurationError, match="`out` is the file to read"):
        import_taxonomy(source, source)
    assert source.read_text() == "path\nA > B\n"
    with pytest.raises(InputError, match="no such file"):
        import_taxonomy(tmp_path / "absent.csv", tmp_path / "out.csv")


UNEVEN = '''leaf,shelf,aisle,items,guideline
Rye,Bread,"Food & ""Drink""",Q1 Q20,"Dark:	rye.\nNo wheat."
,Bread,"Food & ""Drink""",,Bread of any kind.
,,Gloves \\ 手袋,Q5,
=Milk,Dairy,"Food & ""Drink""",,
'''


@pytest.fixture
def uneven(tmp_path: Path) -> Path:
    path = tmp_path / "uneven.csv"
    path.write_text(UNEVEN, encoding="utf-8")
    return path


def identity(group: Group) -> tuple[object, ...]:
    return (*group.path, *sorted(group.items), group.guideline)


@pytest.mark.parametrize("name", ["shipped", "uneven"])
def test_exports_are_imported_to_the_same_tree(name: str, uneven: Path, tmp_path: Path) -> None:
    taxonomy = uneven if name == "uneven" else annotation_file("taxonomy.csv")
    before = read_taxonomy(taxonomy)
    assert export_taxonomy(taxonomy, tmp_path / "exported.csv") == len(before)
    import_taxonomy(tmp_path / "exported.csv", tmp_path / "again.csv", ImportConfig(before[0].levels))
    assert sorted(map(identity, read_taxonomy(tmp_path / "again.csv"))) == sorted(map(identity, before))


@pytest.mark.parametrize(
    "name", ["Temperature > 30", "> 30", "30 >", ">", "a > b > c", r"a \> b", r"\\> b > c", "a>b >c> d", '"a" > "b"']
)
def test_signs_in_names_do_not_separate_levels(name: str, tmp_path: Path) -> None:
    groups = [Group(name, "weather", "hot"), Group("rain", "weather", ""), Group("other", f"not {name}", "")]
    write_taxonomy(tmp_path / "taxonomy.csv", groups)
    export_taxonomy(tmp_path / "taxonomy.csv", tmp_path / "paths.csv")
    import_taxonomy(tmp_path / "paths.csv", tmp_path / "again.csv", ImportConfig(("group", "root")))
    again = read_taxonomy(tmp_path / "again.csv")
    assert {group.path for group in again} == {group.path for group in groups}


def test_exports_are_tables_of_paths(uneven: Path, tmp_path: Path) -> None:
    run_hgld("taxonomy", "export", uneven, "-o", tmp_path / "tree.csv")
    with (tmp_path / "tree.csv").open(encoding="utf-8", newline="") as stream:
        assert list(csv.reader(stream)) == [
            ["path", "items", "guideline"],
            ['Food & "Drink" > Bread > Rye', "Q1 Q20", "Dark:\trye.\nNo wheat."],
            ['Food & "Drink" > Bread > Bread', "", "Bread of any kind."],
            ["Gloves \\ 手袋", "Q5", ""],
            ['Food & "Drink" > Dairy > =Milk', "", ""],
        ]


def test_taxonomy_is_not_overwritten(uneven: Path) -> None:
    with pytest.raises(ConfigurationError, match="`out` is the file to read"):
        export_taxonomy(uneven, uneven)
    assert uneven.read_text(encoding="utf-8") == UNEVEN
