"""Mistakes in a taxonomy that can be read."""

from pathlib import Path

import pytest

from hgld.errors import InputError
from hgld.labels.taxonomy_check import check_taxonomy
from hgld.resources import annotation_file
from hgld.taxonomy.decisions import write_decisions
from tests.commands import run_hgld
from tests.labels.label_tables import decision, write_classes

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
            "leaf,root,guideline\nｌake side,In,x\nlake side,in,x\nb,in,x\n",
            [
                ("doubled", 'leaf: "lake side" and "ｌake side" are one name', True),
                ("doubled", 'root: "In" and "in" are one name', True),
            ],
        ),
        ("leaf,guideline\na,\nb,x\nc,\n", [("no guideline", "2 groups: a, c", False)]),
    ],
)
def test_names(text: str, expected: list[tuple[str, str, bool]], tmp_path: Path) -> None:
    assert sorted(findings(tmp_path / "taxonomy.csv", text)) == sorted(expected)


def test_names_that_differ_in_spaces_are_one_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='line 3: the group "lake side" is in line 2 already'):
        findings(tmp_path / "taxonomy.csv", "leaf,root,guideline\nlake  side,in,x\nlake side,in,x\n")


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
