"""Scores of the logits of a linear classifier, and of its weights applied to changed features; and the classifiers.

A retrieval model has no classifier, so linear ones are given, read from a file, or fitted on the embeddings and
labels of the index: by cross-entropy, or derived from Gaussians. Logits are computed in blocks of images that bound
images times classes.
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
        if (
            self.weight.ndim != 2
            or self.bias.shape != self.weight.shape[:1]
            or len(self.weight) < 2
        ):
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
    save_file(
        {"weight": classifier.weight.contiguous(), "bias": classifier.bias.contiguous()}, path
    )


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
            f"{n_classes * dim * 200 / 1e9:.0f} GB; choose the `classifier` lda, name the file of one, or choose a "
            "score without a classifier"
        )
    labelled = indices >= 0
    features = at_least_float32(embeddings[labelled])
    origin = features.mean(dim=0, dtype=torch.float64)
    features = features - origin.to(features.dtype)
    scale = features.square().mean(dtype=torch.float64).sqrt()
    if scale <= 1e-6 * origin.square().mean().sqrt() or not scale:
        raise InputError(
            f"all {len(features):,} embeddings are identical; no classifier can be fitted"
        )
    # scikit-learn fits one vector of two classes, whose penalty is twice that of softmax regression.
    model = LogisticRegression(
        C=2.0 if n_classes == 2 else 1.0, tol=_TOLERANCE, max_iter=_ITERATIONS
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit((features / scale).numpy(), indices[labelled].numpy())
    weight = torch.from_numpy(np.asarray(model.coef_, np.float64))
    bias = torch.from_numpy(np.asarray(model.intercept_, np.float64))
    if n_classes == 2:
        weight = torch.cat([-weight, weight]) / 2
        bias = torch.cat([-bias, bias]) / 2
    weight = (weight - weight.mean(dim=0)) / scale
    bias = bias - bias.mean() - weight @ origin
    # Contiguous, as weights from a file are: sums of products round alike.
    return LinearClassifier(weight.to(features.dtype).contiguous(), bias.to(features.dtype))


def gaussian_classifier(embeddings: torch.Tensor, labels: Integers) -> LinearClassifier:
    """Fit linear discriminant analysis: the classifier of Gaussians of the classes that share a covariance.

    It takes one solution of d equations and two passes over the images, so it is the choice for tens of thousands of
    landmarks with few images each. Weights and biases are shifted to sum to 0 over the classes, which changes no
    probability.

    Raises:
        InputError: There are fewer than two classes, or no Gaussians can be fitted.
    """
    _at_least_two_classes(labels)
    fitted = fit_gaussians(embeddings, labels)
    weight = fitted.means @ fitted.whitening.T
    bias = fitted.log_frequencies - fitted.means.square().sum(dim=1) / 2 - weight @ fitted.origin
    return LinearClassifier(weight - weight.mean(dim=0), bias - bias.mean())


def _at_least_two_classes(labels: Integers) -> tuple[torch.Tensor, torch.Tensor]:
    indices, counts = number_classes(labels)
    if len(counts) < 2:
        raise InputError(
            "all labelled images have the same label; a classifier needs two or more classes"
        )
    return indices, counts


#: Images times classes times dimensions that ``softmax`` is fitted on: about an hour of one core.
_MAX_PRODUCTS = 2**36
#: Classes of which ``kl_matching`` holds the softmax: 1 GB.
_MAX_CLASSES = 2**14
_ENTRIES = 2**24  # features of which a quantile is computed


@dataclass(eq=False)
class ClassifierDetector(Detector):
    """A score of a linear classifier of embeddings.

    Args:
        classifier: Where the classifier comes from: ``softmax`` fits softmax regression on the embeddings and labels
            of the index, and refuses what would take hours; ``lda`` derives the classifier from Gaussians in seconds
            to minutes (the choice for tens of thousands of landmarks); any other text is the path of a safetensors
            file with the ``weight`` (C, d) and ``bias`` (C,) of a published classifier of these embeddings. In
            Python, it may be a :class:`LinearClassifier`.

    Attributes:
        head: The classifier.
    """

    classifier: LinearClassifier | str = field(default="softmax", kw_only=True)

    @abstractmethod
    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        """Return the scores of embeddings of the type of the classifier, shape (n,)."""

    def _fit_to_index(self, embeddings: torch.Tensor) -> None:
        """Fit what the score needs beyond the classifier, which may change the classifier, too."""

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
    """The negative largest softmax probability (Hendrycks and Gimpel, ICLR 2017): ``- max_c softmax(l)_c``.

    With many landmarks of few images each, a fitted classifier is unsure of known landmarks, too: prefer
    ``max_logit`` or ``knn``.
    """

    name: ClassVar[str] = "msp"

    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        return -self.head.logits(embeddings).softmax(dim=1).amax(dim=1)


@dataclass(eq=False)
class MaxLogit(ClassifierDetector):
    """The negative largest logit (Hendrycks et al., ICML 2022): ``- max_c l_c``.

    Unlike the softmax it does not spread over landmarks that look alike, such as two churches of one town.
    """

    name: ClassVar[str] = "max_logit"

    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        return -self.head.logits(embeddings).amax(dim=1)


@dataclass(eq=False)
class Energy(ClassifierDetector):
    """The energy of the logits (Liu et al., NeurIPS 2020; the prior EL of thesis Sec. 5.2.2).

    The score is ``- T log sum_c exp(l_c / T)``.

    Args:
        temperature: Temperature T. The default of 1 is that of both papers.
    """

    name: ClassVar[str] = "energy"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        require(0 < self.temperature < math.inf, "a number above 0", temperature=self.temperature)

    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        return -self.temperature * (self.head.logits(embeddings) / self.temperature).logsumexp(
            dim=1
        )


@dataclass(eq=False)
class KlMatching(ClassifierDetector):
    """The divergence from the nearest typical softmax, KL-Matching (Hendrycks et al., ICML 2022; thesis Table C.1).

    The score is ``min_k KL(p || d_k)``. d_k is the mean softmax of the images of the index that are classified as k.
    The paper takes images that the classifier was not fitted on, which are less sure.
    """

    name: ClassVar[str] = "kl_matching"

    def _fit_to_index(self, embeddings: torch.Tensor) -> None:
        n_classes = self.head.n_classes
        if n_classes > _MAX_CLASSES:
            raise InputError(
                f"the score kl_matching holds a softmax of each of {n_classes:,} classes, and takes up to "
                f"{_MAX_CLASSES:,}; choose another score"
            )
        sums, counts = torch.zeros(n_classes, n_classes), torch.zeros(n_classes)
        for rows in row_blocks(len(embeddings), n_classes):
            logits = self.head.logits(embeddings[rows])
            chosen = logits.argmax(dim=1)
            sums.index_add_(0, chosen, logits.softmax(dim=1).float())
            counts += torch.bincount(chosen, minlength=n_classes)
        self.typical = sums[counts > 0] / counts[counts > 0, None]

    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        probabilities = self.head.logits(embeddings).softmax(dim=1)
        # A finite number for log 0, as 0 log 0 counts 0.
        logs = (
            self.typical.to(probabilities.dtype)
            .log()
            .clamp(min=torch.finfo(probabilities.dtype).min)
        )
        negative_entropy = -torch.special.entr(probabilities).sum(dim=1)
        divergences: torch.Tensor = negative_entropy - (probabilities @ logs.T).amax(dim=1)
        return divergences


@dataclass(eq=False)
class Odin(ClassifierDetector):
    """ODIN (Liang et al., ICLR 2018) on embeddings: ``- max_c softmax(l(z') / T)_c``, z' being the perturbed z.

    ``z' = z - eps sign(grad_z CE(l(z) / T, argmax_c l_c))``. The network is the linear classifier, so embeddings are
    perturbed, with a gradient in closed form, and **not pixels** as in the papers. With a perturbation of 0 it is MSP
    at a temperature.

    Args:
        temperature: Temperature T, 1000 as in the paper.
        perturbation: Step eps in units of a feature, 0.0014 as in the paper, which is for pixels from 0 to 1.
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
        # The gradient of the cross-entropy up to the factor 1 / T, which its sign does not have.
        errors[rows, logits.argmax(dim=1)] -= 1
        perturbed = embeddings - self.perturbation * (errors @ self.head.weight).sign()
        return -(self.head.logits(perturbed) / self.temperature).softmax(dim=1).amax(dim=1)


@dataclass(eq=False)
class Dice(ClassifierDetector):
    """The energy of the logits of a sparsified classifier, DICE (Sun and Li, ECCV 2022).

    A weight stays where its contribution, ``W_cj`` times the mean of feature j over the index, is above the given
    percentile of all contributions (NumPy's linear interpolation). It expects features after a ReLU; for embeddings
    with a mean near 0, such as whitened ones, contributions say little.

    Args:
        sparsity: Share of the weights that are set to 0, 0.7 as in the paper's ImageNet experiments; heatood's
            ``p_dice`` is the same number in percent.
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
        self.head = LinearClassifier(self.head.weight * (contributions > threshold), self.head.bias)

    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        return -self.head.logits(embeddings).logsumexp(dim=1)


@dataclass(eq=False)
class React(ClassifierDetector):
    """The energy of the logits of clipped features, ReAct (Sun et al., NeurIPS 2021): of ``min(z, q)``.

    The threshold q is a quantile of all features of all images of the index, by NumPy's linear interpolation; of
    evenly spaced images where there are more than 16.8 million numbers. It expects features after a ReLU, of which
    unknown images have a few very large ones.

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
        labels: int64, shape (n,); needed where a classifier is fitted.
        score: Name of the score, for messages.

    Raises:
        ConfigurationError: There are no labels.
        InputError: The file is malformed or of another dimension, or no classifier can be fitted, or only in hours.
    """
    if isinstance(classifier, LinearClassifier) or classifier not in ("softmax", "lda"):
        head = (
            classifier
            if isinstance(classifier, LinearClassifier)
            else load_classifier(Path(classifier))
        )
        if head.weight.shape[1] != embeddings.shape[1]:
            raise InputError(
                f"the classifier is one of {head.weight.shape[1]} dimensions, and the embeddings have "
                f"{embeddings.shape[1]}; take both from the same model"
            )
        return head.to(at_least_float32(embeddings[:0]).dtype)
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
