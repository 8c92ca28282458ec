from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import accuracy_score, cohen_kappa_score

from hgld.review.agreement import MISSING, Codes, Floats, cohen_kappa, krippendorff_alpha, raw_agreement


def codes(annotators: st.SearchStrategy[int], *, missing: int = 0) -> st.SearchStrategy[Codes]:
    """Draw decisions on up to 12 units; the lowest code is ``MISSING`` if decisions may be missing."""
    shape = st.tuples(st.integers(1, 12), annotators)
    return shape.flatmap(lambda shape: hnp.arrays(np.int64, shape, elements=st.integers(-missing, 3)))


pairs = codes(st.just(2))
gaps = codes(st.integers(2, 4), missing=1)


def ones(units: Codes) -> Floats:
    return np.ones(len(units))


def naive_alpha(units: Codes) -> float:
    """Alpha from the coincidence matrix, pair by pair, as in section C of Krippendorff (2011)."""
    coincidences = np.zeros((10, 10))
    for unit in units:
        values = [value for value in unit if value != MISSING]
        for first, second in permutations(range(len(values)), 2):
            coincidences[values[first], values[second]] += 1 / (len(values) - 1)
    totals = coincidences.sum(axis=1)
    n = totals.sum()
    agreement = sum(coincidences[c, c] for c in range(10))
    chance = sum(total * (total - 1) for total in totals)
    return float(((n - 1) * agreement - chance) / (n * (n - 1) - chance))


def units_from(*rows: str) -> Codes:
    """Return codes of units from one string per annotator, in which a dot is a missing decision."""
    codes: Codes = np.array([[MISSING if code == "." else int(code) for code in row] for row in rows]).T
    return codes


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # Krippendorff 2011: two observers with binary data, with nominal data, four with missing data.
        (("0100000010", "1110010000"), 0.095),
        (("112243335441", "212223335444"), 0.692),
        (("123321412...", "1233224125.3", ".3332342251.", "12332441251."), 0.743),
    ],
)
def test_alpha_of_published_examples(rows: tuple[str, ...], expected: float) -> None:
    units = units_from(*rows)
    result = krippendorff_alpha(units, ones(units))
    assert result == pytest.approx(naive_alpha(units))
    assert round(float(result), 3) == expected


def test_kappa_of_a_published_example() -> None:
    """Two readers of fifty applications: both accept 20 and refuse 15, only one of them accepts 5 and 10."""
    first = np.repeat([0, 0, 1, 1], [20, 5, 10, 15])
    second = np.repeat([0, 1, 0, 1], [20, 5, 10, 15])
    assert cohen_kappa(first, second, np.ones(50)) == pytest.approx(0.4)


@given(pairs, st.data())
def test_two_annotators_match_scikit_learn(units: Codes, data: st.DataObject) -> None:
    first, second = units.T
    weights = data.draw(hnp.arrays(np.float64, len(units), elements=st.integers(1, 50).map(float)))
    assert raw_agreement(first, second, weights) == pytest.approx(
        accuracy_score(first, second, sample_weight=weights)
    )
    result = cohen_kappa(first, second, weights)
    if len({*first, *second}) == 1:
        assert np.isnan(result)
    else:
        assert result == pytest.approx(cohen_kappa_score(first, second, sample_weight=weights))


@given(gaps)
def test_alpha_matches_the_coincidence_matrix(units: Codes) -> None:
    result = krippendorff_alpha(units, ones(units))
    pairable = units[(units != MISSING).sum(axis=1) >= 2]
    if len({*pairable.ravel()} - {MISSING}) <= 1:
        assert np.isnan(result)
    else:
        assert result == pytest.approx(naive_alpha(units))


@given(gaps, st.data())
def test_integer_weights_match_repeated_units(units: Codes, data: st.DataObject) -> None:
    weights = data.draw(hnp.arrays(np.int64, (3, len(units)), elements=st.integers(0, 4)))
    first, second = units[:, 0], units[:, 1]
    measures: list[tuple[Callable[..., Floats], tuple[Codes, ...]]] = [
        (raw_agreement, (first, second)),
        (cohen_kappa, (first, second)),
        (krippendorff_alpha, (units,)),
    ]
    for measure, arguments in measures:
        weighted = measure(*arguments, weights.astype(np.float64))
        for row, result in zip(weights, weighted, strict=True):
            repeated = [np.repeat(argument, row, axis=0) for argument in arguments]
            expected = measure(*repeated, np.ones(row.sum()))
            np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12, equal_nan=True)


@given(pairs)
def test_order_of_annotators_and_names_of_categories_are_irrelevant(units: Codes) -> None:
    first, second = units.T
    renamed = np.array([2, 0, 3, 1])[units]
    for measure in (raw_agreement, cohen_kappa):
        result = measure(first, second, ones(units))
        np.testing.assert_allclose(measure(second, first, ones(units)), result, atol=1e-12)
        np.testing.assert_allclose(measure(renamed[:, 0], renamed[:, 1], ones(units)), result, atol=1e-12)
    result = krippendorff_alpha(units, ones(units))
    np.testing.assert_allclose(krippendorff_alpha(units[:, ::-1], ones(units)), result, atol=1e-12)
    np.testing.assert_allclose(krippendorff_alpha(renamed, ones(units)), result, atol=1e-12)


@given(codes(st.just(1)), st.integers(2, 4))
def test_perfect_agreement_is_one(units: Codes, annotators: int) -> None:
    assume(len(np.unique(units)) > 1)
    same = np.repeat(units, annotators, axis=1)
    assert raw_agreement(same[:, 0], same[:, 1], ones(same)) == 1
    assert cohen_kappa(same[:, 0], same[:, 1], ones(same)) == pytest.approx(1)
    assert krippendorff_alpha(same, ones(same)) == pytest.approx(1)


def test_units_with_one_decision_are_ignored() -> None:
    units = units_from("0011", "0101")
    first, second = units.T
    more = np.vstack([units, [[5, MISSING], [MISSING, 6]]])
    for weights in (ones(more), np.array([3.0, 1, 1, 1, 100, 100])):
        for result, expected in (
            (raw_agreement(more[:, 0], more[:, 1], weights), raw_agreement(first, second, weights[:4])),
            (cohen_kappa(more[:, 0], more[:, 1], weights), cohen_kappa(first, second, weights[:4])),
            (krippendorff_alpha(more, weights), krippendorff_alpha(units, weights[:4])),
        ):
            assert result == pytest.approx(expected)


def test_no_common_units_is_undefined() -> None:
    units = units_from("01..", "..01")
    first, second = units.T
    assert np.isnan(raw_agreement(first, second, ones(units)))
    assert np.isnan(cohen_kappa(first, second, ones(units)))
    assert np.isnan(krippendorff_alpha(units, ones(units)))
