"""The audit of annotators, on event logs that review sessions wrote."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.audit import audit_annotators
from hgld.audit.annotators import BREAK_S, compare, decision_seconds, labels_to_decide_twice
from hgld.compute.resampling import wilson
from hgld.errors import ConfigurationError, InputError
from hgld.review import store as store_module
from hgld.review.agreement import AgreementConfig, agreement_files
from hgld.review.decision_files import export_decisions
from hgld.review.session import LabelAction, ReviewSession
from hgld.review.store import open_store, read_store
from hgld.tables import CLUSTERS, Provenance, write_table
from hgld.taxonomy.decisions import Decision, write_decisions
from hgld.taxonomy.groups import write_taxonomy
from tests.commands import run_hgld
from tests.review.sessions import GROUPS, label

NINE = datetime(2026, 3, 2, 9, tzinfo=timezone.utc)
LABELS = [label(number, suggested="lake") for number in range(1, 13)]


class Clock:
    """Stands for the class datetime of the store, and says when each step is."""

    def __init__(self) -> None:
        self.time = NINE

    def now(self, _: Any) -> datetime:
        return self.time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(store_module, "_SYNCHRONOUS", "OFF")
    clock = Clock()
    monkeypatch.setattr(store_module, "datetime", clock)
    return clock


@contextmanager
def reviewing(path: Path, *, blind: bool = False) -> Iterator[ReviewSession]:
    with open_store(path, path.stem) as store:
        yield ReviewSession(LABELS, GROUPS, store, blind=blind)


def act(session: ReviewSession, clock: Clock, seconds: float, action: LabelAction, *label_ids: str) -> int:
    clock.time += timedelta(seconds=seconds)
    step = session.decide({label_id: session.version(label_id) for label_id in label_ids}, action)
    assert step is not None
    return step


def write_log(path: Path, clock: Clock, choices: str, seconds: Sequence[float], *, blind: bool = False) -> Path:
    """Decide on Q1, Q2, ...: a group, drop, unsure, or - for none."""
    with reviewing(path, blind=blind) as session:
        for number, (choice, passed) in enumerate(zip(choices.split(), seconds, strict=True), 1):
            action = LabelAction(choice) if choice in ("drop", "unsure") else LabelAction("group", choice)
            if choice != "-":
                act(session, clock, passed, action, f"Q{number}")
    return path


@pytest.fixture
def taxonomy(tmp_path: Path) -> Path:
    write_taxonomy(tmp_path / "groups.csv", GROUPS)
    return tmp_path / "groups.csv"


def test_seconds_are_those_since_the_step_before(tmp_path: Path, clock: Clock) -> None:
    lake, church = LabelAction("group", "lake"), LabelAction("group", "church")
    with reviewing(tmp_path / "ada.sqlite") as session:
        session.import_decisions([Decision("Q12", "label 12", "drop", None, "ben", NINE)])
        act(session, clock, 7, lake, "Q1")
        act(session, clock, 12, lake, "Q2", "Q3", "Q4")
        act(session, clock, 3, LabelAction("comment", comment="pretty"), "Q4")
        act(session, clock, 2, lake, "Q5")
        act(session, clock, BREAK_S, lake, "Q6")
        step = act(session, clock, 5, church, "Q1")
        clock.time += timedelta(seconds=1)
        assert session.undo(step) is not None
        act(session, clock, 4, LabelAction("clear"), "Q5")
        act(session, clock, 6, LabelAction("drop"), "Q5")
    seconds = decision_seconds(*read_store(tmp_path / "ada.sqlite"))
    assert list(seconds) == ["Q1", "Q2", "Q3", "Q4", "Q5", "Q6"], "in the order of decisions, without ben's"
    assert {key: values for key, values in seconds.items() if key != "Q6"} == {
        "Q1": [7.0, 5.0],
        "Q2": [4.0],
        "Q3": [4.0],
        "Q4": [4.0],
        "Q5": [2.0, 6.0],
    }
    assert np.isnan(seconds["Q6"]).tolist() == [True]


ADA = "lake lake lake lake church church church church museum museum drop drop"
BEN = "lake lake church lake church church church lake church drop drop unsure"


def test_order_and_pace(tmp_path: Path, clock: Clock, taxonomy: Path) -> None:
    slow_then_fast = [20.0] * 4 + [10.0] * 4 + [5.0] * 4
    paths = [
        write_log(tmp_path / "ada.sqlite", clock, ADA, slow_then_fast),
        write_log(tmp_path / "ben.sqlite", clock, BEN, slow_then_fast),
    ]
    audit = audit_annotators(paths, taxonomy=taxonomy)
    ada, _ = audit.annotators
    pace, agreement, suggested = ada.changes.values()
    assert (ada.labels, ada.seconds) == (12, 10.0), "of eleven: the first step has none"
    assert (pace.first, pace.second) == (20.0, 5.0)
    assert pace.difference.high < 0
    assert (agreement.first, agreement.second) == (3 / 4, 1 / 4)
    assert agreement.difference.low < agreement.difference.value < agreement.difference.high
    assert np.isnan([suggested.first, suggested.second, ada.quality.value]).all()
    assert audit.probable == {}
    assert audit.confused == [
        (("church", "lake"), 2),
        (("(drop)", "(unsure)"), 1),
        (("(drop)", "museum"), 1),
        (("church", "museum"), 1),
    ]
    assert audit.difference.value == pytest.approx(5 / 12)
    assert list(audit.levels) == ["group", "root"]
    raw = [each.by_label.pairs[0].raw.value for each in audit.levels.values()]
    assert raw == pytest.approx([7 / 12, 8 / 12]), "a church and a museum have one root"


def clusters_table(folder: Path) -> Path:
    rows = [
        {"label_id": each.label_id, "label": each.label, "landmarks_train": each.landmarks, "landmarks_index": 0}
        | {"cluster": 1, "cluster_name": "all", "subcluster": 1, "distance": 0.0, "suggested_group": "lake"}
        | {"suggestion_score": 0.9, "suggestions": []}
        for each in LABELS
    ]
    path = folder / "clusters.parquet"
    write_table(path, CLUSTERS, pa.Table.from_pylist(rows, CLUSTERS.schema), Provenance("test"))
    return path


def test_command_with_people_and_a_machine(tmp_path: Path, clock: Clock, taxonomy: Path) -> None:
    ada = write_log(tmp_path / "ada.sqlite", clock, ADA, [3.0] * 12)
    with reviewing(tmp_path / "ben.sqlite", blind=True) as session:
        for number, choice in enumerate(BEN.split(), 1):
            session.blind = number > 6
            action = LabelAction(choice) if choice in ("drop", "unsure") else LabelAction("group", choice)
            act(session, clock, 4, action, f"Q{number}")
    machine = [Decision(each.label_id, each.label, "group", "lake", "machine", NINE) for each in LABELS]
    write_decisions(tmp_path / "machine.csv", machine)
    clusters, out = clusters_table(tmp_path), tmp_path / "disputed.csv"
    files = [ada, tmp_path / "ben.sqlite", tmp_path / "machine.csv"]
    options = ["--clusters", clusters, "--taxonomy", taxonomy, "--resamples", 200]
    result = run_hgld("audit", "annotators", *files, *options, "-o", out)
    assert "12 labels decided by two or more of 3 annotators, 9 of them differently" in result.stdout
    assert "ben        as suggested, blind to shown" in result.stdout
    table = pd.read_csv(out).set_index("label_id")
    assert len(table) == 9
    row = table.loc["Q12"]
    assert row["landmarks"] == 12
    assert row[["decision_ada", "decision_ben", "decision_machine"]].tolist() == ["(drop)", "(unsure)", "lake"]
    assert table.loc["Q5", "probable"] == "church", "as both people say"
    assert table["probability"].between(0.3, 1).all()

    ben = audit_annotators(files, clusters=clusters, taxonomy=taxonomy).annotators[1]
    suggested = ben.changes["as suggested, blind to shown"]
    assert (suggested.first, suggested.second) == (1 / 5, 3 / 6), "blind decisions, and those that saw lake"
    program = audit_annotators(files, taxonomy=taxonomy).annotators[2]
    assert (program.annotator, program.labels) == ("machine", 12)
    assert np.isnan([program.seconds, *(change.first for change in program.changes.values())]).all()

    result = run_hgld("audit", "annotators", ada, files[2], "-o", files[2], code=1)
    assert "is an input, and would be overwritten" in result.stderr


def test_stores_count_as_their_decisions(tmp_path: Path, clock: Clock, taxonomy: Path) -> None:
    """Also where an annotator proposed and renamed groups."""
    stores = [write_log(tmp_path / f"{name}.sqlite", clock, BEN, [1.0] * 12) for name in ("ada", "ben")]
    with reviewing(stores[0]) as session:
        session.propose_group("quay", "human-made", "Where boats land.")
        act(session, clock, 1, LabelAction("group", "quay"), "Q3")
        session.rename_group("church", "house of God", 0)
    files = [tmp_path / "csv" / f"{path.stem}.csv" for path in stores]
    for path, out in zip(stores, files, strict=True):
        export_decisions(path, out, taxonomy=taxonomy)
    expected = agreement_files(files, taxonomy=taxonomy)
    assert agreement_files(stores, taxonomy=taxonomy) == expected
    assert {row.label_id for row in expected.disagreements} == {"Q3"}
    with pytest.raises(ConfigurationError, match='two files are called "ada"'):
        audit_annotators([stores[0], files[0]], taxonomy=taxonomy)
    write_taxonomy(tmp_path / "other.csv", [replace(GROUPS[1], key="pond")])
    with pytest.raises(InputError, match=r"ada.sqlite: the taxonomy has no group lake.*; give it as `taxonomy`"):
        audit_annotators(stores, taxonomy=tmp_path / "other.csv")


def test_a_damaged_store_is_refused(tmp_path: Path, clock: Clock, taxonomy: Path) -> None:
    ada = write_log(tmp_path / "ada.sqlite", clock, ADA, [1.0] * 12)
    with sqlite3.connect(tmp_path / "ben.sqlite") as other:
        other.execute("CREATE TABLE x (y)")
    with pytest.raises(InputError, match="not a store of decisions"):
        audit_annotators([ada, tmp_path / "ben.sqlite"], taxonomy=taxonomy)


@pytest.mark.parametrize("statistic", [np.mean, np.median])
def test_differences_match_a_naive_bootstrap(statistic: Callable[..., Any]) -> None:
    rng = np.random.default_rng(1)
    first, second = rng.normal(5, 2, 40), rng.normal(4, 1, 30)
    slow = [statistic(rng.choice(second, 30)) - statistic(rng.choice(first, 40)) for _ in range(4000)]
    result = compare(first, second, statistic, AgreementConfig(n_resamples=4000))
    assert result.difference.value == pytest.approx(statistic(second) - statistic(first))
    interval = (result.difference.low, result.difference.high)
    assert interval == pytest.approx(tuple(np.quantile(slow, [0.025, 0.975])), abs=0.1)


def test_too_few_values_have_no_interval() -> None:
    result = compare(np.array([1.0]), np.array([2.0, 3.0]), np.mean, AgreementConfig())
    assert (result.first, result.second) == (1.0, 2.5)
    assert np.isnan(result.difference.value)


@given(st.floats(0, 1), st.integers(1, 3000), st.sampled_from([0.01, 0.02, 0.05]))
def test_number_of_labels_to_decide_twice(share: float, n_labels: int, margin: float) -> None:
    """It is the first number whose interval is narrow enough, and near that of the normal approximation."""
    needed = labels_to_decide_twice(share, n_labels, margin)

    def half_width(n: int) -> float:
        low, high = wilson(np.array([share]), np.array([n * (n_labels - 1) / (n_labels - n)]))
        return float(high[0] - low[0]) / 2

    assert needed == next((n for n in range(1, n_labels) if half_width(n) <= margin), n_labels)
    if 0.1 < share < 0.9:
        unlimited = 1.96**2 * share * (1 - share) / margin**2
        assert needed == pytest.approx(unlimited / (1 + (unlimited - 1) / n_labels), abs=3, rel=0.02)


def test_that_many_labels_are_enough() -> None:
    """Drawing them without replacement hits the rate of all labels to 1 % in about 95 % of the draws."""
    rng, differ = np.random.default_rng(0), np.arange(2000) < 120
    needed = labels_to_decide_twice(0.06, 2000)
    shares = np.array([differ[rng.permutation(2000)[:needed]].mean() for _ in range(1000)])
    assert np.mean(np.abs(shares - 0.06) <= 0.01) == pytest.approx(0.95, abs=0.02)
