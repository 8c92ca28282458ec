"""Linear classifiers of embeddings, and rejection scores from their logits.

A retrieval model has no classifier. So a linear classifier is given, read from a file, or fitted on
the embeddings and labels of the index, by softmax regression or linear discriminant analysis.
Logits are computed in blocks of images, to bound memory.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from hgld.arrays import Integers
from hgld.compute.scoring import at_least_float32
from hgld.errors import ConfigurationError, InputError, require
from hgld.rejection.detector import Detector, DetectorInputs
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
#: Largest number of classes for ``kl_matching``, which holds a softmax of each class: 1 GB.
_MAX_CLASSES = 2**14
#: Largest number of features for a quantile.
_ENTRIES = 2**24


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

    def logits(self, embeddings: torch.Tensor) -> torch.Tensor:
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
        tensors: Mapping[str, torch.Tensor] = load_file(path)
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


def fit_linear_classifier(embeddings: torch.Tensor, labels: Integers) -> LinearClassifier:
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


def gaussian_classifier(embeddings: torch.Tensor, labels: Integers) -> LinearClassifier:
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


def _number_two_classes_or_more(labels: Integers) -> tuple[torch.Tensor, torch.Tensor]:
    """Return :func:`number_classes` after a check that images have two or more classes."""
    indices, counts = number_classes(labels)
    if len(counts) < 2:
        raise InputError(
            "all labelled images have the same label; a classifier needs two or more classes"
        )
    return indices, counts


@dataclass(eq=False)
class ClassifierDetector(Detector):
    """A score of a linear classifier of embeddings.

    Args:
        classifier: Source of the classifier: ``softmax`` fits softmax regression on the embeddings
            and labels of the index, and refuses indexes for which it takes hours; ``lda`` derives
            the classifier from Gaussians in seconds to minutes (the choice for tens of thousands of
            landmarks); any other text is the path of a safetensors file with the ``weight`` (C, d)
            and ``bias`` (C,) of a published classifier of these embeddings. In Python, it may be a
            :class:`LinearClassifier`.

    Attributes:
        head: The classifier.
    """

    classifier: LinearClassifier | str = field(default="softmax", kw_only=True)

    @abstractmethod
    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        """Return the scores of embeddings in the dtype of the classifier, shape (n,)."""

    def _fit_to_index(self, embeddings: torch.Tensor) -> None:
        """Fit further parameters of the score; may replace the classifier."""

    def _fit(self, images: DetectorInputs) -> None:
        self.head = index_classifier(self.classifier, images.embeddings, images.labels, self.name)
        self._fit_to_index(images.embeddings)

    def _score(self, images: DetectorInputs) -> torch.Tensor:
        dtype = self.head.weight.dtype
        scores = []
        for rows in row_blocks(len(images), self.head.n_classes):
            scores.append(self._score_embeddings(images.embeddings[rows].to(dtype)))
        return torch.cat(scores)


@dataclass(eq=False)
class Msp(ClassifierDetector):
    """The negative largest softmax probability, MSP (Hendrycks and Gimpel, ICLR 2017).

    The score is ``- max_c softmax(l)_c``. With many landmarks of few images each, a fitted
    classifier is unsure even of known landmarks: prefer ``max_logit`` or ``knn``.
    """

    name: ClassVar[str] = "msp"

    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        return -self.head.logits(embeddings).softmax(dim=1).amax(dim=1)


@dataclass(eq=False)
class MaxLogit(ClassifierDetector):
    """The negative largest logit (Hendrycks et al., ICML 2022): ``- max_c l_c``.

    Unlike the softmax, it is not divided among landmarks that look alike, such as two churches of
    one town.
    """

    name: ClassVar[str] = "max_logit"

    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        return -self.head.logits(embeddings).amax(dim=1)


@dataclass(eq=False)
class Energy(ClassifierDetector):
    """The energy of the logits (Liu et al., NeurIPS 2020; the prior EL of thesis Sec. 5.2.2).

    The score is ``- T log sum_c exp(l_c / T)``.

    Args:
        temperature: Temperature T, 1 in both papers.
    """

    name: ClassVar[str] = "energy"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        require(0 < self.temperature < math.inf, "a number above 0", temperature=self.temperature)

    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        logits = self.head.logits(embeddings)
        return -self.temperature * (logits / self.temperature).logsumexp(dim=1)


@dataclass(eq=False)
class KlMatching(ClassifierDetector):
    """The divergence from the nearest typical softmax, KL-Matching (Hendrycks et al., ICML 2022).

    The score is ``min_k KL(p || d_k)``, see also Table C.1 of the thesis. d_k is the mean softmax
    of the images of the index that are classified as k. The paper uses images that the classifier
    was not fitted on, whose softmax is less confident.
    """

    name: ClassVar[str] = "kl_matching"

    def _fit_to_index(self, embeddings: torch.Tensor) -> None:
        n_classes = self.head.n_classes
        if n_classes > _MAX_CLASSES:
            raise InputError(
                f"the score kl_matching holds a softmax of each of {n_classes:,} classes, and takes up to "
                f"{_MAX_CLASSES:,}; choose another score"
            )
        sums = torch.zeros(n_classes, n_classes)
        counts = torch.zeros(n_classes)
        for rows in row_blocks(len(embeddings), n_classes):
            logits = self.head.logits(embeddings[rows])
            predicted = logits.argmax(dim=1)
            sums.index_add_(0, predicted, logits.softmax(dim=1).float())
            counts += torch.bincount(predicted, minlength=n_classes)
        is_predicted = counts > 0
        self.typical = sums[is_predicted] / counts[is_predicted, None]

    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        probabilities = self.head.logits(embeddings).softmax(dim=1)
        logs = self.typical.to(probabilities.dtype).log()
        logs = logs.clamp(min=torch.finfo(probabilities.dtype).min)  # 0 log 0 counts 0
        negative_entropy = -torch.special.entr(probabilities).sum(dim=1)
        divergences: torch.Tensor = negative_entropy - (probabilities @ logs.T).amax(dim=1)
        return divergences


@dataclass(eq=False)
class Odin(ClassifierDetector):
    """ODIN (Liang et al., ICLR 2018) on embeddings: ``- max_c softmax(l(z') / T)_c``.

    z' is the perturbed embedding ``z - eps sign(grad_z CE(l(z) / T, argmax_c l_c))``. The network
    is the linear classifier, so embeddings are perturbed, with a gradient in closed form, and **not
    pixels** as in the papers. With a perturbation of 0 it is MSP with a temperature.

    Args:
        temperature: Temperature T, 1000 as in the paper.
        perturbation: Step eps in units of a feature, 0.0014 as in the paper, which perturbs pixels
            from 0 to 1.
    """

    name: ClassVar[str] = "odin"
    temperature: float = 1000.0
    perturbation: float = 0.0014

    def __post_init__(self) -> None:
        require(0 < self.temperature < math.inf, "a number above 0", temperature=self.temperature)
        require(
            0 <= self.perturbation < math.inf,
            "a number of 0 or more",
            perturbation=self.perturbation,
        )

    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        logits = self.head.logits(embeddings)
        errors = (logits / self.temperature).softmax(dim=1)
        rows = torch.arange(len(errors))
        errors[rows, logits.argmax(dim=1)] -= 1
        # The factor 1 / T of the gradient does not change its sign.
        gradient_signs = (errors @ self.head.weight).sign()
        perturbed = embeddings - self.perturbation * gradient_signs
        return -(self.head.logits(perturbed) / self.temperature).softmax(dim=1).amax(dim=1)


@dataclass(eq=False)
class Dice(ClassifierDetector):
    """The energy of the logits of a sparsified classifier, DICE (Sun and Li, ECCV 2022).

    A weight is kept if its contribution, ``W_cj`` times the mean of feature j over the index, is
    above a percentile of all contributions (NumPy's linear interpolation). DICE expects features
    after a ReLU; for embeddings with a mean near 0, such as whitened embeddings, contributions are
    uninformative.

    Args:
        sparsity: Share of the weights that are set to 0, 0.7 as in the paper's ImageNet
            experiments; heatood's ``p_dice`` is the same number in percent.
    """

    name: ClassVar[str] = "dice"
    sparsity: float = 0.7

    def __post_init__(self) -> None:
        require(0 <= self.sparsity < 1, "a share from 0 to less than 1", sparsity=self.sparsity)

    def _fit_to_index(self, embeddings: torch.Tensor) -> None:
        sums = [embeddings[rows].double().sum(dim=0) for rows in row_blocks(len(embeddings), 1)]
        mean = torch.stack(sums).sum(dim=0) / len(embeddings)
        contributions = self.head.weight.double() * mean
        threshold = float(np.quantile(contributions.numpy(), self.sparsity))
        sparse_weight = self.head.weight * (contributions > threshold)
        self.head = LinearClassifier(sparse_weight, self.head.bias)

    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        return -self.head.logits(embeddings).logsumexp(dim=1)


@dataclass(eq=False)
class React(ClassifierDetector):
    """The energy of the logits of clipped features ``min(z, q)``, ReAct (Sun et al., NeurIPS 2021).

    The threshold q is a quantile of all features of all images of the index (NumPy's linear
    interpolation), or of evenly spaced images if the index has more than 16.8 million features.
    ReAct expects features after a ReLU, where unknown images have a few very large values.

    Args:
        quantile: The quantile, 0.9 as in the paper.
    """

    name: ClassVar[str] = "react"
    quantile: float = 0.9

    def __post_init__(self) -> None:
        require(0 <= self.quantile < 1, "a share from 0 to less than 1", quantile=self.quantile)

    def _fit_to_index(self, embeddings: torch.Tensor) -> None:
        step = math.ceil(embeddings.numel() / _ENTRIES)
        value = float(np.quantile(embeddings[::step].to(torch.float64).numpy(), self.quantile))
        self.threshold = torch.tensor(value, dtype=self.head.weight.dtype)

    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        return -self.head.logits(embeddings.minimum(self.threshold)).logsumexp(dim=1)


def index_classifier(
    classifier: LinearClassifier | str,
    embeddings: torch.Tensor,
    labels: Integers | None,
    score: str,
) -> LinearClassifier:
    """Return the classifier of an index, in float32, or in float64 for float64 embeddings.

    Args:
        classifier: See :class:`ClassifierDetector`.
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
