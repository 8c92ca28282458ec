"""Compositions of energies: bounds, limits, and numbers that would overflow."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from hgld.rejection.heat import Standardisation, compose

ENERGIES = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=4), elements=st.floats(-1e4, 1e4))
BETAS = st.floats(-1e3, 1e3).filter(lambda beta: abs(beta) > 1e-3)


@given(ENERGIES, BETAS)
def test_formulas_in_exact_arithmetic(energies: np.ndarray, beta: float) -> None:
    for column, own in zip(energies.T, compose(torch.from_numpy(energies), beta).tolist(), strict=True):
        extreme = max(beta * energy for energy in column)  # the textbook formula, with its overflow factored out
        expected = (extreme + math.log(math.fsum(math.exp(beta * energy - extreme) for energy in column))) / beta
        assert own == pytest.approx(expected - math.log(len(column)) / beta, rel=1e-9, abs=1e-9)


@given(ENERGIES, st.lists(st.floats(allow_nan=False), min_size=2, max_size=5))
def test_the_mean_form_rises_with_beta_from_minimum_to_maximum(energies: np.ndarray, betas: list[float]) -> None:
    values = torch.from_numpy(energies).float()
    rows = [compose(values, beta) for beta in (-math.inf, *sorted(betas), math.inf)]
    slack = 1e-5 * (1 + values.abs().amax(dim=0))
    for lower, upper in pairwise(rows):
        assert (lower <= upper + slack).all()
    assert torch.equal(rows[0], values.amin(dim=0))
    assert torch.equal(rows[-1], values.amax(dim=0))


def test_small_betas_keep_their_digits_in_float32() -> None:
    energies = torch.tensor([[0.5, -3.0], [1.5, 4.0], [7.0, 4.0]])
    for beta in (1e-30, -1e-12, 1e-6, -1e-4):
        torch.testing.assert_close(compose(energies, beta), energies.mean(dim=0), rtol=1e-3, atol=0)


def test_scales_of_constant_energies_are_one() -> None:
    standardisation = Standardisation.of(torch.tensor([[2.0, 2.0], [1.0, 3.0]]))
    assert standardisation.deviations.tolist() == [1.0, pytest.approx(2**0.5)]
    assert Standardisation.of(torch.tensor([[2.0]])).deviations.tolist() == [1.0]
