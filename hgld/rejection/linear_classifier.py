"""Linear classifiers of embeddings: read from a file, fitted by cross-entropy, or derived from Gaussians.

Scores of classifiers take logits, or the weights and bias behind them. A retrieval model has none, so they are fitted
on the embeddings and labels of the index. Logits are computed in blocks of images that bound images times classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from scipy.optimize import minimize

from hgld.compute.dtypes import at_least_float32
from hgld.errors import ConfigurationError, InputError
from hgld.rejection.gaussians import fit_gaussians
from hgld.rejection.inputs import number_classes

_LOGITS = 2**24  # logits computed at once
_ROWS = 8192  # images per block at most
#: L-BFGS keeps about 25 copies of the weights in float64: 6.7 GB.
_MAX_WEIGHTS = 2**25
_ITERATIONS = 300
_KEPT = 2**26  # numbers of standardised embeddings kept between iterations; more are computed each time


@dataclass(frozen=True, eq=False)
class LinearClassifier:
    """A linear classifier of embeddings.

    Args:
        weight: float, shape (C, d).
        bias: float, shape (C,).

    Raises:
        InputError: The shapes do not fit each other, or a value is not finite.

    >>> LinearClassifier(torch.eye(2), torch.tensor([0.0, 1.0])).logits(torch.tensor([[3.0, 4.0]])).tolist()
    [[3.0, 5.0]]
    """

    weight: torch.Tensor
    bias: torch.Tensor

    def __post_init__(self) -> None:
        shapes = tuple(self.weight.shape), tuple(self.bias.shape)
        if self.weight.ndim != 2 or self.bias.shape != self.weight.shape[:1] or len(self.weight) < 2:
            raise InputError(
                f"the weight and the bias of a classifier have the shapes {shapes[0]} and {shapes[1]}; expected "
                "(C, d) and (C,), for two or more classes"
            )
        if not (self.weight.isfinite().all() and self.bias.isfinite().all()):
            raise InputError("the weight or the bias of a classifier has NaN or infinite values")

    @property
    def n_classes(self) -> int:
        """Number of classes C."""
        return len(self.weight)

    def logits(self, embeddings: torch.Tensor) -> torch.Tensor:
        """Return the logits, shape (n, C), in the type of the weights."""
        return torch.addmm(self.bias, embeddings.to(self.weight.dtype), self.weight.T)

    def to(self, dtype: torch.dtype) -> LinearClassifier:
        """Return the classifier in another type."""
        return LinearClassifier(self.weight.to(dtype), self.bias.to(dtype))


def row_blocks(n: int, n_classes: int) -> Iterator[slice]:
    """Yield blocks of n images whose logits of all classes fit into 64 MB in float32."""
    step = max(1, min(_LOGITS // max(n_classes, 1), _ROWS))
    for start in range(0, n, step):
        yield slice(start, start + step)


def save_classifier(classifier: LinearClassifier, path: Path) -> None:
    """Write a classifier for the option ``classifier`` of scores: a safetensors file of ``weight`` and ``bias``."""
    save_file({"weight": classifier.weight.contiguous(), "bias": classifier.bias.contiguous()}, path)


def load_classifier(path: Path) -> LinearClassifier:
    """Read a safetensors file with the tensors ``weight``, shape (C, d), and ``bias``, shape (C,).

    Raises:
        InputError: The file cannot be read, or a tensor is missing or of another shape.
    """
    try:
        tensors: Mapping[str, torch.Tensor] = load_file(path)
        return LinearClassifier(tensors["weight"], tensors["bias"])
    except KeyError as error:
        raise InputError(f"{path}: no tensor {error}; expected `weight` and `bias` of a linear classifier") from error
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: not a readable safetensors file of a linear classifier: {error}") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def fit_linear_classifier(
    embeddings: torch.Tensor, labels: npt.NDArray[np.int64], *, penalty: float | None = None
) -> LinearClassifier:
    """Fit softmax regression: minimise the mean cross-entropy plus ``penalty / 2`` times the squared weights.

    Embeddings are centred and divided by one number, so that their features have a variance of 1 on average and the
    penalty means the same for embeddings of any length. L-BFGS of SciPy starts from zeros and ends after 300
    iterations at most; cross-entropies and gradients are summed in float64 over blocks of images. Weights and biases
    sum to 0 over the classes. An iteration costs about 6 n C d operations.

    Args:
        embeddings: float, shape (n, d); may be memory-mapped.
        labels: int64, shape (n,); the classes are the sorted labels; images with negative ones are excluded.
        penalty: Weight of the penalty, which excludes biases. Default: ``1 / n``, which is scikit-learn's ``C = 1``.

    Raises:
        ConfigurationError: The penalty is not positive.
        InputError: There are fewer than two classes, too many for this method, or the embeddings are identical.

    >>> embeddings = torch.tensor([[0.0, 1.0], [0.0, 2.0], [1.0, 0.0], [2.0, 0.0]])
    >>> fit_linear_classifier(embeddings, np.array([4, 4, 9, 9])).logits(embeddings).argmax(dim=1).tolist()
    [0, 0, 1, 1]
    """
    if penalty is not None and not 0 < penalty < math.inf:
        raise ConfigurationError(f"`penalty` is {penalty}; expected a number above 0")
    indices, counts = _at_least_two_classes(labels)
    n, n_classes, dim = int(counts.sum()), len(counts), embeddings.shape[1]
    if n_classes * dim > _MAX_WEIGHTS:
        raise InputError(
            f"softmax regression of {n_classes:,} classes in {dim:,} dimensions would take "
            f"{n_classes * dim * 200 / 1e9:.0f} GB; choose the `classifier` lda, give `logits`, or choose a score "
            "without a classifier"
        )
    origin, scale = _standardisation(embeddings, indices)
    dtype = at_least_float32(embeddings[:0]).dtype

    def standardised() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for rows in row_blocks(len(embeddings), n_classes):
            labelled = indices[rows] >= 0
            features = (embeddings[rows][labelled].double() - origin) / scale
            yield features.to(dtype), indices[rows][labelled]

    kept = list(standardised()) if embeddings.numel() <= _KEPT else None

    def objective(flat: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        parameters = torch.from_numpy(flat).view(n_classes, dim + 1)
        loss, gradient = _cross_entropy(parameters, kept or standardised(), dtype)
        weights = parameters[:, :dim]
        strength = 1 / n if penalty is None else penalty
        gradient /= n
        gradient[:, :dim] += strength * weights
        return loss / n + strength / 2 * weights.square().sum().item(), gradient.flatten().numpy()

    parameters = torch.from_numpy(_minimised(objective, n_classes * (dim + 1))).view(n_classes, dim + 1)
    weight = parameters[:, :dim] / scale
    return LinearClassifier(weight.to(dtype), (parameters[:, dim] - weight @ origin).to(dtype))


def gaussian_classifier(
    embeddings: torch.Tensor, labels: npt.NDArray[np.int64], *, shrinkage: float | None = None
) -> LinearClassifier:
    """Fit linear discriminant analysis: the classifier of Gaussians of the classes that share a covariance.

    It takes one solution of d equations and two passes over the images, so it is the choice for tens of thousands of
    landmarks with few images each. Weights and biases are shifted to sum to 0 over the classes, which changes no
    probability.

    Args:
        embeddings: float, shape (n, d).
        labels: See :func:`fit_linear_classifier`.
        shrinkage: See :func:`hgld.rejection.gaussians.fit_gaussians`.

    Raises:
        InputError: There are fewer than two classes, or no Gaussians can be fitted.
    """
    _at_least_two_classes(labels)
    fitted = fit_gaussians(embeddings, labels, shrinkage=shrinkage)
    weight = fitted.means @ fitted.whitening.T
    bias = fitted.log_frequencies - fitted.means.square().sum(dim=1) / 2 - weight @ fitted.origin
    return LinearClassifier(weight - weight.mean(dim=0), bias - bias.mean())


def _minimised(
    objective: Callable[[npt.NDArray[np.float64]], tuple[float, npt.NDArray[np.float64]]], n_parameters: int
) -> npt.NDArray[np.float64]:
    options: dict[str, Any] = {"maxiter": _ITERATIONS, "gtol": 1e-6, "ftol": 1e-8}
    result = minimize(objective, np.zeros(n_parameters), jac=True, method="L-BFGS-B", options=options)
    solution: npt.NDArray[np.float64] = result.x
    return solution


def _cross_entropy(
    parameters: torch.Tensor, batches: Iterable[tuple[torch.Tensor, torch.Tensor]], dtype: torch.dtype
) -> tuple[float, torch.Tensor]:
    """Return the sum of cross-entropies and its gradient, float64, shape (C, d + 1).

    Args:
        parameters: Weights, and biases as the last column, float64, shape (C, d + 1).
        batches: Features, shape (m, d), and numbers of the classes, int64, shape (m,), of blocks of images.
        dtype: Type of the features.
    """
    weight, bias = parameters[:, :-1].to(dtype), parameters[:, -1].to(dtype)
    loss, gradient = 0.0, torch.zeros_like(parameters)
    for features, own in batches:
        log_probabilities = torch.addmm(bias, features, weight.T).log_softmax(dim=1)
        picked = log_probabilities.gather(1, own[:, None])
        loss -= picked.double().sum().item()
        errors = log_probabilities.exp_()
        errors[torch.arange(len(own)), own] -= 1
        gradient[:, :-1] += (errors.T @ features).double()
        gradient[:, -1] += errors.double().sum(dim=0)
    return loss, gradient


def _standardisation(embeddings: torch.Tensor, indices: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Return the mean of labelled embeddings, float64, shape (d,), and the root of the mean variance of features."""
    n = int((indices >= 0).sum())
    blocks = list(row_blocks(len(embeddings), 1))
    origin = sum(embeddings[rows][indices[rows] >= 0].double().sum(dim=0) for rows in blocks) / n
    squares = sum((embeddings[rows][indices[rows] >= 0].double() - origin).square().sum().item() for rows in blocks)
    if squares <= 1e-12 * n * torch.as_tensor(origin).square().sum().item() or not squares:
        raise InputError(f"all {n:,} embeddings are identical; no classifier can be fitted")
    return torch.as_tensor(origin), (squares / n / embeddings.shape[1]) ** 0.5


def _at_least_two_classes(labels: npt.NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
    indices, counts = number_classes(labels)
    if len(counts) < 2:
        raise InputError("all labelled images have the same label; a classifier needs two or more classes")
    return indices, counts
