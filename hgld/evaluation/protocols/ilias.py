"""ILIAS: images and texts that look for photographs of one object among a hundred million (CVPR 2025).

mAP@1k as in the published evaluation (``evaluation/src/dataset.py`` of github.com/ilias-vrg/ilias, commit e81029e):
the sum of the precisions at the positives among the first 1,000 items, divided by min(R, 1,000), where R positives
show the query's object; the mean is over all queries. ``TR@1000`` is what the best re-ranking of these items would
reach, there called oracle (for R up to 1,000, as in ILIAS). The published code counts items of equal scores as one
step of the precision; here, ``ties`` orders them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

import numpy as np
import torch

from hgld.datasets.ilias_files import IliasIds, object_of, read_ids
from hgld.errors import InputError, indented_list
from hgld.evaluation.evaluation_files import EvaluationInputs, EvaluationProtocol, InputSet
from hgld.evaluation.relevance import ListJudgements
from hgld.evaluation.retrieval_task import RetrievalTask, with_distractors
from hgld.ragged import RaggedIndices
from hgld.tables.embeddings import Embeddings, rows_of

METRICS = ("mAP@1000", "TR@1000")


def ilias_tasks(
    queries: Embeddings, gallery: Embeddings, ids: IliasIds, distractors: Embeddings | None = None
) -> list[RetrievalTask]:
    """Build the tasks "image queries" and "text queries", or the one whose queries are embedded.

    Args:
        queries: Embeddings of the queries; suffixes of ids and folders above ``ilias_core`` do not matter.
        gallery: The same for the positives; those of queries among them are left out.
        ids: Ids of queries and positives.
        distractors: Further images of the gallery, all of which are negatives: those of YFCC100M, or of mini-ILIAS.

    Raises:
        InputError: Images are not embedded, two ids mean the same image, the gallery has unknown images, or
            distractors have another number of dimensions.
    """
    queries, gallery = _with_short_ids(queries), _with_short_ids(gallery)
    positives, kinds = _short(ids.positives), {"image queries": ids.image_queries, "text queries": ids.text_queries}
    rows = rows_of(gallery, positives, "positives of ILIAS")
    known = {*positives, *_short(ids.image_queries), *_short(ids.text_queries)}
    assert gallery.ids is not None
    if others := [image for image in gallery.ids.tolist() if image not in known]:
        raise InputError(
            f"{gallery.path}: {len(others):,} embeddings are of other images than the positives; give distractors as "
            f"`distractor_embeddings`:\n{indented_list(others)}"
        )
    embedded = set() if queries.ids is None else {*queries.ids.tolist()}
    chosen = {name: _short(each) for name, each in kinds.items() if embedded & {*_short(each)}}
    positions: dict[str, list[int]] = {}
    for position, image in enumerate(positives):
        positions.setdefault(object_of(image), []).append(position)
    tasks = [
        RetrievalTask(
            name=name,
            queries=queries.vectors[torch.from_numpy(rows_of(queries, each, f"{name} of ILIAS"))],
            gallery=gallery.vectors[torch.from_numpy(rows)],
            judgements=ListJudgements(
                RaggedIndices.from_lists([positions.get(object_of(query), []) for query in each]), len(positives)
            ),
            query_ids=np.array(each),
            gallery_ids=np.array(positives),
            metrics=METRICS,
        )
        for name, each in (chosen or {"image queries": _short(ids.image_queries)}).items()
    ]
    return tasks if distractors is None else [with_distractors(task, distractors) for task in tasks]


def _short(ids: Sequence[str]) -> list[str]:
    """Return ids as object, folder and name without its suffix, as the tar files on Hugging Face have them."""
    return ["/".join(PurePosixPath(image).with_suffix("").parts[-3:]) for image in ids]


def _with_short_ids(images: Embeddings) -> Embeddings:
    if images.ids is None:
        return images
    ids = np.array(_short(images.ids.tolist()))
    if n_repeated := len(ids) - len(np.unique(ids)):
        raise InputError(f"{images.path}: {n_repeated:,} ids differ from others in suffix or outer folders alone")
    return replace(images, ids=ids)


def _build_tasks(inputs: EvaluationInputs) -> list[RetrievalTask]:
    return ilias_tasks(inputs.queries, inputs.gallery, read_ids(inputs.ground_truth), inputs.distractors)


ILIAS = EvaluationProtocol(
    "ilias",
    (InputSet(("query_embeddings", "gallery_embeddings", "ground_truth"), ("distractor_embeddings",)),),
    _build_tasks,
    {"ground_truth": "the folder image_ids"},
)
