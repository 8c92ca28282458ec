import numpy as np
import pytest
import torch

from hgld.errors import InputError
from hgld.losses import gather_embeddings


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
    with pytest.raises(InputError, match="there are 3 `embeddings` and 2 `labels`; expected as many"):
        gather_embeddings(torch.eye(3), torch.tensor([0, 1]))
    with pytest.raises(InputError, match=r"`labels` are of torch\.float32; expected integers"):
        gather_embeddings(torch.eye(3), torch.zeros(3))
