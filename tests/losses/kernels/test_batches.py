"""Products with references of 16 bits, and the batch of several processes."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize

from hgld.errors import InputError
from hgld.losses import gather_embeddings
from hgld.losses.kernels import batches
from hgld.losses.kernels.batches import combined_references, inner_products

HALVES = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


def unit_vectors(n: int, dim: int, seed: int, spread: float = 1.0) -> torch.Tensor:
    """Return unit vectors, whose numbers differ in size by more the larger the spread."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randn(n, dim, generator=generator).mul(spread).exp()
    return normalize(torch.randn(n, dim, generator=generator) * sizes)


@given(
    n_queries=st.integers(1, 5),
    n_references=st.integers(1, 20),
    dim=st.integers(1, 40),
    seed=st.integers(0, 2**16),
    spread=st.floats(0, 5),
    dtype=st.sampled_from(list(HALVES)),
)
def test_error_of_scores_is_that_of_storing_references(
    n_queries: int, n_references: int, dim: int, seed: int, spread: float, dtype: torch.dtype
) -> None:
    queries = unit_vectors(n_queries, dim, seed).double()
    references = unit_vectors(n_references, dim, seed + 1, spread).double()
    error = (inner_products(queries, references.to(dtype)) - queries @ references.T).abs().max()
    subnormal = dim**0.5 * 2.0**-25  # what float16 rounds below its smallest normal number
    assert error <= HALVES[dtype] + subnormal


@pytest.mark.parametrize("width", [1, 3, 7, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_products_and_gradients_are_those_of_converted_references(
    width: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(batches._WIDTH, "cpu", width)
    queries, references = unit_vectors(4, 6, 0).requires_grad_(), unit_vectors(7, 6, 1).to(dtype)
    scores, expected = inner_products(queries, references), queries @ references.float().T
    torch.testing.assert_close(scores, expected)
    upstream = torch.randn(scores.shape, generator=torch.Generator().manual_seed(2))
    (gradient,) = torch.autograd.grad(scores, queries, upstream)
    torch.testing.assert_close(gradient, *torch.autograd.grad(expected, queries, upstream))
    torch.testing.assert_close(gradient, combined_references(upstream, references))
    assert scores.dtype == gradient.dtype == torch.float32


def test_second_derivatives_of_products_are_exact() -> None:
    """A loss that squares them is differentiated twice, through references of 16 bits."""
    queries, references = unit_vectors(3, 4, 0).double().requires_grad_(), unit_vectors(5, 4, 1).half()
    assert torch.autograd.gradgradcheck(lambda x: inner_products(x, references) ** 3, queries)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_single_process_gets_its_own_batch(dtype: torch.dtype) -> None:
    """Several processes are tested in ``tests/training/test_distributed.py``."""
    x = torch.eye(3, dtype=dtype).requires_grad_()
    embeddings, labels = gather_embeddings(x, np.array([4, 4, 7], dtype=np.int32))
    assert embeddings.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert torch.equal(embeddings, x.to(embeddings.dtype))
    assert torch.equal(labels, torch.tensor([[4], [4], [7]]))
    (gradient,) = torch.autograd.grad(embeddings.sum(), x)
    assert torch.equal(gradient, torch.ones_like(x))


def test_embeddings_and_labels_of_different_numbers_are_errors() -> None:
    with pytest.raises(InputError, match="there are 3 `embeddings` and 2 `labels`; expected the same number"):
        gather_embeddings(torch.eye(3), torch.tensor([0, 1]))
    with pytest.raises(InputError, match=r"`labels` are of torch\.float32; expected integers"):
        gather_embeddings(torch.eye(3), torch.zeros(3))
