"""Documents are true: commands parse, links resolve, tables list the columns of the code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from hgld.cli import app
from hgld.evaluation.global_average_precision import RECOGNITION_METRICS
from hgld.evaluation.metric_registry import METRICS
from hgld.losses import LOSSES
from hgld.rejection.detection_metrics import DETECTION_METRICS
from hgld.tables import TABLES

CHECKOUT = Path(__file__).parent.parent
DOCUMENTS = [
    CHECKOUT / name
    for name in (
        "README.md",
        "CONTRIBUTING.md",
        "annotations/README.md",
        "pipelines/README.md",
        "benchmarks/README.md",
        "docs/architecture.md",
        "docs/cluster.md",
        "docs/dump.md",
        "docs/loggers.md",
        "docs/h-gldv2.md",
        "docs/losses.md",
        "docs/metrics.md",
        "docs/own_images.md",
        "docs/rejection.md",
        "docs/reproduce.md",
        "docs/training.md",
        "docs/washington.md",
        "data/subsets/README.md",
    )
]


def commands() -> list[str]:
    lines = set()
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        lines |= set(re.findall(r"^(?:\$|    )\s*(hgld [a-z].*)", text, re.MULTILINE))
        lines |= {inline for inline in re.findall(r"`(hgld [a-z][^`]+)`", text) if " -" in inline}
    return sorted(lines)


@pytest.mark.parametrize("line", commands())
def test_printed_commands_parse(line: str) -> None:
    name, *arguments = shlex.split(line)[1:]
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    while hasattr(command, "get_command") and arguments != ["--help"]:
        name, *arguments = arguments
        command = command.get_command(None, name)
    if arguments != ["--help"]:
        command.make_context(name, arguments)


def test_every_command_is_in_the_readme() -> None:
    text = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    for name in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        assert f"hgld {name}" in text


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(CHECKOUT).as_posix())
def test_links_resolve(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), target


def test_every_metric_is_defined() -> None:
    text = (CHECKOUT / "docs/metrics.md").read_text(encoding="utf-8")
    first_cells = re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE)
    defined = set(re.findall(r"`([\w@-]+)`", " ".join(first_cells)))
    # The variants of AHP by the trapezoidal rule are written as one row.
    variants = {name for name in METRICS if name.startswith("AHP_WUP_trapezoid")}
    assert defined - {"AHP_WUP_"} == (METRICS.keys() - variants) | {*RECOGNITION_METRICS, *DETECTION_METRICS}


def test_the_readme_lists_every_loss() -> None:
    text = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| names \| methods \|\n(.+?)\n\n", text, re.MULTILINE | re.DOTALL)
    first_cells = re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(first_cells))) == sorted(LOSSES)


def test_the_readme_lists_the_columns_of_every_table() -> None:
    text = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    for spec in TABLES.values():
        (row,) = re.findall(rf"^\| {spec.name} \| (.+) \|$", text, re.MULTILINE)
        columns = [re.sub(r" \(.*", "", column).strip() for column in re.sub(r"\([^)]*\)", "", row).split(",")]
        always = [field.name + "?" * field.nullable for field in spec.schema]
        assert columns == always + [f"[{field.name}]" for field in spec.optional]
