"""Batches of images with several labels."""

from __future__ import annotations

from collections.abc import Callable

from hgld.datasets.samplers.base import BatchSampler, IntArray, epoch_generator
from hgld.hierarchy import LabelMatrix
from hgld.hierarchy.label_sets import LabelSets, require_labelled


class LabelSetSampler:
    """Sampler of images with several labels: in each epoch an image stands for one of its labels, drawn at random.

    Another sampler makes the batches of these single labels, so that the images drawn for a class share it. Their
    further labels are not looked at: losses get all labels of all images, and find the other positives of a batch.
    Epochs differ in length as the classes drawn for differ in size.

    Args:
        labels: Labels of the images, at least one for each.
        make_sampler: Function that makes the sampler of an epoch from one label per image, int64 (N, L).
        seed: Seed of the drawn labels.

    Raises:
        InputError: Images are unlabelled.

    >>> from hgld.datasets.samplers import ClassBalancedSampler
    >>> sets = LabelSets.from_lists([[[0], [1]]] * 4 + [[[2]]] * 4)
    >>> sampler = LabelSetSampler(sets, lambda labels: ClassBalancedSampler(labels, 2, 2, seed=0), seed=0)
    >>> all(max(batch) < 4 or min(batch) >= 4 for batch in sampler.batches(epoch=0))
    True
    """

    def __init__(self, labels: LabelSets, make_sampler: Callable[[LabelMatrix], BatchSampler], *, seed: int) -> None:
        require_labelled(labels)
        self._labels, self._make_sampler, self._seed = labels, make_sampler, seed
        self._epoch, self._sampler = 0, make_sampler(self._drawn(0))
        self.batch_size = self._sampler.batch_size

    def n_batches(self, epoch: int) -> int:
        """Return the number of batches of an epoch."""
        return self._sampler_of(epoch).n_batches(epoch)

    def batches(self, epoch: int) -> list[IntArray]:
        """Return the rows of each batch of an epoch: int64, at most ``batch_size`` of them."""
        return self._sampler_of(epoch).batches(epoch)

    def _sampler_of(self, epoch: int) -> BatchSampler:
        if epoch != self._epoch:
            self._epoch, self._sampler = epoch, self._make_sampler(self._drawn(epoch))
        return self._sampler

    def _drawn(self, epoch: int) -> LabelMatrix:
        """Return a label of each image: int64, shape (N, L)."""
        members = self._labels.members
        numbers = epoch_generator(self._seed, epoch, 2).integers(members.counts())
        labels: LabelMatrix = self._labels.labels[members.columns[members.offsets[:-1] + numbers]]
        return labels
