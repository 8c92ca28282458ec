"""Hierarchies of lists that are not landmarks: text ids, any splits, levels and roots."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hgld import tables
from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy import Hierarchy, load_hierarchy
from hgld.hierarchy.parents import groups_from_parents
from hgld.hierarchy.settings import BuildConfig
from hgld.labels.class_tree import ClassTree
from hgld.labels.clean import InstanceOf, clean_file
from hgld.taxonomy.decisions import Decision, write_decisions
from hgld.taxonomy.groups import read_taxonomy
from tests.commands import run_hgld
from tests.hierarchy.conftest import WHEN, run
from tests.labels.label_tables import PROVENANCE, scraped_row

PORTRAIT, ALTARPIECE, VEDUTA = ("Q134307", "portrait"), ("Q15711026", "altarpiece"), ("Q2027575", "veduta")
PAINTINGS = {
    ("louvre", "INV 779"): [PORTRAIT],
    ("louvre", "RF/1"): [ALTARPIECE],
    ("prado", "P 1"): [PORTRAIT, ALTARPIECE],
    ("prado", "P 2"): [VEDUTA],
    ("prado", "P 3"): [],
}
TAXONOMY = """genre,subject,realm,items,guideline
portraits,people,world,Q134307,
altarpieces,worship,heaven,,
views,places,world,,Towns and landscapes.
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """scraped.parquet, decisions and a taxonomy of paintings."""
    rows = [
        scraped_row(0, values) | {"split": split, "landmark_id": name, "category": None, "status": "ok"}
        for (split, name), values in PAINTINGS.items()
    ]
    schema = tables.SCRAPED.schema
    schema = schema.set(schema.get_field_index("landmark_id"), pa.field("landmark_id", pa.string()))
    table = pa.Table.from_pylist(rows, schema)
    tables.write_table(tmp_path / "scraped.parquet", tables.SCRAPED, table, PROVENANCE, neutral=True)
    (tmp_path / "taxonomy.csv").write_text(TAXONOMY)
    groups = {PORTRAIT: "portraits", ALTARPIECE: "altarpieces", VEDUTA: "views"}
    decided = [Decision(item, label, "group", group, "ada", WHEN) for (item, label), group in groups.items()]
    write_decisions(tmp_path / "decisions.csv", decided)
    (tmp_path / "irrelevant.csv").write_text("item,label,reason\nQ1,x,says nothing\n")
    clean_file([tmp_path / "scraped.parquet"], tmp_path / "clean.parquet", irrelevant=tmp_path / "irrelevant.csv")
    return tmp_path


def build(folder: Path, config: BuildConfig | None = None, *, taxonomy: str = TAXONOMY) -> pa.Table:
    (folder / "taxonomy.csv").write_text(taxonomy)
    run(folder / "clean.parquet", config)
    return pq.read_table(folder / "hierarchy.parquet")


def test_tables_have_neutral_columns_with_any_ids_splits_and_levels(folder: Path) -> None:
    assert pq.read_schema(folder / "scraped.parquet").names[:3] == ["split", "id", "page"]
    assert pq.read_table(folder / "removed.parquet").to_pylist() == [
        {"split": "prado", "id": "P 1", "page": None, "reason": "multiple"}
        | {"values": [{"item": item, "label": label, "language": None} for item, label in (PORTRAIT, ALTARPIECE)]},
        {"split": "prado", "id": "P 3", "page": None, "reason": "unlabelled", "values": []},
    ]
    assert build(folder).to_pylist() == [
        dict(zip(("split", "id", "page", "label", "genre", "subject", "realm"), row, strict=True))
        for row in [
            ("louvre", "INV 779", None, "portrait", "portraits", "people", "world"),
            ("louvre", "RF/1", None, "altarpiece", "altarpieces", "worship", "heaven"),
            ("prado", "P 2", None, "veduta", "views", "places", "world"),
        ]
    ]


def test_hierarchy_of_any_depth(folder: Path) -> None:
    table = build(folder, BuildConfig(multi=True))
    assert table["groups"].to_pylist() == [["portraits"], ["altarpieces"], ["portraits", "altarpieces"], ["views"]]
    hierarchy = load_hierarchy(folder)
    assert hierarchy.level_names == ("entity", "genre", "subject", "realm")
    assert (hierarchy.group_level, hierarchy.root_level, hierarchy.split_names) == (
        *("genre", "realm"),
        ["louvre", "prado"],
    )
    assert hierarchy.names(1) == ("heaven", "world")
    assert hierarchy.ancestors("views", "genre") == ("places", "world")
    assert hierarchy.code("louvre/RF/1", "entity") == 1
    assert hierarchy.labels_of(["RF/1", "INV 779"], "louvre")[:, 0].tolist() == [1, 0]
    assert hierarchy.contains(np.array(["P 1", "P 9"]), "prado").tolist() == [True, False]
    with pytest.raises(ValueError, match="expected texts"):
        hierarchy.labels_of([1], "louvre")
    assert hierarchy.label_sets_of(np.array(["P 1"]), "prado").members.offsets.tolist() == [0, 2]
    assert Hierarchy.from_arrow(hierarchy.to_arrow()) == hierarchy == Hierarchy.from_pandas(hierarchy.to_pandas())
    worldly = hierarchy.filter(roots=["world"], splits="prado")
    assert worldly.to_arrow()["id"].to_pylist() == ["P 1", "P 2"]


@pytest.mark.parametrize(
    ("taxonomy", "levels", "views"),
    [
        ("group,root,items,guideline\nportraits,a,,\naltarpieces,b,,\nviews,c,,x\n", ("group", "root"), "views"),
        ("genre,guideline\nportraits,\naltarpieces,\nviews,\n", ("genre",), "views"),
        # A group of the second level, for labels that are not known more exactly.
        ("genre,theme,guideline\nportraits,a,\naltarpieces,b,\n,views,\n", ("genre", "theme"), "views"),
    ],
)
def test_levels_and_roots_are_those_of_the_taxonomy(
    folder: Path, taxonomy: str, levels: tuple[str, ...], views: str
) -> None:
    table = build(folder, taxonomy=taxonomy)
    assert tuple(table.column_names[4:]) == levels
    assert table.to_pylist()[2][levels[0]] == views
    assert load_hierarchy(folder / "hierarchy.parquet").level_names == ("entity", *levels)


@pytest.mark.parametrize(
    ("taxonomy", "message"),
    [
        ("a,b,guideline\nx,p,\ny,p,\nx2,,\n", 'line 4: the b of "x2" is empty'),
        ("a,b,c,guideline\nx,p,r,\ny,p,s,\n", 'line 3: the c of "p" is "s", but in line 2 it is "r"'),
        ("a,label,guideline\nx,p,\n", '"label" is a column of every hierarchy'),
        ("guideline\nx\n", "there is no level"),
    ],
)
def test_wrong_trees_are_refused(tmp_path: Path, taxonomy: str, message: str) -> None:
    (tmp_path / "taxonomy.csv").write_text(taxonomy)
    with pytest.raises(InputError, match=message):
        read_taxonomy(tmp_path / "taxonomy.csv")


def test_commands_read_any_hierarchy(folder: Path) -> None:
    build(folder)
    path = str(folder / "hierarchy.parquet")
    decided = ["--decisions", str(folder / "decisions.csv"), "--taxonomy", str(folder / "taxonomy.csv")]
    for arguments, expected in [
        (["why", "P 2", "--hierarchy", path, *decided], ["prado P 2", "views", "places", "world"]),
        (["why", "P 1", "--hierarchy", path, *decided], ["removed by hgld clean as multiple"]),
        (["stats", path, "-o", str(folder / "sizes.png")], ["louvre", "heaven"]),
        (["compare", path, path], ["identical"]),
    ]:
        result = run_hgld(*arguments)
        for text in expected:
            assert text in result.output, result.output


TREE = ClassTree(
    superclasses={"Q1": ["Q11"], "Q2": ["Q11"], "Q3": ["Q12"], "Q4": [], "Q5": ["Q11", "Q12"], "Q7": ["Q13"]}
    | {"Q11": ["Q21"], "Q12": ["Q22"], "Q13": ["Q31"], "Q31": ["Q22"], "Q21": ["Q99"], "Q22": ["Q99"]},
    labels={
        f"Q{n}": text for n, text in [(1, "Prunella"), (2, "Ab"), (3, "Prunella"), (4, "Cd"), (5, "Ef"), (7, "Gh")]
    }
    | {"Q11": "Aidae", "Q12": "Bidae", "Q13": "Cidae", "Q21": "A", "Q22": "B", "Q31": "Binae", "Q99": "Aves"},
    ranks={f"Q{n}": "genus" for n in (1, 2, 3, 4, 5, 7)}
    | {"Q11": "family", "Q12": "family", "Q13": "family", "Q21": "order", "Q22": "order", "Q31": "suborder"}
    | {"Q99": "class"},
)


def test_groups_from_parents() -> None:
    labels = [InstanceOf(item, TREE.labels[item]) for item in ["Q1", "Q2", "Q3", "Q7", *("Q1",) * 20, "Q4", "Q5"]]
    groups, decisions = groups_from_parents(labels, TREE)
    assert {group.name: group.path[1:] for group in groups} == {
        "Prunella (Q1)": ("Aidae", "A"),
        "Ab": ("Aidae", "A"),
        "Prunella (Q3)": ("Bidae", "B"),
        "Gh": ("Cidae", "B"),
    }
    assert {group.levels for group in groups} == {("genus", "family", "order")}
    assert {(decision.label_id, decision.group) for decision in decisions if decision.decision == "group"} == {
        *(("Q1", "Prunella (Q1)"), ("Q2", "Ab"), ("Q3", "Prunella (Q3)"), ("Q7", "Gh"))
    }
    unsure = {decision.label: decision.comment for decision in decisions if decision.decision == "unsure"}
    assert unsure == {"Cd": "no family above it", "Ef": "Aidae (Q11) and Bidae (Q12) are equally near as family"}
    assert {group.path for group in groups_from_parents(labels, TREE, ["family"])[0]} == {
        *(("Aidae",), ("Bidae",), ("Cidae",))
    }
    with pytest.raises(ConfigurationError, match="nothing has the rank tribe; there are class, family"):
        groups_from_parents(labels, TREE, ["tribe"])


def test_levels_from_parents_are_common_ranks_and_the_nearest_classes_of_them() -> None:
    """Half of the labels have a tribe, and a family may be below another one."""
    tree = ClassTree(
        superclasses={"Q1": ["Q31"], "Q2": ["Q32"], "Q3": ["Q11"], "Q4": ["Q12"]}
        | {"Q31": ["Q11"], "Q32": ["Q12"], "Q11": ["Q12"]},
        labels={f"Q{n}": f"class {n}" for n in (1, 2, 3, 4, 11, 12, 31, 32)},
        ranks=dict.fromkeys(["Q1", "Q2", "Q3", "Q4"], "genus")
        | dict.fromkeys(["Q11", "Q12"], "family")
        | dict.fromkeys(["Q31", "Q32"], "tribe"),
    )
    groups, _ = groups_from_parents([InstanceOf(f"Q{n}", f"class {n}") for n in (1, 2, 3, 4)], tree)
    assert {group.levels for group in groups} == {("genus", "family")}
    assert [group.path for group in groups] == [
        *(("class 1", "class 11"), ("class 2", "class 12"), ("class 3", "class 11"), ("class 4", "class 12"))
    ]
