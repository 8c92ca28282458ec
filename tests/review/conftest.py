"""Small tables from which sheets are made, and LibreOffice to convert them."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from math import nan
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from jinja2 import FileSystemBytecodeCache

from hgld.pages.templates import page_templates
from hgld.review import store
from hgld.review.decision_files import Opinions
from hgld.review.session import ReviewSession
from hgld.review.settings import ExportConfig
from hgld.review.sheets.export import export_sheets
from hgld.tables import CLASSES, CLEAN, CLUSTERS, Provenance, write_table
from hgld.taxonomy.decisions import Decision
from tests.child_processes import run_child
from tests.review.sessions import open_session

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
COMMONS = "https://commons.wikimedia.org/wiki/Category:"


@dataclass
class Label:
    """A label of a made-up dataset; its landmarks are named after it."""

    label_id: str
    label: str
    cluster: int = 0
    subcluster: int = 0
    train: int = 1
    index: int = 0
    group: str | None = None
    score: float | None = None


LABELS = (
    Label("Q1", "lake", 0, 0, train=3, index=2, group="lake"),
    Label("Q2", "glacial lake", 0, 1, train=1),
    Label("Q3", "church building", 1, 2, train=2, index=2),
    Label("Q4", "chapel", 1, 2, train=0, index=5),
)


def _suggestions(label: Label) -> list[dict[str, Any]]:
    if label.group is None:
        return []
    return [{"group": label.group, "score": nan if label.score is None else label.score, "reason": ""}]


def clusters_table(labels: Sequence[Label]) -> pa.Table:
    """Return the ``clusters`` table of some labels."""
    rows: list[dict[str, Any]] = [
        {
            "label_id": label.label_id,
            "label": label.label,
            "landmarks_train": label.train,
            "landmarks_index": label.index,
            "cluster": label.cluster,
            "cluster_name": f"cluster {label.cluster}",
            "subcluster": label.subcluster,
            "distance": 0.5,
            "suggested_group": label.group,
            "suggestion_score": label.score,
            "suggestions": _suggestions(label),
        }
        for label in labels
    ]
    return pa.Table.from_pylist(rows, CLUSTERS.schema)


def clean_table(labels: Sequence[Label]) -> pa.Table:
    """Return the ``clean`` table of their landmarks."""
    rows: list[dict[str, Any]] = []
    for number, label in enumerate(labels):
        known = label.label_id.startswith("Q")
        for split, count in (("index", label.index), ("train", label.train)):
            rows += [
                {
                    "split": split,
                    "landmark_id": 1000 * number + landmark,
                    "category": f"{COMMONS}{label.label_id}_{split}_{landmark}",
                    "supercategory": label.label,
                    "class_item": label.label_id if known else None,
                }
                for landmark in reversed(range(count))
            ]
    return pa.Table.from_pylist(rows, CLEAN.schema)


def decide(name: str, choices: str) -> Opinions:
    """Return decisions on Q0, Q1, ...: a group, drop, unsure, unsure:GUESS, or - for none."""
    decisions = {}
    for number, choice in enumerate(choices.split()):
        label_id, (decision, _, guess) = f"Q{number}", choice.partition(":")
        if decision == "-":
            continue
        group = guess or None
        if decision not in ("drop", "unsure"):
            decision, group = "group", choice
        comment = f"{name} on {number}"
        decisions[label_id] = Decision(label_id, f"label {number}", decision, group, name, NOON, comment)
    return Opinions(name, decisions)


def write_tables(folder: Path, labels: Sequence[Label] = LABELS) -> Path:
    """Write clusters.parquet, clean.parquet and classes for some labels; return the path of the first."""
    made = Provenance("test")
    write_table(folder / "clusters.parquet", CLUSTERS, clusters_table(labels), made)
    write_table(folder / "clean.parquet", CLEAN, clean_table(labels), made)
    classes = [
        {"item": "Q2", "label": "glacial lake", "language": "en", "subclass_of": ["Q1", "Q99"]},
        {"item": "Q1", "label": "lake", "language": "en", "subclass_of": []},
    ]
    table = pa.Table.from_pylist(classes, CLASSES.schema)
    write_table(folder / "scraped.classes.parquet", CLASSES, table, made)
    return folder / "clusters.parquet"


@pytest.fixture(scope="session", autouse=True)
def compiled_templates(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compile the templates of the page once for all sessions, each of which has an environment of its own."""
    page_templates("review").bytecode_cache = FileSystemBytecodeCache(str(tmp_path_factory.mktemp("templates")))


@pytest.fixture(autouse=True)
def no_wait_for_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no commit of a store wait for the disk: that matters in a power cut only, and takes most of a commit."""
    monkeypatch.setattr(store, "_SYNCHRONOUS", "OFF")


@pytest.fixture
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ReviewSession]:
    """A session with the labels that the test's module calls ``LABELS``, or others."""
    with open_session(tmp_path / "ada.sqlite", getattr(request.module, "LABELS", None)) as session:
        yield session


@pytest.fixture
def tables(tmp_path: Path) -> Callable[..., Path]:
    """:func:`write_tables` into the folder of the test."""
    return partial(write_tables, tmp_path)


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the tables of ``LABELS`` and, in ``review``, the sheets of ada and ben."""
    folder = tmp_path_factory.mktemp("exported")
    export_sheets(write_tables(folder), folder / "review", ExportConfig(("ada", "ben")))
    return folder


@pytest.fixture
def review(exported: Path, tmp_path: Path) -> Path:
    """Folder with the sheets of ada and ben, beside the clusters."""
    shutil.copytree(exported, tmp_path, dirs_exist_ok=True)
    return tmp_path / "review"


@pytest.fixture(scope="session")
def soffice(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Convert a file with LibreOffice: ``soffice(path, "csv", options)`` returns the new file."""
    program = shutil.which("soffice")
    if program is None:
        pytest.skip("LibreOffice is not installed (Debian: libreoffice-calc-nogui)")
    profile = tmp_path_factory.mktemp("profile").as_uri()

    def convert(path: Path, kind: str, options: str = "") -> Path:
        out = tmp_path_factory.mktemp("converted")
        command = [program, f"-env:UserInstallation={profile}", "--headless"]
        if path.suffix == ".csv":
            command.append("--infilter=Text - txt - csv (StarCalc):44,34,76")  # comma, quote, UTF-8
        command += ["--convert-to", f"{kind}:{options}" if options else kind, "--outdir", str(out), str(path)]
        run_child(command, timeout_s=120)
        (result,) = out.glob(f"*.{kind}")
        return result

    return convert
