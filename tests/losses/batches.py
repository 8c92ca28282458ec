"""Random batches for tests of losses."""

import torch
from torch.nn import functional

from hgld.losses import Loss

#: Classes of eight items, some without a second item, and of six references, some of classes that no query has.
LABELS = torch.tensor([[0], [0], [1], [1], [1], [2], [0], [3]])
REFERENCE_LABELS = torch.tensor([[0], [1], [1], [5], [6], [0]])


def unit_vectors(n: int, dim: int = 6, seed: int = 0) -> torch.Tensor:
    """Return random float64 unit vectors of shape (n, dim)."""
    generator = torch.Generator().manual_seed(seed)
    return functional.normalize(torch.randn(n, dim, dtype=torch.float64, generator=generator))


def class_vectors(labels: torch.Tensor, seed: int = 0, spread: float = 1.2) -> torch.Tensor:
    """Return float64 unit vectors of dimension 6 around one centre per class of column 0."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.eye(6, dtype=torch.float64)[labels[:, 0]]
    noise = torch.randn(len(labels), 6, dtype=torch.float64, generator=generator)
    return functional.normalize(centres + spread * functional.normalize(noise))


def hierarchical_batch(
    seed: int = 0, n_classes: int = 5, per_class: int = 3, dim: int = 6, dtype: torch.dtype = torch.float64
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random unit vectors and labels of three levels, in random order."""
    generator = torch.Generator().manual_seed(seed)
    classes = torch.arange(n_classes).repeat_interleave(per_class)
    labels = torch.stack([classes, classes // 2, classes // 4], 1)[torch.randperm(len(classes), generator=generator)]
    embeddings = torch.randn(len(classes), dim, generator=generator, dtype=torch.float64)
    return functional.normalize(embeddings, dim=1).to(dtype), labels


def gradient(value: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(value, leaf, retain_graph=True)[0]


def check_gradients(loss: Loss, x: torch.Tensor, *others: torch.Tensor) -> None:
    """Compare the gradients by the embeddings, normalised, and by all parameters with finite differences."""
    loss = loss.double()
    names = dict(loss.named_parameters())

    def value(x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        arguments = (functional.normalize(x), *others)
        result: torch.Tensor = torch.func.functional_call(loss, dict(zip(names, parameters, strict=True)), arguments)
        return result

    parameters = [parameter.detach().clone().requires_grad_() for parameter in names.values()]
    assert torch.autograd.gradcheck(value, (x.clone().requires_grad_(), *parameters))
