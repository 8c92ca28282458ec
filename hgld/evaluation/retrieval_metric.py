"""Metric object that collects images batch by batch and evaluates their retrieval at the end."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from hgld.arrays import Booleans
from hgld.compute.processes import current_processes
from hgld.compute.scoring import Vectors, as_tensor, check_vectors
from hgld.errors import InputError
from hgld.evaluation.evaluate import EvaluationConfig, evaluate_tasks
from hgld.evaluation.retrieval_task import split_task
from hgld.evaluation.settings import as_names
from hgld.evaluation.task_from_arrays import as_array, id_array, label_array
from hgld.hierarchy.label_matrix import LabelMatrix
from hgld.hierarchy.label_sets import LabelSets

#: Largest distance between two embeddings of one image, as a fraction of their length. Batches of
#: different sizes are rounded differently, most of all by models in 16 bits.
_ROUNDING = 0.02
log = logging.getLogger(__name__)


class RetrievalMetric:
    """Collect embeddings and labels of batches, then evaluate them like ``evaluate_retrieval``.

    It has the methods ``update``, ``compute`` and ``reset`` of torchmetrics, but does not need that
    package; in Lightning, call ``self.log_dict(metric.compute())`` at the end of an epoch. Metrics
    are computed over all images and are not means over batches: they equal the result of
    ``evaluate_retrieval`` for all images, in the order of the batches, with the images of the first
    process first. Where ``torch.distributed`` is initialised, ``compute`` gathers the images of all
    processes, which share the work and all get the result; every process has to call it.

    Embeddings are kept in the memory of the CPU. Samplers for several processes, such as
    ``DistributedSampler``, may repeat images so that all processes get the same number. **Pass ids
    then**: a repeated image is counted once, and the log reports the number of repetitions. An id
    names one image of all batches and processes, such as its row in the whole data set.

    Args:
        metrics: Names such as ``H-AP``; by default
            :func:`~hgld.evaluation.metrics.default_metrics`.
        **settings: Further settings of :class:`~hgld.evaluation.evaluate.EvaluationConfig`, such as
            ``relevance_alpha`` or ``ranking=RankingConfig(device="cuda")``.

    >>> metric = RetrievalMetric(["R@1", "H-AP"])
    >>> metric.update(torch.tensor([[1.0, 0.0], [0.8, 0.3]]), torch.tensor([[0, 0], [0, 0]]))
    >>> metric.update(torch.tensor([[0.9, 0.1], [0.0, 1.0]]), torch.tensor([[1, 0], [2, 1]]))
    >>> metric.compute()
    {'R@1': 0.0, 'H-AP': 0.888888888888889}
    >>> metric.reset()
    """

    def __init__(self, metrics: str | Sequence[str] | None = None, **settings: Any) -> None:
        self._config = EvaluationConfig(as_names(metrics), **settings)
        self._batches: list[_Batch] = []

    def update(
        self,
        embeddings: Vectors,
        labels: Tensor | LabelMatrix,
        *,
        is_query: Tensor | npt.ArrayLike | None = None,
        ids: npt.ArrayLike | Tensor | None = None,
    ) -> None:
        """Add a batch of images.

        Args:
            embeddings: float, shape (B, d), on any device.
            labels: Integers, shape (B, L), finest first; or (B,) for one level. Images with -1 at
                every level are excluded.
            is_query: bool, shape (B,); True for queries, False for the gallery that is ranked for
                them. By default every image is ranked against all others.
            ids: Ids of the images, integers or texts, shape (B,). Images are then evaluated in the
                order of their ids, so that results do not depend on batches and processes, and
                repeated images count once.

        Raises:
            InputError: The arguments have different numbers of images, embeddings do not have the
                shape (B, d), labels are not integers, or ids are neither texts nor integers.
        """
        vectors = as_tensor(embeddings)
        check_vectors(vectors, "query")
        matrix = label_array(labels, "query")
        if isinstance(matrix, LabelSets):
            raise InputError("batches have one label per image and level; found label sets")
        lengths = [len(vectors), len(matrix)]
        query_mask = None
        if is_query is not None:
            query_mask = as_array(is_query).astype(bool).reshape(-1)
            lengths.append(len(query_mask))
        image_ids = None
        if ids is not None:
            image_ids = id_array(ids, "query")
            lengths.append(len(image_ids))
        if len(set(lengths)) > 1:
            raise InputError(
                f"the arguments of a batch have {', '.join(map(str, lengths))} rows; expected the same number"
            )
        copied_vectors = vectors.to("cpu", copy=True)
        self._batches.append(_Batch(copied_vectors, matrix.copy(), query_mask, image_ids))

    def compute(self) -> dict[str, float]:
        """Return the mean of each metric over the queries of all batches and processes.

        Raises:
            InputError: No images were added, only some batches have ids or queries, batches differ
                in the number of levels or dimensions, an id belongs to different images, or
                :func:`~hgld.evaluation.evaluate.evaluate_retrieval` would raise the error.
            ConfigurationError: See :func:`~hgld.evaluation.evaluate.evaluate_retrieval`.
        """
        processes = current_processes()
        batches: list[_Batch] = []
        for batches_of_process in processes.gather(self._batches):
            batches.extend(batches_of_process)
        if not batches:
            raise InputError("no images were added; call `update` with a batch before `compute`")
        images = _joined(batches)
        if images.ids is not None:
            images = _without_repetitions(images, images.ids)
        task = split_task(images.embeddings, images.labels, images.is_query, ids=images.ids)
        (result,) = evaluate_tasks([task], replace(self._config, processes=processes))
        return result.means

    def reset(self) -> None:
        """Forget all images."""
        self._batches = []


@dataclass(frozen=True, eq=False)
class _Batch:
    """Images of one call of :meth:`RetrievalMetric.update`, or of all calls together.

    Args:
        embeddings: float, shape (n, d), on the CPU.
        labels: int64, shape (n, L), finest first.
        is_query: bool, shape (n,), if it was given.
        ids: Texts or integers, shape (n,), if they were given.
    """

    embeddings: Tensor
    labels: LabelMatrix
    is_query: Booleans | None
    ids: npt.NDArray[Any] | None


def _joined(batches: Sequence[_Batch]) -> _Batch:
    """Return the images of all batches.

    Raises:
        InputError: Batches differ in their dimensions, levels or arguments.
    """
    masks = [batch.is_query for batch in batches if batch.is_query is not None]
    if len(masks) not in (0, len(batches)):
        raise InputError("only some batches have `is_query`; give it with all batches, or none")
    id_parts = [batch.ids for batch in batches if batch.ids is not None]
    if len(id_parts) not in (0, len(batches)):
        raise InputError("only some batches have `ids`; give it with all batches, or none")
    _require_one_value("dimensions of embeddings", [batch.embeddings.shape[1] for batch in batches])
    _require_one_value("levels of labels", [batch.labels.shape[1] for batch in batches])
    ids = None
    if id_parts:
        # An empty batch tells nothing about the type of ids.
        filled_parts = [part for part in id_parts if len(part)]
        _require_one_value("ids", [_id_kind(part) for part in filled_parts])
        ids = np.concatenate(filled_parts or id_parts[:1])
    return _Batch(
        embeddings=torch.cat([batch.embeddings for batch in batches]),
        labels=np.concatenate([batch.labels for batch in batches]),
        is_query=np.concatenate(masks) if masks else None,
        ids=ids,
    )


def _id_kind(ids: npt.NDArray[Any]) -> str:
    """Return the kind of ids in words."""
    return "texts" if ids.dtype.kind == "U" else "integers"


def _require_one_value(name: str, values: Sequence[object]) -> None:
    """Raise an InputError unless all batches have the same value."""
    distinct = list(dict.fromkeys(values))
    if len(distinct) > 1:
        raise InputError(
            f"batches differ in their {name}: {' and '.join(map(str, distinct))}; expected the same"
        )


def _without_repetitions(images: _Batch, ids: npt.NDArray[Any]) -> _Batch:
    """Return each image once, in the order of ids; an image may be both a query and in the gallery.

    Raises:
        InputError: Rows with the same id have different labels, or, in the same role, different
            embeddings.
    """
    labels = images.labels
    codes = np.unique(ids, return_inverse=True)[1].reshape(-1)
    roles = images.is_query
    if roles is None:
        roles = np.zeros(len(ids), bool)
    rows = pd.Series(np.arange(len(ids)))
    rows_by_role = rows.groupby([codes, roles])
    first_of_image = rows.groupby(codes).transform("first").to_numpy()
    first_of_role = rows_by_role.transform("first").to_numpy()

    has_other_labels = np.flatnonzero((labels != labels[first_of_image]).any(axis=1))
    if len(has_other_labels):
        row = has_other_labels[0]
        both_labels = f"{labels[first_of_image[row]].tolist()} and {labels[row].tolist()}"
        n_ids = len(np.unique(codes[has_other_labels]))
        raise _conflict("labels", n_ids, f"{ids[row]}: {both_labels}")

    repeated = np.flatnonzero(first_of_role != rows)
    copies = images.embeddings[torch.from_numpy(repeated)].double()
    originals = images.embeddings[torch.from_numpy(first_of_role[repeated])].double()
    distances = torch.linalg.vector_norm(copies - originals, dim=1)
    lengths = torch.linalg.vector_norm(originals, dim=1)
    has_other_embedding = repeated[(distances > _ROUNDING * lengths).numpy()]
    if len(has_other_embedding):
        n_ids = len(np.unique(codes[has_other_embedding]))
        raise _conflict("embeddings", n_ids, str(ids[has_other_embedding[0]]))

    if len(repeated):
        log.warning(
            "%s of %s images were added again, and are counted once",
            f"{len(repeated):,}",
            f"{len(ids):,}",
        )
    # A copy, since PyTorch warns about read-only arrays, and pandas shares its array.
    first_rows = rows_by_role.first().to_numpy(copy=True)
    return _Batch(
        embeddings=images.embeddings[torch.from_numpy(first_rows)],
        labels=labels[first_rows],
        is_query=None if images.is_query is None else images.is_query[first_rows],
        ids=ids[first_rows],
    )


def _conflict(name: str, n_ids: int, example: str) -> InputError:
    """Return the error about ids that are given to different images."""
    return InputError(
        f"{n_ids:,} ids have different {name}, such as {example}; an id "
        "names one image of all batches and processes, so number the images of the whole data set"
    )
