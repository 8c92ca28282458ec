"""GAP against a slow oracle, and how its results are taken apart and resampled."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import ConfigurationError
from hgld.evaluation.recognition import RECOGNITION_METRICS, RecognitionResult, recognition_results
from hgld.gldv2.ground_truth import LandmarkPrediction, RecognitionSolution

Truths = dict[str, frozenset[int]]
Predictions = dict[str, LandmarkPrediction]


def oracle(truths: Truths, predictions: Predictions, *, landmark_images_only: bool) -> float:
    """GAP by its definition: for each right prediction, count those that are not ranked below it."""
    counted = [image for image in predictions if image in truths and (truths[image] or not landmark_images_only)]
    total = 0.0
    for image in counted:
        if predictions[image].landmark not in truths[image]:
            continue
        own = (-predictions[image].score, image)
        above = [other for other in counted if (-predictions[other].score, other) <= own]
        total += sum(predictions[other].landmark in truths[other] for other in above) / len(above)
    n_landmark_images = sum(bool(own) for own in truths.values())
    return total / n_landmark_images if n_landmark_images else math.nan


def top1_oracle(truths: Truths, predictions: Predictions) -> float:
    landmark_images = [image for image, own in truths.items() if own]
    right = [image in predictions and predictions[image].landmark in truths[image] for image in landmark_images]
    return sum(right) / len(right) if right else math.nan


IMAGES = st.text("aAb019", min_size=1, max_size=3)
LANDMARKS = st.integers(0, 3)
SCORES = st.sampled_from([-math.inf, -1.0, -0.0, 0.0, 0.5, 2.0, math.inf])
TRUTHS = st.dictionaries(IMAGES, st.frozensets(LANDMARKS, max_size=3), max_size=12)


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Truths], Predictions]:
    truths = draw(TRUTHS)
    private = draw(st.frozensets(st.sampled_from(sorted(truths)))) if truths else frozenset()
    answers = st.builds(LandmarkPrediction, LANDMARKS, SCORES)
    predictions = draw(st.dictionaries(st.sampled_from(sorted(truths)), answers)) if truths else {}
    parts = {
        "Public": {image: own for image, own in truths.items() if image not in private},
        "Private": {image: own for image, own in truths.items() if image in private},
    }
    return parts, predictions


@given(cases())
def test_metrics_agree_with_the_oracle(case: tuple[dict[str, Truths], Predictions]) -> None:
    parts, predictions = case
    results = recognition_results(predictions, RecognitionSolution(parts))
    for truths, result in zip(parts.values(), results, strict=True):
        expected = {
            "gap": oracle(truths, predictions, landmark_images_only=False),
            "gap_ignore_non_landmark": oracle(truths, predictions, landmark_images_only=True),
            "top1": top1_oracle(truths, predictions),
        }
        assert result.means == pytest.approx(expected, abs=1e-12, nan_ok=True)
        assert result.counts["queries"] == len(truths)
        assert result.counts["images_without_a_landmark"] == sum(not own for own in truths.values())
        assert result.counts["images_without_a_prediction"] == sum(image not in predictions for image in truths)


@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_files_does_not_count(
    case: tuple[dict[str, Truths], Predictions], random: np.random.Generator
) -> None:
    parts, predictions = case

    def shuffled(rows: dict[str, object]) -> dict[str, object]:
        keys = list(rows)
        random.shuffle(keys)
        return {key: rows[key] for key in keys}

    moved = {usage: shuffled(dict(truths)) for usage, truths in parts.items()}
    results = recognition_results(predictions, RecognitionSolution(parts))
    others = recognition_results(shuffled(dict(predictions)), RecognitionSolution(moved))  # type: ignore[arg-type]
    for result, other in zip(results, others, strict=True):
        assert result.per_query.equals(other.per_query)


def sample(n: int = 60) -> tuple[Truths, Predictions, RecognitionResult]:
    rng = np.random.default_rng(4)
    truths = {f"{i:02}": frozenset({i % 5} if i % 3 else ()) for i in range(n)}
    predictions = {
        f"{i:02}": LandmarkPrediction(int(rng.integers(5)) if i % 2 else i % 5, float(rng.integers(8)))
        for i in range(n)
        if i % 7
    }
    result, _ = recognition_results(predictions, RecognitionSolution({"Public": truths, "Private": {}}))
    return truths, predictions, result


def test_parts_are_ranked_among_themselves() -> None:
    truths, predictions, result = sample()
    chosen = result.per_query.index < "30"
    part = result.part("half", chosen)
    half = {image: own for image, own in truths.items() if image < "30"}
    assert part.means["gap"] == pytest.approx(oracle(half, predictions, landmark_images_only=False), abs=1e-12)
    assert part.means["gap"] != pytest.approx(result.per_query["gap"][chosen].mean(), abs=1e-3)
    assert part.counts["queries"] == 30
    assert part.counts["images_without_a_landmark"] == 10


def test_intervals_rank_every_resample_of_either_kind_of_images() -> None:
    truths, predictions, result = sample()
    images = list(result.per_query.index)
    kinds = [[image for image in images if bool(truths[image]) is shown] for shown in (True, False)]
    assert all(kinds)
    rng = np.random.default_rng(3)
    draws = []
    for _ in range(50):
        drawn = [kind[i] for kind in kinds for i in rng.integers(len(kind), size=len(kind))]
        # Copies get ids that keep them beside each other.
        names = [f"{image}/{copy}" for copy, image in enumerate(drawn)]
        own = {name: truths[name[:2]] for name in names}
        answers = {name: predictions[name[:2]] for name in names if name[:2] in predictions}
        draws.append(oracle(own, answers, landmark_images_only=False))
    expected = np.quantile(draws, [0.05, 0.95])
    assert result.intervals(0.9, n_resamples=50, seed=3)["gap"] == pytest.approx(tuple(expected), abs=1e-12)


def test_intervals_of_parts_without_a_landmark_are_nan() -> None:
    results = recognition_results({}, RecognitionSolution({"Public": {"a": frozenset()}, "Private": {}}))
    for result in results:
        assert all(math.isnan(end) for ends in result.intervals(n_resamples=3).values() for end in ends)
    with pytest.raises(ConfigurationError, match="the confidence is 2 with 3 resamples"):
        results[0].intervals(2, n_resamples=3)


def test_metrics_can_be_chosen() -> None:
    solution = RecognitionSolution({"Public": {"a": frozenset({1})}})
    (result,) = recognition_results({"a": LandmarkPrediction(1, 0.0)}, solution, RECOGNITION_METRICS[:1])
    assert result.means == {"gap": 1.0}
    assert list(result.intervals(n_resamples=2)) == ["gap"]
