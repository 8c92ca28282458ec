"""Metrics of a model while it embeds batches, with the methods of torchmetrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.processes import current_processes
from hgld.errors import InputError
from hgld.evaluation.evaluate import EvaluationConfig, evaluate_tasks, label_array
from hgld.evaluation.retrieval_task import split_task
from hgld.hierarchy.label_matrix import LabelMatrix
from hgld.hierarchy.label_sets import LabelSets

#: Embeddings, labels, whether each image is a query, and ids; None for what was not given.
_Batch = tuple[torch.Tensor, LabelMatrix, npt.NDArray[np.bool_] | None, npt.NDArray[Any] | None]


class RetrievalMetric:
    """Collect embeddings and labels batch by batch, then evaluate them as :func:`evaluate_retrieval` does.

    It has the methods ``update``, ``compute`` and ``reset`` of torchmetrics, but does not need that package; in
    Lightning, call ``self.log_dict(metric.compute())`` at the end of an epoch. Numbers are exact, not means over
    batches: those of ``evaluate_retrieval`` for all images, in the order of the batches, first those of the first
    process. Where ``torch.distributed`` is initialised, ``compute`` gathers the images of all processes, which share
    the work and all get the result; every process has to call it.

    Embeddings are kept in the memory of the CPU. Samplers for several processes, such as ``DistributedSampler``, may
    repeat images to give each process as many. **Pass ids then**: an image that comes again is not counted again.

    Args:
        metrics: Names such as ``H-AP``; by default :func:`~hgld.evaluation.metrics.default_metrics`.
        **settings: Further settings of :class:`EvaluationConfig`, such as ``relevance_alpha`` or
            ``ranking=RankingConfig(device="cuda")``.

    >>> metric = RetrievalMetric(["R@1", "H-AP"])
    >>> metric.update(torch.tensor([[1.0, 0.0], [0.8, 0.3]]), torch.tensor([[0, 0], [0, 0]]))
    >>> metric.update(torch.tensor([[0.9, 0.1], [0.0, 1.0]]), torch.tensor([[1, 0], [2, 1]]))
    >>> metric.compute()
    {'R@1': 0.0, 'H-AP': 0.888888888888889}
    >>> metric.reset()
    """

    def __init__(self, metrics: Sequence[str] | None = None, **settings: Any) -> None:
        self._config = EvaluationConfig(None if metrics is None else tuple(metrics), **settings)
        self._batches: list[_Batch] = []

    def update(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor | LabelMatrix,
        *,
        is_query: torch.Tensor | npt.ArrayLike | None = None,
        ids: Sequence[Any] | torch.Tensor | npt.NDArray[Any] | None = None,
    ) -> None:
        """Add a batch of images.

        Args:
            embeddings: float, shape (B, d), on any device.
            labels: Integers, shape (B, L), finest first; or (B,) for one level. Images with -1 at every level are
                excluded.
            is_query: bool, shape (B,); True for queries, False for the gallery that is ranked for them. By default
                every image is ranked against all others.
            ids: Ids of the images, integers or texts, shape (B,). Images are then in the order of their ids, so that
                results do not depend on batches and processes, and count once.

        Raises:
            InputError: The arguments are not of as many images, or labels are not integers.
        """
        matrix = label_array(labels, "query")
        if isinstance(matrix, LabelSets):
            raise InputError("batches have one label per image and level; found label sets")
        mask = None if is_query is None else _array(is_query).astype(bool)
        names = None if ids is None else _array(ids)
        lengths = [len(part) for part in (embeddings, matrix, mask, names) if part is not None]
        if len(set(lengths)) > 1:
            raise InputError(f"the arguments of a batch have {', '.join(map(str, lengths))} rows; expected as many")
        self._batches.append((embeddings.detach().to("cpu", copy=True), matrix.copy(), mask, names))

    def compute(self) -> dict[str, float]:
        """Return the mean of each metric over the queries of all batches and processes.

        Raises:
            InputError: There are no images, only some batches have ids or queries, or see :func:`evaluate_retrieval`.
            ConfigurationError: See :func:`evaluate_retrieval`.
        """
        processes = current_processes()
        batches = [batch for share in processes.gather(self._batches) for batch in share]
        if not batches:
            raise InputError("no images were added; call `update` with a batch before `compute`")
        vectors, matrices, masks, names = zip(*batches, strict=True)
        for parts, name in ((masks, "is_query"), (names, "ids")):
            if len({part is None for part in parts}) > 1:
                raise InputError(f"only some batches have `{name}`; give it with all batches, or none")
        embeddings, labels = torch.cat(vectors), np.concatenate(matrices)
        is_query = None if masks[0] is None else np.concatenate(masks)
        ids = None if names[0] is None else np.concatenate(names)
        if ids is not None:  # an image may be a query and in the gallery
            role = np.zeros(len(ids), bool) if is_query is None else is_query
            keys = np.stack([np.unique(ids, return_inverse=True)[1], role])
            rows = np.unique(keys, axis=1, return_index=True)[1]
            embeddings, labels, ids = embeddings[torch.from_numpy(rows)], labels[rows], ids[rows]
            is_query = None if is_query is None else is_query[rows]
        task = split_task(embeddings, labels, is_query, ids=ids)
        (result,) = evaluate_tasks([task], replace(self._config, processes=processes))
        return result.means

    def reset(self) -> None:
        """Forget all images."""
        self._batches = []


def _array(values: Any) -> npt.NDArray[Any]:
    return values.cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
