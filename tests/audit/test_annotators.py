"""The audit of annotators on event logs of review sessions, and the model of Dawid and Skene beside loops."""

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
from hypothesis.extra.numpy import arrays

from hgld.audit import audit_annotators
from hgld.audit.annotators import BREAK_S, dawid_skene, decision_seconds, labels_to_decide_twice, measure_change
from hgld.compute.resampling import wilson
from hgld.errors import ConfigurationError, InputError
from hgld.review import store as store_module
from hgld.review.agreement import MISSING, AgreementConfig, Codes, agreement_files
from hgld.review.decision_files import export_decisions
from hgld.review.session import LabelAction, ReviewSession
from hgld.review.store import open_store, read_store
from hgld.tables import CLUSTERS, Provenance, write_table
from hgld.taxonomy.decisions import Decision, write_decisions
from hgld.taxonomy.groups import write_taxonomy
from tests.assertions import not_none
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
    return not_none(session.decide({label_id: session.version(label_id) for label_id in label_ids}, action))


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
    result = measure_change(first, second, statistic, AgreementConfig(n_resamples=4000))
    assert result.difference.value == pytest.approx(statistic(second) - statistic(first))
    interval = (result.difference.low, result.difference.high)
    assert interval == pytest.approx(tuple(np.quantile(slow, [0.025, 0.975])), abs=0.1)


def test_too_few_values_have_no_interval() -> None:
    result = measure_change(np.array([1.0]), np.array([2.0, 3.0]), np.mean, AgreementConfig())
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


#: Answers of three annotators on eight units; a unit may have none.
CODES = arrays(np.int64, (8, 3), elements=st.integers(MISSING, 3))


def naive(codes: Codes, smoothing: float, iterations: int) -> list[list[float]]:
    """Return the probabilities of all categories for each unit, one at a time."""
    n, n_annotators, k = len(codes), codes.shape[1], int(codes.max()) + 1

    def normalised(weights: list[float]) -> list[float]:
        return [weight / sum(weights) for weight in weights]

    truth = [normalised([sum(answer == c for answer in row) + 1 / k for c in range(k)]) for row in codes.tolist()]
    for _ in range(iterations):
        prior = [(sum(row[c] for row in truth) + 1 / k) / (n + 1) for c in range(k)]
        given_truth = []
        for annotator in range(n_annotators):
            answered = [unit for unit in range(n) if codes[unit, annotator] != MISSING]
            knows = sum(truth[unit][codes[unit, annotator]] for unit in answered)
            knows = (knows + 1) / (len(answered) + 2)
            given = codes[:, annotator].tolist()
            table = []
            for c in range(k):
                row = []
                for answer in range(k):
                    share = (given.count(answer) + 1 / k) / (len(answered) + 1)
                    expected = knows * (answer == c) + (1 - knows) * share
                    count = sum(truth[unit][c] for unit in answered if given[unit] == answer)
                    total = sum(truth[unit][c] for unit in answered)
                    row.append((count + smoothing * expected) / (total + smoothing))
                table.append(row)
            given_truth.append(table)
        truth = []
        for row in codes.tolist():
            weights = prior.copy()
            for annotator, answer in enumerate(row):
                if answer != MISSING:
                    weights = [weight * given_truth[annotator][c][answer] for c, weight in enumerate(weights)]
            truth.append(normalised(weights))
    return truth


@given(CODES.filter(lambda codes: codes.max() >= 0), st.sampled_from([0.1, 1.0, 10.0]))
def test_probabilities_are_those_of_loops(codes: Codes, smoothing: float) -> None:
    probabilities, quality = dawid_skene(codes, smoothing=smoothing, max_iterations=8)
    expected = np.array(naive(codes, smoothing, 8))
    assert probabilities == pytest.approx(expected, abs=1e-4)
    for annotator, answers in enumerate(codes.T):
        shares = [expected[unit, answer] for unit, answer in enumerate(answers) if answer != MISSING]
        assert quality[annotator] == pytest.approx(np.mean(shares) if shares else np.nan, abs=1e-4, nan_ok=True)


@given(CODES, st.permutations(range(4)), st.permutations(range(3)))
def test_names_of_categories_and_annotators_do_not_matter(
    codes: Codes, categories: list[int], annotators: list[int]
) -> None:
    codes = np.vstack([codes, np.repeat(np.arange(4)[:, None], 3, axis=1)])  # all categories occur
    renamed = np.where(codes == MISSING, MISSING, np.array(categories)[codes])[:, annotators]
    expected, quality = dawid_skene(codes)
    probabilities, renamed_quality = dawid_skene(renamed)
    assert probabilities[:, categories] == pytest.approx(expected, abs=1e-6)
    assert renamed_quality == pytest.approx(quality[annotators], abs=1e-6, nan_ok=True)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(2, 5))
def test_what_all_agree_on_is_most_probable(truth: list[int], n_annotators: int) -> None:
    codes = np.repeat(np.array(truth)[:, None], n_annotators, axis=1)
    probabilities, quality = dawid_skene(codes)
    assert probabilities.argmax(axis=1).tolist() == truth
    assert np.ptp(quality) < 1e-9
    assert (quality > 0.5).all()


def test_better_annotators_are_recognised_and_followed() -> None:
    """Annotators err alike: most errors are in the same other category, so that votes follow two bad annotators."""
    rng, right = np.random.default_rng(0), np.array([0.97, 0.75, 0.75])
    truth = rng.choice(40, 300, p=rng.dirichlet(np.full(40, 0.5)))
    wrong = np.where(rng.random((300, 3)) < 0.6, (truth[:, None] + 1) % 40, rng.integers(0, 40, (300, 3)))
    codes = np.where(rng.random((300, 3)) < right, truth[:, None], wrong)
    probabilities, quality = dawid_skene(codes)
    assert quality == pytest.approx(right, abs=0.05)
    votes = (codes[:, :, None] == np.arange(40)).sum(axis=1)
    assert (votes.argmax(axis=1) != truth).sum() > 1.5 * (probabilities.argmax(axis=1) != truth).sum()
