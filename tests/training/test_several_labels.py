"""Training with several labels per image: trademarks from the command line, samplers, resuming, refusals."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hgld.datasets.manifest import read_manifest
from hgld.datasets.samplers import (
    BatchSampler,
    ClassBalancedSampler,
    HierarchicalSampler,
    LabelSetSampler,
    log_small_classes,
)
from hgld.hierarchy import LabelMatrix, LabelSets
from tests.commands import run_hgld
from tests.datasets.logos import save_logos, write_logo_table

SETTINGS: dict[str, Any] = {
    "model": {"backbone": "test_resnet", "pretrained": False, "pooling": "average", "dim": 8},
    "image": {"size": 32, "resize": 32},
    "loss": {"name": "happier"},
    "optimiser": {"backbone": {"lr": 0.01}, "head": {"lr": 0.01}, "proxies": {"lr": 0.1}},
    "sampler": {"name": "class_balanced", "per_class": 2},
    "evaluation": {"metrics": ["H-AP", "R@1", "AP_l1"]},
    "epochs": 2,
    "batch_size": 8,
    "workers": 0,
}


@pytest.fixture(scope="module")
def logos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with 48 logos, the table of their codes, its manifest and the settings of a training."""
    folder = tmp_path_factory.mktemp("logos")
    write_logo_table(folder / "logos.csv", save_logos(folder / "images", 48))
    run_hgld(
        *("manifest", "table", folder / "logos.csv", "--images", folder / "images", "--test-share", "0.4"),
        *("--code", "vienna", "--levels", "section,division,category", "--label-separator", ";"),
        *("-o", folder / "m.parquet"),
    )
    data = {"manifest": str(folder / "m.parquet"), "root": str(folder / "images"), "test": "test"}
    (folder / "settings.yaml").write_text(yaml.safe_dump({**SETTINGS, "data": data}))
    return folder


@pytest.mark.slow
def test_trademarks_from_table_to_metrics(logos: Path, tmp_path: Path) -> None:
    trained_run = run_hgld("train", logos / "settings.yaml", "-o", tmp_path / "run", "--set", "memory.start_epoch=2")
    assert "H-AP" in trained_run.stdout
    trained = json.loads((tmp_path / "run" / "history.jsonl").read_text().splitlines()[-1])
    embeddings = tmp_path / "e.parquet"
    run_hgld(
        *(
            "embed-images",
            "--model",
            tmp_path / "run",
            "--manifest",
            logos / "m.parquet",
            "--images",
            logos / "images",
        ),
        *("--split", "test", "-o", embeddings, "--workers", "0"),
    )
    page = tmp_path / "worst.html"
    evaluated = run_hgld(
        *("evaluate", "--embeddings", embeddings, "--manifest", logos / "m.parquet", "--json"),
        *("--worst", "3", "--page", page, "--images", logos / "images"),
    )
    (result,) = json.loads(evaluated.stdout)["results"]
    steps = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    assert all(np.isfinite(row["loss"]) for row in steps if row["kind"] == "step")
    assert {"batch.rank", "memory"} & {part for row in steps for part in row.get("parts", {})}
    assert trained["kind"] == "test"
    assert result["means"]["H-AP"] == pytest.approx(trained["H-AP"], abs=1e-5)
    assert result["means"]["AP_l1"] == pytest.approx(trained["AP_l1"], abs=1e-5)
    assert page.read_text().count("<img ") >= 3


@pytest.mark.slow
def test_the_same_settings_draw_the_same_labels(logos: Path, tmp_path: Path) -> None:
    """They are a function of the seed and the epoch, whatever the number of epochs."""
    whole, half = tmp_path / "whole", tmp_path / "half"
    run_hgld("train", logos / "settings.yaml", "-o", whole, "--set", "loss.name=sup_ap")
    run_hgld("train", logos / "settings.yaml", "-o", half, "--set", "loss.name=sup_ap", "--set", "epochs=1")
    first = [
        [row["loss"] for row in map(json.loads, (folder / "history.jsonl").read_text().splitlines()) if "loss" in row]
        for folder in (whole, half)
    ]
    assert first[0][: len(first[1])] == first[1]
    assert len(first[0]) > len(first[1]) > 1


@pytest.mark.slow
def test_settings_train_with_algorithm_1(logos: Path, tmp_path: Path) -> None:
    """HAPPIER of Table 4.6 of the thesis: H-AP with the relevance of Algorithm 1, and proxies of the labels."""
    settings = yaml.safe_load((logos / "settings.yaml").read_text())
    first = []
    for relevance in ("algorithm1", "hierarchical"):
        file, out = tmp_path / f"{relevance}.yaml", tmp_path / relevance
        loss = {"name": "happier", "lambda": 0.1, "relevance": relevance}
        file.write_text(yaml.safe_dump({**settings, "loss": loss, "epochs": 1}))
        run_hgld("train", file, "-o", out)
        rows = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
        first.append(next(row["parts"] for row in rows if row["kind"] == "step"))
        assert all(np.isfinite(row["loss"]) for row in rows if row["kind"] == "step")
    assert first[0]["decomposability"] == first[1]["decomposability"]  # the same batch
    assert first[0]["sup_hap"] != first[1]["sup_hap"]


@pytest.mark.parametrize("loss", ["arcface", "triplet", "csl"])
def test_losses_of_single_labels_are_refused_before_any_work(loss: str, logos: Path, tmp_path: Path) -> None:
    options = ("-o", tmp_path / "run", "--set", f"loss.name={loss}")
    output = run_hgld("train", logos / "settings.yaml", *options, code=1).output
    assert "is for images with one label each, and these may have several; choose a rank loss" in output
    assert len(output.strip().splitlines()) == 1
    assert not (tmp_path / "run" / "history.jsonl").exists()


def test_random_splits_by_class_are_refused(logos: Path, tmp_path: Path) -> None:
    settings = yaml.safe_load((logos / "settings.yaml").read_text())
    settings["data"] |= {"random_split": {"seed": 0}}
    (tmp_path / "settings.yaml").write_text(yaml.safe_dump(settings))
    output = run_hgld("train", tmp_path / "settings.yaml", "-o", tmp_path / "run", code=1).output
    assert "data.random_split divides the classes of section, but images of" in output


@given(st.integers(0, 99))
def test_batches_have_images_that_share_a_class(seed: int) -> None:
    rng = np.random.default_rng(seed)
    leaves = np.array([[leaf, leaf // 3] for leaf in range(6)])
    sets = LabelSets.from_lists([leaves[rng.choice(6, rng.integers(1, 4), replace=False)] for _ in range(60)])

    def balanced(labels: LabelMatrix) -> BatchSampler:
        return ClassBalancedSampler(labels, 8, 2, seed=seed)

    def hierarchical(labels: LabelMatrix) -> BatchSampler:
        return HierarchicalSampler(labels, 8, 2, 2, 3, seed=seed)

    for make in (balanced, hierarchical):
        sampler = LabelSetSampler(sets, make, seed=seed)
        epochs = [sampler.batches(epoch) for epoch in (0, 1, 0)]
        assert [len(batches) for batches in epochs[:2]] == [sampler.n_batches(0), sampler.n_batches(1)]
        assert all(np.array_equal(a, b) for a, b in zip(epochs[0], epochs[2], strict=True))
        assert not all(np.array_equal(a, b) for a, b in zip(epochs[0], epochs[1], strict=False))
        for batch in epochs[0]:
            members = [set(sets.members.row(row).tolist()) for row in batch.tolist()]
            assert all(any(own & other for n, other in enumerate(members) if n != m) for m, own in enumerate(members))


def test_small_classes_are_logged_by_images_and_not_in_every_epoch(caplog: pytest.LogCaptureFixture) -> None:
    """Class 0 has three images, one of which has it below two parents; class 1 has four, and class 2 one."""
    sets = LabelSets.from_lists([[[0, 0], [0, 1]], *[[[0, 0], [1, 0]]] * 2, *[[[1, 0]]] * 2, [[2, 0]]])
    with caplog.at_level("INFO"):
        sampler = LabelSetSampler(sets, lambda labels: ClassBalancedSampler(labels, 1, 1, seed=0), seed=0)
        assert sampler.n_batches(1) == 6
        assert not caplog.messages
        log_small_classes(sets, 4, "exclude")
        log_small_classes(sets.first(), 2, "repeat")
    assert caplog.messages == [
        "2 of 3 classes have fewer than 4 images: excluded",
        "1 of 3 classes have fewer than 2 images: their images are repeated within batches",
    ]


def test_manifest_of_the_logos(logos: Path) -> None:
    manifest = read_manifest(logos / "m.parquet")
    assert manifest.level_names == ("section", "division", "category")
    assert manifest.n_classes == (8, 5, 3)
    assert manifest.split_names == ("test", "train")
