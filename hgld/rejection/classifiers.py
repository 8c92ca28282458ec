"""Linear classifiers of embeddings, for rejection scores from logits.

A retrieval model has no classifier. So a linear classifier is given, read from a file, or fitted on
the embeddings and labels of the index, by softmax regression or linear discriminant analysis.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from hgld.arrays import Integers
from hgld.compute.scoring import at_least_float32
from hgld.errors import ConfigurationError, InputError
from hgld.rejection.gaussians import fit_gaussians, number_classes

#: Number of logits computed at once.
_LOGITS = 2**24
#: Largest number of images per block.
_ROWS = 8192
#: Largest number of weights: L-BFGS keeps about 25 copies in float64, 6.7 GB.
_MAX_WEIGHTS = 2**25
#: Largest number of iterations of L-BFGS, and its tolerance.
_ITERATIONS = 300
_TOLERANCE = 1e-6
#: Largest number of images times classes times dimensions for ``softmax``: about an hour of one
#: core.
_MAX_PRODUCTS = 2**36


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

    weight: Tensor
    bias: Tensor

    def __post_init__(self) -> None:
        if (
            self.weight.ndim != 2
            or self.bias.shape != self.weight.shape[:1]
            or len(self.weight) < 2
        ):
            raise InputError(
                f"the weight and the bias of a classifier have the shapes {tuple(self.weight.shape)} and "
                f"{tuple(self.bias.shape)}; expected (C, d) and (C,), for two or more classes"
            )
        if not (self.weight.isfinite().all() and self.bias.isfinite().all()):
            raise InputError("the weight or the bias of a classifier has NaN or infinite values")

    @property
    def n_classes(self) -> int:
        """Number of classes C."""
        return len(self.weight)

    def logits(self, embeddings: Tensor) -> Tensor:
        """Return the logits, shape (n, C), in the type of the weights."""
        return torch.addmm(self.bias, embeddings.to(self.weight.dtype), self.weight.T)

    def to(self, target: torch.dtype | torch.device) -> LinearClassifier:
        """Return the classifier in another type, or on another device."""
        return LinearClassifier(self.weight.to(target), self.bias.to(target))


def row_blocks(n: int, n_classes: int) -> Iterator[slice]:
    """Yield blocks of n images whose logits of all classes fit into 64 MB in float32."""
    step = max(1, min(_LOGITS // max(n_classes, 1), _ROWS))
    for start in range(0, n, step):
        yield slice(start, start + step)


def save_classifier(classifier: LinearClassifier, path: Path) -> None:
    """Write a classifier to a safetensors file with the tensors ``weight`` and ``bias``."""
    tensors = {"weight": classifier.weight.contiguous(), "bias": classifier.bias.contiguous()}
    save_file(tensors, path)


def load_classifier(path: Path) -> LinearClassifier:
    """Read a safetensors file with the tensors ``weight``, shape (C, d), and ``bias``, shape (C,).

    Raises:
        InputError: The file cannot be read, or a tensor is missing or of another shape.
    """
    try:
        tensors: Mapping[str, Tensor] = load_file(path)
        return LinearClassifier(tensors["weight"], tensors["bias"])
    except KeyError as error:
        raise InputError(
            f"{path}: no tensor {error}; expected `weight` and `bias` of a linear classifier"
        ) from error
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"{path}: not a readable safetensors file of a linear classifier: {error}"
        ) from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def fit_linear_classifier(embeddings: Tensor, labels: Integers) -> LinearClassifier:
    """Fit softmax regression by scikit-learn's ``LogisticRegression`` with its default ``C = 1``.

    Embeddings are centred and divided by one number, so that the mean variance of their features is
    1 and the penalty does not depend on the length of embeddings. L-BFGS runs at most 300
    iterations. Weights and biases sum to 0 over the classes. An iteration costs about 6 n C d
    operations.

    Args:
        embeddings: float, shape (n, d); may be memory-mapped.
        labels: int64, shape (n,); the classes are the sorted labels; images with negative labels
            are excluded.

    Raises:
        InputError: The number of classes is below two or too large, or the embeddings are
            identical.

    >>> embeddings = torch.tensor([[0.0, 1.0], [0.0, 2.0], [1.0, 0.0], [2.0, 0.0]])
    >>> fit_linear_classifier(embeddings, np.array([4, 4, 9, 9])).logits(embeddings).argmax(dim=1).tolist()
    [0, 0, 1, 1]
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    indices, counts = _number_two_classes_or_more(labels)
    n_classes = len(counts)
    dim = embeddings.shape[1]
    if n_classes * dim > _MAX_WEIGHTS:
        raise InputError(
            f"softmax regression of {n_classes:,} classes in {dim:,} dimensions would take "
            f"{n_classes * dim * 200 / 1e9:.0f} GB; choose the `classifier` lda, name the file of one, or choose a "
            "score without a classifier"
        )
    is_labelled = indices >= 0
    features = at_least_float32(embeddings[is_labelled])
    origin = features.mean(dim=0, dtype=torch.float64)
    features = features - origin.to(features.dtype)
    scale = features.square().mean(dtype=torch.float64).sqrt()
    if scale <= 1e-6 * origin.square().mean().sqrt() or not scale:
        raise InputError(
            f"all {len(features):,} embeddings are identical; no classifier can be fitted"
        )
    # For two classes, scikit-learn fits one vector, whose penalty is twice the penalty of softmax
    # regression.
    inverse_penalty = 2.0 if n_classes == 2 else 1.0
    model = LogisticRegression(C=inverse_penalty, tol=_TOLERANCE, max_iter=_ITERATIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit((features / scale).numpy(), indices[is_labelled].numpy())
    weight = torch.from_numpy(np.asarray(model.coef_, np.float64))
    bias = torch.from_numpy(np.asarray(model.intercept_, np.float64))
    if n_classes == 2:
        weight = torch.cat([-weight, weight]) / 2
        bias = torch.cat([-bias, bias]) / 2
    weight = (weight - weight.mean(dim=0)) / scale
    bias = bias - bias.mean() - weight @ origin
    # Weights from a file are contiguous, too: so sums of products have the same rounding.
    return LinearClassifier(weight.to(features.dtype).contiguous(), bias.to(features.dtype))


def gaussian_classifier(embeddings: Tensor, labels: Integers) -> LinearClassifier:
    """Fit linear discriminant analysis: a classifier from Gaussians with a shared covariance.

    It solves one system of d equations and takes two passes over the images, so it suits tens of
    thousands of landmarks with few images each. Weights and biases are shifted to sum to 0 over the
    classes, which does not change probabilities.

    Raises:
        InputError: The number of classes is below two, or Gaussians cannot be fitted.
    """
    _number_two_classes_or_more(labels)
    gaussians = fit_gaussians(embeddings, labels)
    weight = gaussians.means @ gaussians.whitening.T
    squared_lengths = gaussians.means.square().sum(dim=1)
    bias = gaussians.log_frequencies - squared_lengths / 2 - weight @ gaussians.origin
    return LinearClassifier(weight - weight.mean(dim=0), bias - bias.mean())


def _number_two_classes_or_more(labels: Integers) -> tuple[Tensor, Tensor]:
    """Return :func:`number_classes` after a check that images have two or more classes."""
    indices, counts = number_classes(labels)
    if len(counts) < 2:
        raise InputError(
            "all labelled images have the same label; a classifier needs two or more classes"
        )
    return indices, counts


def index_classifier(
    classifier: LinearClassifier | str,
    embeddings: Tensor,
    labels: Integers | None,
    score: str,
) -> LinearClassifier:
    """Return the classifier of an index, in float32, or in float64 for float64 embeddings.

    Args:
        classifier: See :class:`~hgld.rejection.logit_scores.ClassifierDetector`.
        embeddings: Embeddings of the index, float, shape (n, d).
        labels: int64, shape (n,); required to fit a classifier.
        score: Name of the score, for messages.

    Raises:
        ConfigurationError: Labels are missing.
        InputError: The file is malformed or of another dimension, or fitting is impossible or takes
            hours.
    """
    if not isinstance(classifier, LinearClassifier) and classifier not in ("softmax", "lda"):
        classifier = load_classifier(Path(classifier))
    if isinstance(classifier, LinearClassifier):
        dim = classifier.weight.shape[1]
        if dim != embeddings.shape[1]:
            raise InputError(
                f"the classifier has {dim} dimensions, and the embeddings have {embeddings.shape[1]}; take both from "
                "the same model"
            )
        return classifier.to(at_least_float32(embeddings[:0]).dtype)
    if labels is None:
        raise ConfigurationError(
            f"the score {score} needs `labels` to fit a classifier on, or its option `classifier`: the file of one"
        )
    if classifier == "lda":
        return gaussian_classifier(embeddings, labels)
    n_classes = len(np.unique(labels[labels >= 0]))
    if embeddings.numel() * n_classes > _MAX_PRODUCTS:
        raise InputError(
            f"softmax regression of {len(embeddings):,} images and {n_classes:,} classes takes hours; set the option "
            f"`classifier` of the score {score} to lda, or to the file of a classifier"
        )
    return fit_linear_classifier(embeddings, labels)
