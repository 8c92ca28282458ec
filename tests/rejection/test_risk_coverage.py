"""Risk against coverage, against the definitions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import InputError
from hgld.rejection.risk_coverage import risk_coverage

Answers = list[tuple[float, bool]]
SCORES = st.sampled_from([-math.inf, -1.0, -0.0, 0.0, 0.5, 2.0, math.inf]) | st.floats(allow_nan=False)
ANSWERS = st.lists(st.tuples(SCORES, st.booleans()), min_size=1, max_size=25)


def risk_of_accepted(answers: Answers, threshold: float) -> float:
    accepted = [right for score, right in answers if score <= threshold]
    return accepted.count(False) / len(accepted)


@given(ANSWERS)
def test_curve_and_area_are_those_of_the_definitions(answers: Answers) -> None:
    scores, right = zip(*answers, strict=True)
    curve = risk_coverage(scores, np.array(right))
    thresholds = sorted(set(scores))
    assert curve.thresholds.tolist() == thresholds
    assert curve.risk.tolist() == pytest.approx([risk_of_accepted(answers, threshold) for threshold in thresholds])
    shares = [sum(score <= threshold for score in scores) / len(scores) for threshold in thresholds]
    assert curve.coverage.tolist() == pytest.approx(shares)
    area = sum(risk_of_accepted(answers, score) for score in scores) / len(scores)
    assert curve.area == pytest.approx(area, abs=1e-12)


def test_wrong_scores_are_one_line() -> None:
    with pytest.raises(InputError, match="`scores` is empty"):
        risk_coverage([], np.empty(0, bool))
    with pytest.raises(InputError, match="`scores` has 1 NaN of 2"):
        risk_coverage([math.nan, 0.0], np.array([True, True]))
