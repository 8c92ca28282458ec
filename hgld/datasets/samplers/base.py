"""The interface of batch samplers, and what they share."""

from __future__ import annotations

import logging
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from hgld.errors import ConfigurationError
from hgld.hierarchy.label_sets import Labelling, LabelSets, require_labelled

log = logging.getLogger(__name__)

IntArray = NDArray[np.int64]

#: What happens to classes with fewer images than a batch takes of each: ``repeat`` draws their images with
#: replacement, ``exclude`` never uses them.
SmallClasses = Literal["repeat", "exclude"]


class BatchSampler(Protocol):
    """The interface of batch samplers."""

    batch_size: int

    def n_batches(self, epoch: int) -> int:
        """Return the number of batches of an epoch, without drawing them."""

    def batches(self, epoch: int) -> list[IntArray]:
        """Return the rows of each batch of an epoch: int64, at most ``batch_size`` of them."""


def epoch_generator(seed: int, epoch: int, *further: int) -> np.random.Generator:
    """Return an independent random generator for an epoch or, given further numbers, for a part of it."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(epoch, *further)))


def check_sizes(batch_size: int, per_class: int, super_classes: int = 1) -> None:
    """Raise a :class:`ConfigurationError` if a batch cannot have this number of images of each class."""
    if min(batch_size, per_class, super_classes) < 1:
        raise ConfigurationError(
            f"`batch_size` is {batch_size}, `per_class` {per_class} and `super_classes` {super_classes}; "
            "expected at least 1"
        )
    if batch_size % (per_class * super_classes):
        suffix = f" of each of {super_classes} super-classes" if super_classes > 1 else ""
        raise ConfigurationError(
            f"a batch of {batch_size} cannot be made of {per_class} images of each class{suffix}; "
            f"`batch_size` must be a multiple of {per_class * super_classes}"
        )


def class_counts_text(counts: IntArray, per_class: int) -> str:
    """Return how many classes have enough images, for messages."""
    return (
        f"{(counts >= per_class).sum():,} of {(counts > 0).sum():,} classes have {per_class} images or more, and "
        f"{(counts == 1).sum():,} have only one"
    )


def log_small_classes(labels: Labelling, per_class: int, small_classes: SmallClasses) -> None:
    """Log the number of classes with fewer than ``per_class`` images, and what happens to them.

    Samplers do not log this themselves, as :class:`LabelSetSampler` makes a new one for each epoch.

    Args:
        labels: Labels that a sampler is made from; an image with several counts for each of its classes.
        per_class: Number of images of each class in a batch.
        small_classes: What happens to these classes.
    """
    counts = images_per_class(labels)
    if small := ((counts > 0) & (counts < per_class)).sum():
        outcome = "excluded" if small_classes == "exclude" else "their images are repeated within batches"
        log.info("%s of %s classes have fewer than %d images: %s", small, (counts > 0).sum(), per_class, outcome)


def images_per_class(labels: Labelling) -> IntArray:
    """Return the number of images of each class of column 0: int64, shape (C,).

    Raises:
        InputError: Images are unlabelled.
    """
    require_labelled(labels)
    if not isinstance(labels, LabelSets):
        return np.bincount(labels[:, 0])
    classes = labels.labels[labels.members.columns, 0]
    n_classes = int(classes.max()) + 1
    return np.bincount(np.unique(labels.members.rows() * n_classes + classes) % n_classes)
