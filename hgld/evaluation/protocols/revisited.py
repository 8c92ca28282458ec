"""ROxford5k and RParis6k: ground truth and measures of Radenovic et al., Revisiting Oxford and Paris, CVPR 2018.

``gnd_roxford5k.pkl`` and ``gnd_rparis6k.pkl`` are pickle files of a dict: ``imlist`` (names of the gallery's images
without ending), ``qimlist`` (those of the queries) and ``gnd``, for each query a dict of ``easy``, ``hard``, ``junk``
(positions in ``imlist``, from 0) and ``bbx`` (the box of the query in its image: left, top, right, bottom).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.evaluation.ranking import rank
from hgld.evaluation.relevance_judgements import ListJudgements
from hgld.evaluation.results import RetrievalResult, count_queries
from hgld.evaluation.retrieval_task import EvaluationConfig
from hgld.io.restricted_pickle import as_array, read_pickle
from hgld.ragged import Integers, RaggedIndices
from hgld.tables.embeddings import Embeddings, rows_of

#: Which images are positives in each setting; those of ``_IGNORED`` are taken out of the ranking, all others are
#: negatives.
_POSITIVES = {"easy": ("easy",), "medium": ("easy", "hard"), "hard": ("hard",)}
_IGNORED = {"easy": ("junk", "hard"), "medium": ("junk",), "hard": ("junk", "easy")}
SETTINGS = tuple(_POSITIVES)
_KINDS = ("easy", "hard", "junk")
_KAPPAS = (1, 5, 10)
_METRICS = ["mAP", *(f"mP@{k}" for k in _KAPPAS)]


@dataclass(frozen=True)
class RevisitedGroundTruth:
    """What is to be found for each query.

    Args:
        gallery_names: the names of the gallery's images.
        query_names: the names of the queries.
        boxes: float64, shape (n_query, 4): the part of its image that is the query.
        easy: for each query, positions of gallery images that show the landmark clearly.
        hard: of those that show it under hard conditions.
        junk: of those that are to be ignored, since the landmark can hardly be seen.
    """

    gallery_names: tuple[str, ...]
    query_names: tuple[str, ...]
    boxes: npt.NDArray[np.float64]
    easy: RaggedIndices
    hard: RaggedIndices
    junk: RaggedIndices

    def positives(self, setting: str) -> RaggedIndices:
        """The positives of each query in a setting: ``easy``, ``medium`` or ``hard``.

        Raises:
            ConfigurationError: there is no such setting.
        """
        return self._together(_POSITIVES, setting)

    def ignored(self, setting: str) -> RaggedIndices:
        """The gallery images that are taken out of each query's ranking in a setting.

        Raises:
            ConfigurationError: there is no such setting.
        """
        return self._together(_IGNORED, setting)

    def _together(self, kinds_of: dict[str, tuple[str, ...]], setting: str) -> RaggedIndices:
        if setting not in kinds_of:
            raise ConfigurationError(f'there is no setting "{setting}"; expected one of {", ".join(SETTINGS)}')
        of_kind = {"easy": self.easy, "hard": self.hard, "junk": self.junk}
        return reduce(or_, (of_kind[kind] for kind in kinds_of[setting]))


def read_ground_truth(path: Path) -> RevisitedGroundTruth:
    """Read and check ``gnd_roxford5k.pkl``, ``gnd_rparis6k.pkl`` or a file like them.

    Raises:
        InputError: see :func:`hgld.io.restricted_pickle.read_pickle`; something is missing or is not what
            it should be: names that repeat, positions beyond the gallery or of two kinds at once, another number of
            entries than of queries.
    """
    found = read_pickle(path)
    if not isinstance(found, dict) or not {"imlist", "qimlist", "gnd"} <= found.keys():
        raise InputError(f"{path}: expected a pickle of a dict with imlist, qimlist and gnd; is it another file?")
    gallery, queries = _names(path, "imlist", found["imlist"]), _names(path, "qimlist", found["qimlist"])
    entries = found["gnd"]
    if not isinstance(entries, list) or len(entries) != len(queries):
        n_found = len(entries) if isinstance(entries, list) else f"a {type(entries).__name__} of"
        raise InputError(f"{path}: gnd has {n_found} entries for {len(queries):,} queries; expected one for each")
    positions: dict[str, list[Integers]] = {kind: [] for kind in _KINDS}
    boxes, problems = [], []
    for name, entry in zip(queries, entries, strict=True):
        try:
            of_kind, box = _parse(entry, len(gallery))
        except ValueError as problem:
            problems.append(f"query {name}: {problem}")
            continue
        boxes.append(box)
        for kind in _KINDS:
            positions[kind].append(np.sort(of_kind[kind]))
    if problems:
        raise InputError(f"{path}: {len(problems):,} bad entries of gnd:\n{indented_list(problems)}")
    return RevisitedGroundTruth(
        gallery, queries, np.stack(boxes), *(RaggedIndices.of(positions[kind]) for kind in _KINDS)
    )


def evaluate_revisited(
    queries: Embeddings, gallery: Embeddings, truth: RevisitedGroundTruth, how: EvaluationConfig
) -> list[RetrievalResult]:
    """Evaluate embeddings of the queries and the gallery: mAP and mP@1, 5, 10 in each setting.

    Args:
        queries: with the names of the queries as ids; folders and endings of ids do not matter.
        gallery: likewise; it may hold further images, such as the million distractors, all of which are negatives.
        truth: the ground truth.
        how: to rank; the metrics are those of the protocol.

    Returns:
        "easy", "medium" and "hard". Queries without positives in a setting are NaN and left out of its means.

    Raises:
        InputError: images are not embedded, or two ids mean the same image.
        ConfigurationError: other metrics are asked for.
    """
    if how.metrics is not None:
        raise ConfigurationError(f"the metrics of this protocol are {', '.join(_METRICS)}; ask for no others")
    query_rows = rows_of(_named(queries), truth.query_names, "queries of the ground truth")
    gallery_rows = rows_of(_named(gallery), truth.gallery_names, "gallery images of the ground truth")
    results = []
    for setting in SETTINGS:
        positives, ignored = (
            RaggedIndices(pairs.offsets, gallery_rows[pairs.columns])
            for pairs in (truth.positives(setting), truth.ignored(setting))
        )
        found: list[tuple[int, list[float]]] = []
        for ranked in rank(
            queries.vectors[torch.from_numpy(query_rows)],
            gallery.vectors,
            ListJudgements(positives, len(gallery)),
            excluded=ignored,
            config=how.ranking,
            part=how.processes.part,
            progress=how.progress,
        ):
            for row, levels in enumerate(ranked.levels.cpu().numpy()):
                ranks = np.flatnonzero(levels)
                average = revisited_average_precision(ranks, len(ranks))
                numbers = [average, *(revisited_precision_at(ranks, k) for k in _KAPPAS)]
                found.append((ranked.queries.start + row, numbers))
        in_order = sorted(pair for pairs in how.processes.gather(found) for pair in pairs)
        values = np.array([numbers for _, numbers in in_order])
        per_query = pd.DataFrame(values, index=pd.Index(truth.query_names, name="query"), columns=_METRICS)
        per_query["positives_l1"] = np.diff(positives.offsets)
        results.append(
            RetrievalResult(
                name=setting,
                per_query=per_query,
                metrics=tuple(_METRICS),
                counts=count_queries(per_query) | {"gallery": len(gallery)},
                settings={
                    "AP": "by trapezoids (Oxford)",
                    "ties": how.ranking.ties,
                    "precision": how.ranking.precision,
                },
            )
        )
    return results


def revisited_average_precision(ranks: npt.ArrayLike, n_positive: int) -> float:
    """Average precision of one query as the Oxford protocol takes it, by trapezoids.

    The j-th positive (from 0) at rank r (from 0) stands for a step 1 / n_positive of recall, over which precision is
    the mean of that just before it, j / r (1 if r is 0), and that with it, (j + 1) / (r + 1). Eq. 9 of the paper on
    rank losses, and all other APs of hgld, take the second alone, which is never lower: of two positives at ranks 0
    and 3 it makes 0.75, as below, and the trapezoids 0.71.

    Args:
        ranks: the ranks of the positives, ascending, from 0, shape (n_retrieved,); ignored images do not count.
        n_positive: all positives of the query, retrieved or not.

    Returns:
        0 to 1; NaN for a query without positives.

    Raises:
        ValueError: the ranks are not ascending or negative, or are more than ``n_positive``.

    >>> revisited_average_precision([0, 3], 2)
    0.7083333333333333
    """
    at = _checked(ranks, n_positive)
    if not n_positive:
        return float("nan")
    before = np.arange(len(at))
    precision_before = np.where(at == 0, 1.0, before / np.maximum(at, 1))
    precision_with = (before + 1) / (at + 1)
    return float((precision_before + precision_with).sum() / 2 / n_positive)


def revisited_precision_at(ranks: npt.ArrayLike, k: int) -> float:
    """Precision among the first k of one query (mP@k), of as many as reach to the last positive if that is fewer.

    Args:
        ranks: the ranks of all positives, ascending, from 0, shape (n_positive,); ignored images do not count.
        k: how many of the first count.

    Returns:
        0 to 1; NaN for a query without positives.

    Raises:
        ValueError: the ranks are not ascending or negative, or ``k`` is less than 1.

    >>> revisited_precision_at([0, 3], 10)
    0.5
    """
    at = _checked(ranks)
    if k < 1:
        raise ValueError(f"k is {k}; expected at least 1")
    if not len(at):
        return float("nan")
    reach = min(int(at[-1]) + 1, k)
    return float((at < reach).sum() / reach)


def _checked(ranks: npt.ArrayLike, n_positive: int | None = None) -> Integers:
    at = np.asarray(ranks, np.int64)
    if at.ndim != 1 or (np.diff(at, prepend=-1) <= 0).any():
        raise ValueError("the ranks are not one row of ascending numbers from 0 on")
    if n_positive is not None and len(at) > n_positive:
        raise ValueError(f"{len(at):,} ranks of {n_positive:,} positives")
    return at


def _names(path: Path, key: str, found: object) -> tuple[str, ...]:
    if not isinstance(found, list) or not found or not all(isinstance(name, str) and name for name in found):
        raise InputError(f"{path}: {key} is not a list of names")
    if len(set(found)) < len(found):
        raise InputError(f"{path}: {key} has {len(found) - len(set(found)):,} names that stand there already")
    return tuple(map(str, found))


def _parse(entry: object, n_gallery: int) -> tuple[dict[str, Integers], npt.NDArray[np.float64]]:
    """The positions by kind and the box of an entry of gnd."""
    if not isinstance(entry, dict):
        raise ValueError(f"a {type(entry).__name__}; expected a dict")
    missing = [key for key in (*_KINDS, "bbx") if key not in entry]
    if missing:
        raise ValueError(f"no {' and no '.join(missing)}")
    of_kind = {kind: _positions(kind, entry[kind], n_gallery) for kind in _KINDS}
    numbers, counts = np.unique(np.concatenate(list(of_kind.values())), return_counts=True)
    if (counts > 1).any():
        raise ValueError(f"position {numbers[counts > 1][0]} stands twice in {', '.join(_KINDS)}")
    box = _array("bbx", entry["bbx"])
    if box.shape != (4,) or not np.isfinite(box).all():
        raise ValueError(f"bbx has the shape {box.shape}; expected 4 finite numbers")
    return of_kind, box.astype(np.float64)


def _positions(kind: str, value: object, n_gallery: int) -> Integers:
    array = _array(kind, value)
    if array.ndim != 1:
        raise ValueError(f"{kind} has the shape {array.shape}; expected one row of positions")
    # An empty list is an array of floats.
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"{kind} holds {array.dtype}; expected whole numbers")
    beyond = array[(array < 0) | (array >= n_gallery)]
    if beyond.size:
        raise ValueError(f"{kind} has position {beyond[0]}; the gallery has {n_gallery:,} images, from 0 on")
    return array.astype(np.int64)


def _array(key: str, value: object) -> npt.NDArray[Any]:
    array = as_array(value)
    if array is None:
        if not isinstance(value, (list, tuple)) or not all(isinstance(x, (int, float, np.number)) for x in value):
            raise ValueError(f"{key} is a {type(value).__name__}; expected a list or an array of numbers")
        array = np.array(value)
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{key} holds {array.dtype}; expected numbers")
    return array


def _named(images: Embeddings) -> Embeddings:
    """The same with names instead of ids: the ground truth has neither folders nor endings."""
    if images.ids is None:
        return images
    names = [PurePosixPath(image).stem for image in images.ids.tolist()]
    if len(set(names)) < len(names):
        raise InputError(
            f"{images.path}: {len(names) - len(set(names)):,} ids differ from others in folder and ending alone; the "
            "ground truth knows images by their names without them"
        )
    return replace(images, ids=np.array(names))
