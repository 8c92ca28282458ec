"""Ground truth of ROxford5k and RParis6k (Radenovic et al., Revisiting Oxford and Paris, CVPR 2018).

``gnd_roxford5k.pkl`` and ``gnd_rparis6k.pkl`` are pickle files of a dict: ``imlist`` (names of the gallery's images
without suffix), ``qimlist`` (those of the queries) and ``gnd``, for each query a dict of ``easy``, ``hard``, ``junk``
(positions in ``imlist``, from 0) and ``bbx`` (the box of the query in its image: left, top, right, bottom).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.io.restricted_pickle import as_array, read_pickle
from hgld.ragged import Integers, RaggedIndices

#: Which images are positives in each setting; those of ``_IGNORED`` are excluded from the ranking, all others are
#: negatives.
_POSITIVES = {"easy": ("easy",), "medium": ("easy", "hard"), "hard": ("hard",)}
_IGNORED = {"easy": ("junk", "hard"), "medium": ("junk",), "hard": ("junk", "easy")}
SETTINGS = tuple(_POSITIVES)
_KINDS = ("easy", "hard", "junk")


@dataclass(frozen=True)
class RevisitedGroundTruth:
    """Relevant and ignored gallery images of each query.

    Args:
        boxes: float64, shape (n_query, 4); the part of its image that is the query, in pixels.
        easy: Positions of the gallery images that show the landmark clearly, for each query.
        hard: Positions of those that show it under hard conditions.
        junk: Positions of those that are ignored, since the landmark can hardly be seen.
    """

    gallery_names: tuple[str, ...]
    query_names: tuple[str, ...]
    boxes: npt.NDArray[np.float64]
    easy: RaggedIndices
    hard: RaggedIndices
    junk: RaggedIndices

    def positives(self, setting: str) -> RaggedIndices:
        """Return the positives of each query in a setting: ``easy``, ``medium`` or ``hard``."""
        return self._union(_POSITIVES, setting)

    def ignored(self, setting: str) -> RaggedIndices:
        """Return the gallery images that are excluded from each query's ranking in a setting."""
        return self._union(_IGNORED, setting)

    def _union(self, kinds_by_setting: dict[str, tuple[str, ...]], setting: str) -> RaggedIndices:
        if setting not in kinds_by_setting:
            raise ConfigurationError(f'there is no setting "{setting}"; expected one of {", ".join(SETTINGS)}')
        by_kind = {"easy": self.easy, "hard": self.hard, "junk": self.junk}
        return reduce(or_, (by_kind[kind] for kind in kinds_by_setting[setting]))


def read_ground_truth(path: Path) -> RevisitedGroundTruth:
    """Read and check ``gnd_roxford5k.pkl``, ``gnd_rparis6k.pkl`` or a file of the same layout.

    Raises:
        InputError: See :func:`hgld.io.restricted_pickle.read_pickle`; or something is missing or malformed: names
            that repeat, positions beyond the gallery or of two kinds at once, another number of entries than of
            queries.
    """
    content = read_pickle(path)
    if not isinstance(content, dict) or not {"imlist", "qimlist", "gnd"} <= content.keys():
        raise InputError(f"{path}: expected a pickle of a dict with imlist, qimlist and gnd; is it another file?")
    gallery, queries = _names(path, "imlist", content["imlist"]), _names(path, "qimlist", content["qimlist"])
    entries = content["gnd"]
    if not isinstance(entries, list) or len(entries) != len(queries):
        n_entries = len(entries) if isinstance(entries, list) else f"a {type(entries).__name__} of"
        raise InputError(f"{path}: gnd has {n_entries} entries for {len(queries):,} queries; expected one for each")
    positions: dict[str, list[Integers]] = {kind: [] for kind in _KINDS}
    boxes, problems = [], []
    for name, entry in zip(queries, entries, strict=True):
        try:
            by_kind, box = _parse_entry(entry, len(gallery))
        except ValueError as problem:
            problems.append(f"query {name}: {problem}")
            continue
        boxes.append(box)
        for kind in _KINDS:
            positions[kind].append(np.sort(by_kind[kind]))
    if problems:
        raise InputError(f"{path}: {len(problems):,} bad entries of gnd:\n{indented_list(problems)}")
    return RevisitedGroundTruth(
        gallery, queries, np.stack(boxes), *(RaggedIndices.from_lists(positions[kind]) for kind in _KINDS)
    )


def _names(path: Path, key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(name, str) and name for name in value):
        raise InputError(f"{path}: {key} is not a list of names")
    if len(set(value)) < len(value):
        raise InputError(f"{path}: {key} has {len(value) - len(set(value)):,} repeated names")
    return tuple(map(str, value))


def _parse_entry(entry: object, n_gallery: int) -> tuple[dict[str, Integers], npt.NDArray[np.float64]]:
    """Return the positions by kind and the box of an entry of gnd."""
    if not isinstance(entry, dict):
        raise ValueError(f"a {type(entry).__name__}; expected a dict")
    missing = [key for key in (*_KINDS, "bbx") if key not in entry]
    if missing:
        raise ValueError(f"no {' and no '.join(missing)}")
    by_kind = {kind: _positions(kind, entry[kind], n_gallery) for kind in _KINDS}
    numbers, counts = np.unique(np.concatenate(list(by_kind.values())), return_counts=True)
    if (counts > 1).any():
        raise ValueError(f"position {numbers[counts > 1][0]} is repeated in {', '.join(_KINDS)}")
    box = _array("bbx", entry["bbx"])
    if box.shape != (4,) or not np.isfinite(box).all():
        raise ValueError(f"bbx has the shape {box.shape}; expected 4 finite numbers")
    left, top, right, bottom = box.tolist()
    if left >= right or top >= bottom:
        raise ValueError(f"bbx is {box.tolist()}; expected left, top, right, bottom")
    return by_kind, box.astype(np.float64)


def _positions(kind: str, value: object, n_gallery: int) -> Integers:
    array = _array(kind, value)
    if array.ndim != 1:
        raise ValueError(f"{kind} has the shape {array.shape}; expected one row of positions")
    # An empty list is an array of floats.
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"{kind} holds {array.dtype}; expected whole numbers")
    outside = array[(array < 0) | (array >= n_gallery)]
    if outside.size:
        raise ValueError(f"{kind} has position {outside[0]}; the gallery has {n_gallery:,} images, from 0 on")
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
