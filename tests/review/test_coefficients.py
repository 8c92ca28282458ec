from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import accuracy_score, cohen_kappa_score

from hgld.review.coefficients import MISSING, cohen_kappa, krippendorff_alpha, raw_agreement


def codes(annotators, *, missing=0):
    """Decisions on up to 12 units; the lowest code stands for a missing one where there may be some."""
    shape = st.tuples(st.integers(1, 12), annotators)
    return shape.flatmap(lambda shape: hnp.arrays(np.int64, shape, elements=st.integers(-missing, 3)))


pairs = codes(st.just(2))
gaps = codes(st.integers(2, 4), missing=1)


def ones(units):
    return np.ones(len(units))


def alpha_by_the_paper(units):
    """From the coincidence matrix, pair by pair, as in section C of the paper (Krippendorff 2011)."""
    coincidences = np.zeros((10, 10))
    for unit in units:
        values = [value for value in unit if value != MISSING]
        for one, other in permutations(range(len(values)), 2):
            coincidences[values[one], values[other]] += 1 / (len(values) - 1)
    totals = coincidences.sum(axis=1)
    n = totals.sum()
    agreement = sum(coincidences[c, c] for c in range(10))
    chance = sum(total * (total - 1) for total in totals)
    return ((n - 1) * agreement - chance) / (n * (n - 1) - chance)


def letters(*rows):
    """Codes of units from a row of letters per annotator; a dot is missing."""
    return np.array([[MISSING if letter == "." else ord(letter) - ord("0") for letter in row] for row in rows]).T


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # Krippendorff 2011: two observers with binary data, with nominal data, four with missing data.
        (("0100000010", "1110010000"), 0.095),
        (("112243335441", "212223335444"), 0.692),
        (("123321412...", "1233224125.3", ".3332342251.", "12332441251."), 0.743),
    ],
)
def test_alpha_of_published_examples(rows, expected):
    units = letters(*rows)
    found = krippendorff_alpha(units, ones(units))
    assert found == pytest.approx(alpha_by_the_paper(units))
    assert round(float(found), 3) == expected


def test_kappa_of_a_published_example():
    """Two readers and fifty grants, 20 accepted and 15 refused by both, 5 and 10 by one."""
    first = np.repeat([0, 0, 1, 1], [20, 5, 10, 15])
    second = np.repeat([0, 1, 0, 1], [20, 5, 10, 15])
    assert cohen_kappa(first, second, np.ones(50)) == pytest.approx(0.4)


@given(pairs, st.data())
def test_two_annotators_as_scikit_learn_has_it(units, data):
    first, second = units.T
    weights = data.draw(hnp.arrays(np.float64, len(units), elements=st.integers(1, 50).map(float)))
    assert raw_agreement(first, second, weights) == pytest.approx(
        accuracy_score(first, second, sample_weight=weights)
    )
    found = cohen_kappa(first, second, weights)
    if len({*first, *second}) == 1:
        assert np.isnan(found)
    else:
        assert found == pytest.approx(cohen_kappa_score(first, second, sample_weight=weights))


@given(gaps)
def test_alpha_is_that_of_the_paper(units):
    found = krippendorff_alpha(units, ones(units))
    pairable = units[(units != MISSING).sum(axis=1) >= 2]
    if len({*pairable.ravel()} - {MISSING}) <= 1:
        assert np.isnan(found)
    else:
        assert found == pytest.approx(alpha_by_the_paper(units))


@given(gaps, st.data())
def test_a_weight_is_so_many_equal_units(units, data):
    weights = data.draw(hnp.arrays(np.int64, (3, len(units)), elements=st.integers(0, 4)))
    first, second = units[:, 0], units[:, 1]
    for measure, arguments in (
        (raw_agreement, (first, second)),
        (cohen_kappa, (first, second)),
        (krippendorff_alpha, (units,)),
    ):
        together = measure(*arguments, weights.astype(np.float64))
        for row, found in zip(weights, together, strict=True):
            repeated = [np.repeat(one, row, axis=0) for one in arguments]
            np.testing.assert_allclose(found, measure(*repeated, np.ones(row.sum())), rtol=1e-9, atol=1e-12)


@given(pairs)
def test_order_and_names_do_not_matter(units):
    first, second = units.T
    renamed = np.array([2, 0, 3, 1])[units]
    for measure in (raw_agreement, cohen_kappa):
        found = measure(first, second, ones(units))
        np.testing.assert_allclose(measure(second, first, ones(units)), found, atol=1e-12)
        np.testing.assert_allclose(measure(*renamed.T, ones(units)), found, atol=1e-12)
    found = krippendorff_alpha(units, ones(units))
    np.testing.assert_allclose(krippendorff_alpha(units[:, ::-1], ones(units)), found, atol=1e-12)
    np.testing.assert_allclose(krippendorff_alpha(renamed, ones(units)), found, atol=1e-12)


@given(codes(st.just(1)), st.integers(2, 4))
def test_who_agrees_on_everything_has_one(units, annotators):
    assume(len(np.unique(units)) > 1)
    same = np.repeat(units, annotators, axis=1)
    assert raw_agreement(same[:, 0], same[:, 1], ones(same)) == 1
    assert cohen_kappa(same[:, 0], same[:, 1], ones(same)) == pytest.approx(1)
    assert krippendorff_alpha(same, ones(same)) == pytest.approx(1)


def test_units_that_one_annotator_decided_count_for_nothing():
    units = letters("0011", "0101")
    more = np.vstack([units, [[5, MISSING], [MISSING, 6]]])
    for weights in (ones(more), np.array([3.0, 1, 1, 1, 100, 100])):
        for found, expected in (
            (raw_agreement(*more.T, weights), raw_agreement(*units.T, weights[:4])),
            (cohen_kappa(*more.T, weights), cohen_kappa(*units.T, weights[:4])),
            (krippendorff_alpha(more, weights), krippendorff_alpha(units, weights[:4])),
        ):
            assert found == pytest.approx(expected)


def test_nothing_in_common_is_undefined():
    units = letters("01..", "..01")
    assert np.isnan(raw_agreement(*units.T, ones(units)))
    assert np.isnan(cohen_kappa(*units.T, ones(units)))
    assert np.isnan(krippendorff_alpha(units, ones(units)))
