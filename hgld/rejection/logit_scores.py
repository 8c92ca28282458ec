"""Rejection scores from the logits of a linear classifier.

Logits are computed in blocks of images, to bound memory.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from hgld.errors import InputError, require
from hgld.rejection.classifiers import LinearClassifier, index_classifier, row_blocks
from hgld.rejection.detector import Detector, DetectorInputs

#: Largest number of classes for ``kl_matching``, which holds a softmax of each class: 1 GB.
_MAX_CLASSES = 2**14
#: Largest number of features for a quantile.
_ENTRIES = 2**24


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
    def _score_embeddings(self, embeddings: Tensor) -> Tensor:
        """Return the scores of embeddings in the dtype of the classifier, shape (n,)."""

    def _fit_to_index(self, embeddings: Tensor) -> None:
        """Fit further parameters of the score; may replace the classifier."""

    def _fit(self, images: DetectorInputs) -> None:
        self.head = index_classifier(self.classifier, images.embeddings, images.labels, self.name)
        self._fit_to_index(images.embeddings)

    def _score(self, images: DetectorInputs) -> Tensor:
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

    def _score_embeddings(self, embeddings: Tensor) -> Tensor:
        return -self.head.logits(embeddings).softmax(dim=1).amax(dim=1)


@dataclass(eq=False)
class MaxLogit(ClassifierDetector):
    """The negative largest logit (Hendrycks et al., ICML 2022): ``- max_c l_c``.

    Unlike the softmax, it is not divided among landmarks that look alike, such as two churches of
    one town.
    """

    name: ClassVar[str] = "max_logit"

    def _score_embeddings(self, embeddings: Tensor) -> Tensor:
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

    def _score_embeddings(self, embeddings: Tensor) -> Tensor:
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

    def _fit_to_index(self, embeddings: Tensor) -> None:
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

    def _score_embeddings(self, embeddings: Tensor) -> Tensor:
        probabilities = self.head.logits(embeddings).softmax(dim=1)
        logs = self.typical.to(probabilities.dtype).log()
        logs = logs.clamp(min=torch.finfo(probabilities.dtype).min)  # 0 log 0 counts 0
        negative_entropy = -torch.special.entr(probabilities).sum(dim=1)
        divergences: Tensor = negative_entropy - (probabilities @ logs.T).amax(dim=1)
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

    def _score_embeddings(self, embeddings: Tensor) -> Tensor:
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

    def _fit_to_index(self, embeddings: Tensor) -> None:
        sums = [embeddings[rows].double().sum(dim=0) for rows in row_blocks(len(embeddings), 1)]
        mean = torch.stack(sums).sum(dim=0) / len(embeddings)
        contributions = self.head.weight.double() * mean
        threshold = float(np.quantile(contributions.numpy(), self.sparsity))
        sparse_weight = self.head.weight * (contributions > threshold)
        self.head = LinearClassifier(sparse_weight, self.head.bias)

    def _score_embeddings(self, embeddings: Tensor) -> Tensor:
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

    def _fit_to_index(self, embeddings: Tensor) -> None:
        step = math.ceil(embeddings.numel() / _ENTRIES)
        value = float(np.quantile(embeddings[::step].to(torch.float64).numpy(), self.quantile))
        self.threshold = torch.tensor(value, dtype=self.head.weight.dtype)

    def _score_embeddings(self, embeddings: Tensor) -> Tensor:
        return -self.head.logits(embeddings.minimum(self.threshold)).logsumexp(dim=1)
