"""Small hierarchies with photographs, to test proposals with."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from hgld import tables
from hgld.completion.inputs import CompletionFiles
from hgld.tables.embeddings import write_embeddings
from tests.labels.label_tables import PROVENANCE

ROOTS = {"church": "human-made", "bridge": "human-made", "lake": "natural"}


@dataclass
class Landmark:
    """A landmark of a test: group None if it has none; the vectors of its photographs."""

    split: str
    landmark_id: int
    group: str | None
    vectors: Sequence[Sequence[float]]
    reason: str = "unlabelled"


def photographs_like(group: str, n: int, random: np.random.Generator, noise: float = 0.3) -> list[list[float]]:
    """Vectors near the direction of a group, in 8 dimensions."""
    centre = np.eye(8)[list(ROOTS).index(group)]
    vectors: list[list[float]] = (centre + noise * random.normal(size=(n, 8))).tolist()
    return vectors


def labelled_landmarks(n: int, split: str = "train", noise: float = 0.3, seed: int = 0) -> list[Landmark]:
    """Landmarks 0 to n-1 of all groups in turn, with one to four photographs."""
    random, groups = np.random.default_rng(seed), list(ROOTS)
    return [
        Landmark(
            split, number, groups[number % 3], photographs_like(groups[number % 3], 1 + number % 4, random, noise)
        )
        for number in range(n)
    ]


def write_landmarks(folder: Path, landmarks: Sequence[Landmark], *, name: str = "embeddings.npy") -> CompletionFiles:
    """Write the tables hierarchy, removed and clean, one file of embeddings and a list of images per split."""
    hierarchy = [_keys(landmark) | _levels(landmark.group) for landmark in landmarks if landmark.group]
    missing = [landmark for landmark in landmarks if not landmark.group]
    removed = [
        _keys(landmark) | {"reason": landmark.reason, "instance_of": []}
        for landmark in missing
        if landmark.reason != "excluded"
    ]
    clean = [
        _keys(landmark) | {"supercategory": landmark.group or "building", "class_item": None}
        for landmark in landmarks
        if landmark.group or landmark.reason == "excluded"
    ]
    paths = {}
    for spec, rows in ((tables.HIERARCHY, hierarchy), (tables.REMOVED, removed), (tables.CLEAN, clean)):
        paths[spec.name] = folder / f"{spec.name}.parquet"
        table = pa.Table.from_pylist(rows, schema=spec.schema)
        tables.write_table(paths[spec.name], spec, table, PROVENANCE)
    vectors, ids, images = [], [], dict[str, list[str]]()
    for landmark in landmarks:
        for number, vector in enumerate(landmark.vectors):
            ids.append(f"{landmark.split}-{landmark.landmark_id}-{number}")
            vectors.append(vector)
            images.setdefault(landmark.split, []).append(f"{ids[-1]},{landmark.landmark_id}\n")
    write_embeddings(folder / name, torch.tensor(np.array(vectors), dtype=torch.float32), ids)
    for split, lines in images.items():
        (folder / f"{split}.csv").write_text("id,landmark_id\n" + "".join(lines))
    return CompletionFiles(
        hierarchy=paths["hierarchy"],
        embeddings=[folder / name],
        image_landmarks=[folder / f"{split}.csv" for split in images],
        removed=paths["removed"],
        clean=None,
    )


def _keys(landmark: Landmark) -> dict[str, object]:
    return {
        "split": landmark.split,
        "landmark_id": landmark.landmark_id,
        "category": f"http://commons.wikimedia.org/wiki/Category:{landmark.split}_{landmark.landmark_id}",
    }


def _levels(group: str) -> dict[str, str]:
    return {"supercategory": f"{group} building", "hierarchical_label": group, "natural_or_human_made": ROOTS[group]}


def unit(vectors: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    array = np.array(vectors)
    return np.asarray(array / np.linalg.norm(array, axis=1, keepdims=True))
