"""Linear classifiers of embeddings: read from a file, fitted by cross-entropy, or derived from Gaussians.

Scores of classifiers take logits, or the weights and bias behind them. A retrieval model has none, so they are fitted
on the embeddings and labels of the index. Logits are computed in blocks of images that bound images times classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from hgld.compute.scoring import at_least_float32
from hgld.errors import InputError
from hgld.rejection.gaussians import fit_gaussians, number_classes

_LOGITS = 2**24  # logits computed at once
_ROWS = 8192  # images per block at most
#: L-BFGS keeps about 25 copies of the weights in float64: 6.7 GB.
_MAX_WEIGHTS = 2**25
_ITERATIONS, _TOLERANCE = 300, 1e-6


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


def fit_linear_classifier(embeddings: torch.Tensor, labels: npt.NDArray[np.int64]) -> LinearClassifier:
    """Fit softmax regression by scikit-learn's ``LogisticRegression`` with its default ``C = 1``.

    Embeddings are centred and divided by one number, so that their features have a variance of 1 on average and the
    penalty means the same for embeddings of any length. L-BFGS ends after 300 iterations at most. Weights and biases
    sum to 0 over the classes. An iteration costs about 6 n C d operations.

    Args:
        embeddings: float, shape (n, d); may be memory-mapped.
        labels: int64, shape (n,); the classes are the sorted labels; images with negative ones are excluded.

    Raises:
        InputError: There are fewer than two classes, too many for this method, or the embeddings are identical.

    >>> embeddings = torch.tensor([[0.0, 1.0], [0.0, 2.0], [1.0, 0.0], [2.0, 0.0]])
    >>> fit_linear_classifier(embeddings, np.array([4, 4, 9, 9])).logits(embeddings).argmax(dim=1).tolist()
    [0, 0, 1, 1]
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    indices, counts = _at_least_two_classes(labels)
    n_classes, dim = len(counts), embeddings.shape[1]
    if n_classes * dim > _MAX_WEIGHTS:
        raise InputError(
            f"softmax regression of {n_classes:,} classes in {dim:,} dimensions would take "
            f"{n_classes * dim * 200 / 1e9:.0f} GB; choose the `classifier` lda, give `logits`, or choose a score "
            "without a classifier"
        )
    labelled = indices >= 0
    features = at_least_float32(embeddings[labelled])
    origin = features.mean(dim=0, dtype=torch.float64)
    features = features - origin.to(features.dtype)
    scale = features.square().mean(dtype=torch.float64).sqrt()
    if scale <= 1e-6 * origin.square().mean().sqrt() or not scale:
        raise InputError(f"all {len(features):,} embeddings are identical; no classifier can be fitted")
    # scikit-learn fits one vector of two classes, whose penalty is twice that of softmax regression.
    model = LogisticRegression(C=2.0 if n_classes == 2 else 1.0, tol=_TOLERANCE, max_iter=_ITERATIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit((features / scale).numpy(), indices[labelled].numpy())
    weight, bias = (torch.from_numpy(np.asarray(part, np.float64)) for part in (model.coef_, model.intercept_))
    if n_classes == 2:
        weight, bias = torch.cat([-weight, weight]) / 2, torch.cat([-bias, bias]) / 2
    weight, bias = (weight - weight.mean(dim=0)) / scale, bias - bias.mean()
    # Contiguous, as it is once it was saved.
    return LinearClassifier(weight.to(features.dtype).contiguous(), (bias - weight @ origin).to(features.dtype))


def gaussian_classifier(
    embeddings: torch.Tensor, labels: npt.NDArray[np.int64], *, shrinkage: float | None = None
) -> LinearClassifier:
    """Fit linear discriminant analysis: the classifier of Gaussians of the classes that share a covariance.

    It takes one solution of d equations and two passes over the images, so it is the choice for tens of thousands of
    landmarks with few images each. Weights and biases are shifted to sum to 0 over the classes, which changes no
    probability.

    Raises:
        InputError: There are fewer than two classes, or no Gaussians can be fitted.
    """
    _at_least_two_classes(labels)
    fitted = fit_gaussians(embeddings, labels, shrinkage=shrinkage)
    weight = fitted.means @ fitted.whitening.T
    bias = fitted.log_frequencies - fitted.means.square().sum(dim=1) / 2 - weight @ fitted.origin
    return LinearClassifier(weight - weight.mean(dim=0), bias - bias.mean())


def _at_least_two_classes(labels: npt.NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
    indices, counts = number_classes(labels)
    if len(counts) < 2:
        raise InputError("all labelled images have the same label; a classifier needs two or more classes")
    return indices, counts
