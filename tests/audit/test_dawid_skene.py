"""The model of Dawid and Skene, beside loops over units, annotators and categories."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hgld.audit.annotators import dawid_skene
from hgld.review.agreement import MISSING, Codes

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
