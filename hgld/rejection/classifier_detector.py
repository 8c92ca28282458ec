"""What scores of classifiers have in common: where their logits, or their weights, come from."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from hgld.compute.dtypes import at_least_float32
from hgld.errors import ConfigurationError, InputError
from hgld.rejection.detector import Detector, Input, Scores
from hgld.rejection.inputs import DetectorInputs
from hgld.rejection.linear_classifier import (
    LinearClassifier,
    fit_linear_classifier,
    gaussian_classifier,
    load_classifier,
    row_blocks,
)

#: Images times classes times dimensions that ``softmax`` is fitted on: about an hour of one core.
_MAX_PRODUCTS = 2**36


class LogitDetector(Detector):
    """A score of logits alone: of given ones, else of those of a classifier of the embeddings.

    Attributes:
        classifier: See :class:`~hgld.rejection.classifier_detector.ClassifierDetector`. Not used if logits are given.
        head: The classifier; None for a score that was fitted with logits.
        n_classes: Number of columns of the logits.
    """

    uses: ClassVar[frozenset[Input]] = frozenset({"labels", "logits"})
    classifier: str
    head: LinearClassifier | None = None
    n_classes: int

    @abstractmethod
    def _score_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the scores of logits, float32 or float64, shape (n, C); the tensor may be overwritten."""

    def state(self) -> dict[str, torch.Tensor]:
        """Return the number of classes, and the weight and bias of the classifier unless logits were given."""
        head = {} if self.head is None else {"weight": self.head.weight, "bias": self.head.bias}
        return {"n_classes": torch.tensor(self.n_classes)} | head

    def _fit(self, images: DetectorInputs) -> None:
        if images.logits is None:
            self.head = index_classifier(self.classifier, images, self.name, "`logits`, or ")
            self.n_classes = self.head.n_classes
        else:
            self.head, self.n_classes = None, images.logits.shape[1]

    def _score(self, images: DetectorInputs) -> Scores:
        self._check_logits(images.logits)
        blocks = []
        for rows in row_blocks(len(images), self.n_classes):
            if self.head is None:
                assert images.logits is not None
                logits = at_least_float32(images.logits[rows])
            else:
                logits = self.head.logits(images.embeddings[rows])
            blocks.append(self._score_logits(logits))
        return torch.cat(blocks).numpy()

    def _restore(self, state: Mapping[str, torch.Tensor]) -> None:
        self.n_classes = int(state["n_classes"])
        self.head = LinearClassifier(state["weight"], state["bias"]) if "weight" in state else None

    def _check_logits(self, logits: torch.Tensor | None) -> None:
        if self.head is None and logits is None:
            raise ConfigurationError(f"the score {self.name} was fitted with `logits`; give those of these images")
        if self.head is not None and logits is not None:
            raise ConfigurationError(
                f"the score {self.name} was fitted without `logits`, on a classifier of the embeddings; leave them "
                "out here, or give them in both places"
            )
        if logits is not None and logits.shape[1] != self.n_classes:
            raise InputError(
                f"the `logits` have {logits.shape[1]:,} classes, and the score {self.name} was fitted with "
                f"{self.n_classes:,}; compute both with the same model"
            )


class ClassifierDetector(Detector):
    """A score of the weights and bias of a classifier, applied to embeddings; given logits are not used.

    Attributes:
        classifier: Where the classifier comes from: ``softmax`` fits softmax regression on the embeddings and the
            finest labels of the index, and refuses what would take hours; ``lda`` derives the classifier from
            Gaussians in seconds to minutes (the choice for tens of thousands of landmarks); anything else is the path
            of a safetensors file with the ``weight`` (C, d) and ``bias`` (C,) of a published classifier of these
            embeddings. The weights are part of what is saved; the file is not read again.
        head: The classifier.
    """

    uses: ClassVar[frozenset[Input]] = frozenset({"labels"})
    classifier: str
    head: LinearClassifier

    @abstractmethod
    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        """Return the scores of embeddings of the type of the classifier, shape (n,)."""

    def _fit_to_index(self, embeddings: torch.Tensor) -> None:
        """Fit what the score needs beyond the classifier, which may change the classifier, too."""

    def state(self) -> dict[str, torch.Tensor]:
        """Return the weight and bias of the classifier."""
        return {"weight": self.head.weight, "bias": self.head.bias}

    def _fit(self, images: DetectorInputs) -> None:
        self.head = index_classifier(self.classifier, images, self.name)
        self._fit_to_index(images.embeddings)

    def _score(self, images: DetectorInputs) -> Scores:
        blocks = [
            self._score_embeddings(images.embeddings[rows].to(self.head.weight.dtype))
            for rows in row_blocks(len(images), self.head.n_classes)
        ]
        return torch.cat(blocks).numpy()

    def _restore(self, state: Mapping[str, torch.Tensor]) -> None:
        self.head = LinearClassifier(state["weight"], state["bias"])


def index_classifier(choice: str, images: DetectorInputs, name: str, alternative: str = "") -> LinearClassifier:
    """Return the classifier of an index, in float32, or in float64 for float64 embeddings.

    Args:
        choice: ``softmax``, ``lda`` or a path; see the docstring of this module.
        images: Images of the index, with labels unless the choice is a path.
        name: Name of the score, for messages.
        alternative: Another input that would do, for messages.

    Raises:
        ConfigurationError: There are no labels.
        InputError: The file is malformed or of another dimension, or no classifier can be fitted, or only in hours.
    """
    embeddings = images.embeddings
    if choice not in ("softmax", "lda"):
        head = load_classifier(Path(choice))
        if head.weight.shape[1] != embeddings.shape[1]:
            raise InputError(
                f"{choice}: the classifier is one of {head.weight.shape[1]} dimensions, and the embeddings have "
                f"{embeddings.shape[1]}; take both from the same model"
            )
        return head.to(at_least_float32(embeddings[:0]).dtype)
    if images.labels is None:
        raise ConfigurationError(
            f"the score {name} needs {alternative}`labels` to fit a classifier on, or its option `classifier`: the "
            "file of one"
        )
    labels = np.ascontiguousarray(images.labels[:, 0])
    if choice == "lda":
        return gaussian_classifier(embeddings, labels)
    n_classes = len(np.unique(labels[labels >= 0]))
    if embeddings.numel() * n_classes > _MAX_PRODUCTS:
        raise InputError(
            f"softmax regression of {len(embeddings):,} images and {n_classes:,} classes takes hours; set the option "
            f"`classifier` of the score {name} to lda, or to the file of a classifier"
        )
    return fit_linear_classifier(embeddings, labels)
