"""A toy comparison: photographs of nine landmarks of three groups, and food, as embeddings without images."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import yaml

from hgld.tables.embeddings import write_embeddings

N_LANDMARKS, N_PHOTOGRAPHS, N_FOOD, DIM = 12, 10, 20, 8


def write_toy(folder: Path) -> Path:
    """Write manifests, embeddings and settings; returns the file of settings."""
    rng = np.random.default_rng(0)
    landmarks = np.repeat(np.arange(N_LANDMARKS), N_PHOTOGRAPHS)
    centres = rng.normal(size=(N_LANDMARKS, DIM))
    ids = [f"photo{row:03}" for row in range(len(landmarks))]
    _write_manifest(folder / "landmarks.csv", ids, [f"l{n}" for n in landmarks], [f"g{n % 3}" for n in landmarks])
    food = [f"food{row}" for row in range(N_FOOD)]
    _write_manifest(folder / "food.csv", food, [f"f{row % 4}" for row in range(N_FOOD)], ["food"] * N_FOOD)
    for name, noise in (("sharp", 0.1), ("blurred", 1.0)):
        vectors = centres[landmarks] + noise * rng.normal(size=(len(landmarks), DIM))
        write_embeddings(folder / f"{name}.parquet", torch.from_numpy(vectors).float(), ids)
        far = rng.normal(size=(N_FOOD, DIM)) - 3
        write_embeddings(folder / f"{name}_food.parquet", torch.from_numpy(far).float(), food)
    path = folder / "settings.yaml"
    path.write_text(yaml.safe_dump(toy_settings(folder), sort_keys=False))
    return path


def toy_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of the toy comparison."""
    return {
        "title": "Toy landmarks and food",
        "index": {"name": "open_set", "manifest": str(folder / "landmarks.csv"), "near_share": 0.3},
        "unknown": {"food": {"kind": "far", "manifest": str(folder / "food.csv")}},
        "embeddings": {
            name: {
                "title": name.title(),
                "files": {"index": str(folder / f"{name}.parquet"), "food": str(folder / f"{name}_food.parquet")},
                "baseline": name == "blurred",
            }
            for name in ("blurred", "sharp")
        },
        "scores": {"knn": {"title": "k-NN", "options": {"k": 1}}, "again": {"score": "knn", "options": {"k": 1}}},
        "splits": [0, 1],
        "n_resamples": 40,
        "mistakes": {"embedding": "blurred", "score": "knn", "n": 2},
    }


def _write_manifest(path: Path, ids: list[str], landmarks: list[str], groups: list[str]) -> None:
    paths = [f"{name}.jpg" for name in ids]
    columns = {"id": ids, "path": paths, "split": "all", "landmark": landmarks, "group": groups}
    pd.DataFrame(columns).to_csv(path, index=False)
