"""Build a retrieval task from arrays or tensors of embeddings, labels and ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from hgld.compute.scoring import Vectors, as_tensor, check_vectors
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.retrieval_task import RetrievalTask, leave_one_out_task, query_gallery_task
from hgld.hierarchy.label_sets import Labelling, LabelSets
from hgld.io.text_array import Ids, TextArray
from hgld.ragged import RaggedIndices


def build_task(
    query_embeddings: Vectors,
    query_labels: Labelling | Tensor,
    gallery_embeddings: Vectors | None,
    gallery_labels: Labelling | Tensor | None,
    query_ids: npt.ArrayLike | Tensor | None = None,
    gallery_ids: npt.ArrayLike | Tensor | None = None,
    ignored: RaggedIndices | None = None,
) -> RetrievalTask:
    """Build the task of :func:`~hgld.evaluation.evaluate.evaluate_retrieval` from its arguments.

    Without a gallery, every query is ranked against all other queries (leave-one-out).

    Raises:
        InputError: The arguments have wrong shapes or types, or do not fit each other.
        ConfigurationError: Only a part of the gallery is given.
    """
    queries = as_tensor(query_embeddings)
    labels = label_array(query_labels, "query")
    check_vectors(queries, "query")
    ids = _checked_ids(query_ids, len(labels), "query")
    if gallery_embeddings is None and gallery_labels is None and gallery_ids is None:
        if ignored is not None:
            ignored.check(len(labels), len(labels), "`ignored`")
        return leave_one_out_task(queries, labels, ids=ids, ignored=ignored)

    if gallery_embeddings is None or gallery_labels is None:
        raise ConfigurationError(
            "the gallery is given in part; expected `gallery_embeddings` and `gallery_labels` together (and "
            "`gallery_ids` only with them), or none of them to rank each query against the others"
        )
    if gallery_ids is not None and query_ids is None:
        raise ConfigurationError(
            "`gallery_ids` are given without `query_ids`; expected both, or neither"
        )
    if gallery_embeddings is query_embeddings:
        gallery = queries
    else:
        gallery = as_tensor(gallery_embeddings)
    check_vectors(gallery, "gallery")
    labels_of_gallery = label_array(gallery_labels, "gallery")
    if ignored is not None:
        ignored.check(len(labels), len(labels_of_gallery), "`ignored`")
    return query_gallery_task(
        queries,
        labels,
        gallery,
        labels_of_gallery,
        query_ids=ids,
        gallery_ids=_checked_ids(gallery_ids, len(labels_of_gallery), "gallery"),
        ignored=ignored,
    )


def label_array(labels: Labelling | Tensor, role: str) -> Labelling:
    """Return labels as int64, shape (n, L); label sets are returned as they are.

    Args:
        labels: Integers, shape (n, L) or (n,), or label sets.
        role: ``query`` or ``gallery``, for messages.

    Raises:
        InputError: The labels are not integers, or have another shape.
    """
    if isinstance(labels, LabelSets):
        return labels
    try:
        array = as_array(labels)
    except ValueError:
        raise InputError(
            f"the {role} labels are lists of different lengths; expected one label per level for each image, or "
            "`LabelSets.from_lists` for several labels per image"
        ) from None
    if array.ndim not in (1, 2) or not np.issubdtype(array.dtype, np.integer):
        raise InputError(
            f"the {role} labels have the shape {array.shape} and the type {array.dtype}; expected integers of the "
            "shape (n, L), finest first, such as numbers of the classes of queries and gallery together from "
            "numpy.unique(labels, return_inverse=True)"
        )
    if array.dtype == np.uint64 and array.max(initial=0) > np.iinfo(np.int64).max:
        raise InputError(
            f"the {role} labels are uint64, such as {array.max()}; expected integers below 2**63, such as numbers of "
            "classes from numpy.unique(labels, return_inverse=True)"
        )
    array = array.astype(np.int64, copy=False)
    if array.ndim == 1:
        return array[:, None]
    return array


def _checked_ids(ids: npt.ArrayLike | Tensor | None, n_images: int, role: str) -> Ids | None:
    """Return ids in the form of tasks, after a check that every image has an id."""
    if ids is None:
        return None
    array: Ids
    if isinstance(ids, TextArray):
        array = ids
    else:
        array = id_array(ids, role)
    if len(array) != n_images:
        raise InputError(
            f"there are {len(array):,} {role} ids, but labels for {n_images:,} {role} images"
        )
    return array


def id_array(ids: Any, role: str) -> npt.NDArray[Any]:
    """Return ids as an array of texts or integers.

    Ids from pandas come as arrays of objects, and texts from NumPy may have the type
    ``numpy.dtypes.StringDType``; both are converted.

    Args:
        ids: Array or tensor, shape (n,).
        role: ``query`` or ``gallery``, for messages.

    Raises:
        InputError: The ids are neither all texts nor all integers, or do not have the shape (n,).
    """
    array = as_array(ids)
    if array.ndim != 1:
        raise InputError(
            f"the {role} ids have the shape {array.shape}; expected one id per image, of the shape (n,)"
        )
    if array.dtype.kind == "T":
        array = array.astype(object)
    if array.dtype == object:
        if all(isinstance(value, str) for value in array):
            return array.astype(np.str_)
        if all(isinstance(value, int | np.integer) for value in array):
            return array.astype(np.int64)
    elif not len(array) or array.dtype.kind in "iuU":
        return array
    types = sorted({type(value).__name__ for value in array})
    raise InputError(
        f"the {role} ids are of the type {' and '.join(types)}; expected all texts, or all integers"
    )


def as_array(values: Any) -> npt.NDArray[Any]:
    """Return an array or tensor as a NumPy array on the CPU."""
    if isinstance(values, Tensor):
        return values.cpu().numpy()
    return np.asarray(values)
