"""Documents are true: commands parse, links resolve, tables list the columns of the code."""

import itertools
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import typer

from hgld.cli import app
from hgld.evaluation import evaluate_retrieval
from hgld.evaluation.metrics import METRICS
from hgld.evaluation.recognition import RECOGNITION_METRICS
from hgld.losses import LOSSES
from hgld.rejection.detection_metrics import DETECTION_METRICS

CHECKOUT = Path(__file__).parent.parent
DOCUMENTS = sorted(
    path
    for pattern in (
        *("*.md", "annotations/*.md", "benchmarks/*.md", "data/subsets/*.md", "docs/*.md", "docs/*/*.md"),
        "pipelines/*.md",
    )
    for path in CHECKOUT.glob(pattern)
    if path.name != "CHANGELOG.md"
)


def commands() -> list[str]:
    lines = set()
    for path in DOCUMENTS:
        text = re.sub(r" *\\\n\s*", " ", path.read_text(encoding="utf-8"))
        lines |= set(re.findall(r"^(?:\$ *| {4})(hgld [a-z].*)", text, re.MULTILINE))
        lines |= {inline for inline in re.findall(r"`(hgld [a-z][^`]+)`", text) if " -" in inline}
    return sorted(lines)


@pytest.mark.parametrize("line", commands())
def test_printed_commands_parse(line: str) -> None:
    words = shlex.split(line, comments=True)
    name, *arguments = itertools.takewhile(lambda word: word not in {"|", ">", "&&"}, words[1:])
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    while hasattr(command, "get_command") and arguments != ["--help"]:
        name, *arguments = arguments
        command = command.get_command(None, name)
    if arguments != ["--help"]:
        command.make_context(name, arguments)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(CHECKOUT).as_posix())
def test_links_resolve(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
        # The build of the site checks links to the pages that it generates.
        if not target.startswith("http") and "generated/" not in target:
            assert (path.parent / target).exists(), target


def test_site_opens_at_its_topmost_page() -> None:
    root_page = re.search(r'^root_doc = "(.+)"$', (CHECKOUT / "docs/conf.py").read_text("utf-8"), re.MULTILINE)
    assert root_page is not None
    assert f"url={root_page[1]}.html" in (CHECKOUT / "docs/_extra/index.html").read_text("utf-8")


def test_extras_are_installed_from_a_clone() -> None:
    """hgld is on no package index, so that its name with an extra installs nothing."""
    texts = {path: path.read_text("utf-8") for path in [*DOCUMENTS, *CHECKOUT.glob("hgld/**/*.py")]}
    assert [path for path, text in texts.items() if re.search(r"hgld\[[a-z]+\]", text)] == []


def test_every_metric_is_defined() -> None:
    text = (CHECKOUT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    first_cells = re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE)
    defined = set(re.findall(r"`([\w@-]+)`", " ".join(first_cells)))
    # The variants of AHP by the trapezoidal rule are written as one row.
    variants = {name for name in METRICS if name.startswith("AHP_WUP_trapezoid")}
    assert defined - {"AHP_WUP_"} == (METRICS.keys() - variants) | {*RECOGNITION_METRICS, *DETECTION_METRICS}


def test_examples_of_metrics_are_what_hgld_computes() -> None:
    text = (CHECKOUT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    cells = [row.split(" | ") for row in re.findall(r"^\| (`.+) \|$", text, re.MULTILINE)]
    examples = dict(
        re.findall(r"`([\w@-]+)` \$[^$]*= ([\d.]+)\$", " ".join(row[2] for row in cells if len(row) == 4))
    )
    assert len(examples) == 23
    cosines = np.array([0.9, 0.5, 0.1])
    items = np.stack([cosines, np.sqrt(1 - cosines**2)], axis=1)
    result = evaluate_retrieval(
        np.eye(1, 2), np.array([[0, 0]]), items, np.array([[1, 0], [2, 1], [0, 0]]), metrics=list(examples)
    )
    assert {name: float(value) for name, value in examples.items()} == pytest.approx(dict(result.means), abs=6e-4)


def test_every_loss_is_listed() -> None:
    text = (CHECKOUT / "docs/how-to/train.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| names \| methods \|\n(.+?)\n\n", text, re.MULTILINE | re.DOTALL)
    first_cells = re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(first_cells))) == sorted(LOSSES)
