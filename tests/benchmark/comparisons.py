"""A fast comparison of two methods: heads on features that are noise around landmarks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from hgld.benchmark import runs
from hgld.benchmark.runs import BenchmarkSettings, EvaluatedRun, Run, read_evaluated
from hgld.datasets.manifest import write_manifest
from hgld.tables import Provenance
from hgld.tables.embeddings import write_embeddings
from tests.assertions import not_none
from tests.datasets.pictures import manifest_of
from tests.training import toy

N_STEPS = 4
METRICS = ["H-AP", "R@1", "mAP@10"]
TRAINING: dict[str, Any] = {
    "model": {"backbone": "features", "n_features": 6, "l2_norm": True, "dim": 4},
    "loss": {"name": "happier"},
    "optimiser": {"head": {"lr": 0.01}},
    "sampler": {"name": "class_balanced", "per_class": 2},
    "evaluation": {"metrics": METRICS, "every": 100},
    "steps": N_STEPS,
    "batch_size": 8,
    "workers": 0,
}
LAMBDA = {
    "title": "The weight of the decomposability loss",
    "key": "loss.lambda",
    "label": "lambda",
    "values": [0.1, 0.5],
    "curves": {"HAPPIER": {"method": "happier"}},
}


def untrained(folder: Path) -> dict[str, Any]:
    """Write images, and return the settings of a training on them that takes no step."""
    return {
        "model": {"backbone": "test_resnet", "pretrained": False},
        "image": {"size": 32, "resize": 32},
        "data": {"manifest": str(toy.write_images(folder)), "test": "test"},
        "loss": {"name": "happier"},
        "sampler": {"name": "class_balanced", "per_class": 2},
        "steps": 0,
        "batch_size": 8,
        "workers": 0,
    }


def write_data(folder: Path, n_classes: int = 8, per_class: int = 4, *, landmark: str = "l{}") -> None:
    """Write ``manifest.parquet`` and ``features.npy``; the first half of the landmarks is the test split."""
    names = [(c, n) for c in range(n_classes) for n in range(per_class)]
    ids = [f"{c}/{n}" for c, n in names]
    levels = {"landmark": [landmark.format(c) for c, _ in names], "root": [f"r{c % 2}" for c, _ in names]}
    splits = ["test" if c < n_classes / 2 else "train" for c, _ in names]
    write_manifest(folder / "manifest.parquet", manifest_of(ids, levels, split=splits), Provenance("test"))
    random = np.random.default_rng(0)
    centres = random.normal(size=(n_classes, 6))
    features = centres[[c for c, _ in names]] + random.normal(size=(len(names), 6))
    write_embeddings(folder / "features.npy", torch.from_numpy(features).float(), ids)


def train_and_evaluate(settings: BenchmarkSettings, run: Run) -> EvaluatedRun:
    runs.train_and_evaluate(settings, run)
    return not_none(read_evaluated(settings, run))


def write_comparison(
    folder: Path,
    *,
    seeds: tuple[int, ...] = (0,),
    splits: tuple[int, ...] = (),
    pictures: bool = True,
    **trainings: Mapping[str, Any],
) -> Path:
    """Write the settings of a comparison of HAPPIER with ROADMAP, with changes to their trainings."""
    data = {"manifest": str(folder / "manifest.parquet"), "features": str(folder / "features.npy"), "test": "test"}
    for name in ("happier", "roadmap"):
        training = TRAINING | {"data": data, "loss": {"name": name}} | dict(trainings.get(name, {}))
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(training))
    comparison = {
        "title": "Noise",
        "methods": {
            "roadmap": {"title": "ROADMAP", "training": "roadmap.yaml", "baseline": True},
            "happier": {"title": "HAPPIER", "training": "happier.yaml"},
        },
        "seeds": list(seeds),
        "splits": list(splits),
        "metrics": METRICS,
        "columns": METRICS,
        "pictures": {"baseline": "roadmap", "method": "happier", "n_queries": 2} if pictures else None,
        "sweeps": {"lambda": LAMBDA},
    }
    path = folder / "comparison.yaml"
    path.write_text(yaml.safe_dump(comparison, sort_keys=False))
    return path
