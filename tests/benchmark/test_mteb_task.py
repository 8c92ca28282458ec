"""Tasks of MTEB from manifests, run by MTEB: its numbers are those of hgld."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from hgld import RetrievalResult, evaluate_retrieval, load_model
from hgld.benchmark import as_mteb_model, retrieval_task
from hgld.datasets.manifest import Manifest, read_manifest
from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy.label_matrix import LabelSets, take_images
from hgld.models import ImageEmbedder

#: MTEB alone takes seconds to import.
pytestmark = pytest.mark.slow

METRICS = ["H-AP", "NDCG", "NDCG@1", "NDCG@10"]
#: The judgements are levels, and MTEB takes them as gains.
GAIN = [0, 1, 2, 3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of 13 classes in 5 groups of 3 kinds; the last class has one picture, alone in its kind."""
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"label": [*range(12)] * 4 + [12]})
    table["path"] = [f"{number:02}.png" for number in table.index]
    table["split"] = ["query" if number in {*range(12), 48} else "index" for number in table.index]
    for level, size in (("class", 1), ("group", 3), ("kind", 6)):
        table[level] = [f"{level} {label // size}" for label in table["label"]]
    for name, label in zip(table["path"], table["label"], strict=True):
        colour = 40 * (label % 6), 60 * (label // 3), 100
        noise = rng.normal(colour, 60, (24, 30, 3)).clip(0, 255).astype(np.uint8)
        Image.fromarray(noise).save(folder / name)
    table.drop(columns="label").to_csv(folder / "manifest.csv", index=False)
    return folder


@pytest.fixture(scope="module", autouse=True)
def mteb() -> Iterator[Any]:
    """MTEB, which may not connect to anything."""
    mteb = pytest.importorskip("mteb")
    addresses: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("socket.socket.connect", lambda _, address: addresses.append(address))
        yield mteb
    assert not addresses


def run(mteb: Any, task: Any, model: ImageEmbedder) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Return the scores that MTEB reports, and its scores per query, which it does not round."""
    per_query: dict[str, dict[str, float]] = {}
    metrics = task.task_specific_scores

    def keep(scores: dict[str, dict[str, float]], *arguments: Any, **settings: Any) -> dict[str, float]:
        per_query.update(scores)
        own: dict[str, float] = metrics(scores, *arguments, **settings)
        return own

    task.task_specific_scores = keep
    result = mteb.evaluate(as_mteb_model(model), task, cache=None, show_progress_bar=False)
    ((reported,),) = result.task_results[0].scores.values()
    return reported, per_query


def evaluate(
    model: ImageEmbedder, folder: Path, images: Manifest, gallery_split: str | None = None, **settings: Any
) -> RetrievalResult:
    """Return what hgld measures, leave-one-out unless a split is the gallery of all others."""
    vectors = model.embed([folder / path for path in images.paths])
    in_gallery = images.splits == gallery_split
    rows, gallery = np.flatnonzero(~in_gallery), np.flatnonzero(in_gallery)
    if len(gallery):
        settings |= {"gallery_embeddings": vectors[gallery], "gallery_labels": images.labels[gallery]}
    return evaluate_retrieval(
        vectors[rows],
        take_images(images.labelling, rows),
        metrics=METRICS,
        query_ids=np.array(images.ids[rows].tolist()),
        **settings,
    )


@pytest.mark.parametrize("backbone", ["test_resnet", "test_vit2"])
@pytest.mark.parametrize(("split", "query_split", "depth"), [(None, None, 49), ("index", "query", 36)])
def test_numbers_are_those_of_hgld(
    mteb: Any, folder: Path, backbone: str, split: str | None, query_split: str | None, depth: int
) -> None:
    model = load_model(backbone, "none", size=32, resize=32)
    task = retrieval_task(folder / "manifest.csv", split=split, query_split=query_split)
    reported, per_query = run(mteb, task, model)
    images = read_manifest(folder / "manifest.csv", folder)
    linear, exponential = (evaluate(model, folder, images, split, gain=gain) for gain in (GAIN, None))
    assert reported["H-AP"] == pytest.approx(exponential.means["H-AP"], abs=1e-9)
    assert reported["NDCG"] == pytest.approx(exponential.means["NDCG"], abs=1e-9)
    assert reported["main_score"] == pytest.approx(linear.means["NDCG@10"], abs=6e-6)  # rounded by MTEB
    for name, ours in (("ndcg_cut_1", "NDCG@1"), ("ndcg_cut_10", "NDCG@10"), (f"ndcg_cut_{depth}", "NDCG")):
        expected = linear.per_query[ours].dropna().to_dict()
        assert {query: scores[name] for query, scores in per_query.items()} == pytest.approx(expected, abs=1e-9)
    assert len(per_query) == len(linear.per_query) - 1  # a query has no positives
    assert 0.1 < reported["H-AP"] < 0.95


def test_images_with_several_labels_share_the_levels_of_their_best_pair(
    mteb: Any, folder: Path, tmp_path: Path
) -> None:
    table = pd.read_csv(folder / "manifest.csv")[["path", "split"]]
    pairs = [(number % 12, (number + 4) % 12) for number in table.index]
    table["class"] = [[f"class {label}" for label in pair] for pair in pairs]
    table["group"] = [[f"group {label // 3}" for label in pair] for pair in pairs]
    table.to_parquet(tmp_path / "several.parquet")
    images = read_manifest(tmp_path / "several.parquet", folder)
    assert isinstance(images.labelling, LabelSets)
    model = load_model("test_resnet", "none", size=32, resize=32)
    reported, _ = run(mteb, retrieval_task(tmp_path / "several.parquet", folder), model)
    expected = evaluate(model, folder, images, several_labels="best").means
    assert {name: reported[name] for name in ("H-AP", "NDCG")} == pytest.approx(
        {name: expected[name] for name in ("H-AP", "NDCG")}, abs=1e-9
    )


def test_what_is_wrong_is_named(mteb: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = folder / "manifest.csv"
    with pytest.raises(
        ConfigurationError, match="49 queries and 49 images of the gallery are 2,401 pairs, more than 9"
    ):
        retrieval_task(manifest, max_pairs=9)
    with pytest.raises(ConfigurationError, match='no split "test"'):
        retrieval_task(manifest, split="test")
    model = load_model("test_resnet", "none", size=32, resize=32)
    with pytest.raises(InputError, match=r"the image 00\.png is missing"):
        run(mteb, retrieval_task(manifest, tmp_path), model)
    with pytest.raises(InputError, match=r"00\.png: the model ranks 1 of 48 images"):
        retrieval_task(manifest).task_specific_scores({}, {"00.png": {}}, {"00.png": {"01.png": 0.5}})
    monkeypatch.setitem(sys.modules, "mteb", None)
    with pytest.raises(ConfigurationError, match="mteb is not installed"):
        retrieval_task(manifest)
    with pytest.raises(ConfigurationError, match="mteb is not installed"):
        as_mteb_model(model)
