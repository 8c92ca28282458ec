"""The measures of ROxford and RParis, and the published protocol from photographs to numbers."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import hgld
from hgld.evaluation.metrics import revisited_average_precision, revisited_precision_at
from tests.commands import run_hgld


def published(ranking: list[int], positives: set[int], junk: set[int], k: int) -> tuple[float, float]:
    """The measures by walking down the ranked list, in the published protocol's terms."""
    recall = area = 0.0
    precision, n_found, n_seen = 1.0, 0, 0
    hits = []
    for item in ranking:
        if item in junk:
            continue
        n_seen += 1
        if item in positives:
            n_found += 1
            hits.append(n_seen)
            area += (n_found / len(positives) - recall) * (precision + n_found / n_seen) / 2
            recall = n_found / len(positives)
        precision = n_found / n_seen
    reach = min(hits[-1], k)
    return area, sum(hit <= reach for hit in hits) / reach


@given(st.data())
def test_metrics_agree_with_the_published_algorithm(data: st.DataObject) -> None:
    ranking = data.draw(st.permutations(range(data.draw(st.integers(1, 30)))))
    positives = data.draw(st.sets(st.sampled_from(ranking), min_size=1))
    others = [item for item in ranking if item not in positives]
    junk = data.draw(st.sets(st.sampled_from(others))) if others else set()
    k = data.draw(st.integers(1, 12))
    is_junk = np.isin(ranking, list(junk))
    at = np.flatnonzero(np.isin(ranking, list(positives)))
    ranks = at - np.cumsum(is_junk)[at]
    area, precision = published(ranking, positives, junk, k)
    assert revisited_average_precision(ranks) == pytest.approx(area, abs=1e-12)
    assert revisited_precision_at(ranks, k) == pytest.approx(precision, abs=1e-12)
    plain = np.mean((np.arange(len(ranks)) + 1) / (ranks + 1))
    assert 0 < area <= plain + 1e-12


def test_metrics_without_positives_are_nan() -> None:
    nothing = np.empty(0, np.int64)
    assert np.isnan([revisited_average_precision(nothing), revisited_precision_at(nothing, 5)]).all()


N_GALLERY, N_QUERIES, N_DISTRACTORS = 12, 3, 4


@pytest.fixture
def roxford(tmp_path: Path) -> Path:
    """Photographs of several shapes with their ground truth, and distractors beside them."""
    rng = np.random.default_rng(5)
    names = [f"all_souls_{n:06}" for n in range(N_GALLERY + N_QUERIES)]
    for n, name in enumerate([*(f"roxford/jpg/{name}" for name in names), *(f"r1m/{n}" for n in range(4))]):
        shape = [(60, 80), (80, 60), (40, 44), (90, 120)][n % 4]
        coarse = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)
        path = tmp_path / f"{name}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(coarse).resize(shape[::-1], Image.Resampling.BICUBIC).save(path, quality=95)
    kinds = [rng.permutation(N_GALLERY)[:8].reshape(4, 2) for _ in range(N_QUERIES)]
    gnd = [
        {"easy": easy, "hard": hard, "junk": junk, "bbx": [3.4, 5.0, 33.6 + n, 38.2]}
        for n, (easy, hard, junk, _) in enumerate(kinds)
    ]
    truth = {"imlist": names[:N_GALLERY], "qimlist": names[N_GALLERY:], "gnd": gnd}
    (tmp_path / "roxford" / "gnd_roxford5k.pkl").write_bytes(pickle.dumps(truth, 2))
    return tmp_path


def test_commands_give_the_numbers_of_the_published_protocol(roxford: Path) -> None:
    """The oracle is the published code in plain steps: crop, thumbnail, three scales, one picture at a time."""
    folder, scales = roxford / "roxford", (1, 2**0.5, 2**-0.5)
    run_hgld("manifest", "revisited", folder, "-o", roxford / "m.parquet")
    options = ["--model=test_resnet", "--pretrained=none", "--workers=0", f"--scales={','.join(map(str, scales))}"]
    options += ["--fit=longest", "--size=64", "--interpolation=lanczos"]
    for split in ("query", "gallery"):
        sources = ["--manifest", roxford / "m.parquet", "--images", folder, "--split", split]
        run_hgld("embed-images", *sources, *options, "-o", roxford / f"{split}.npy")
    run_hgld("embed-images", "--images", roxford / "r1m", *options, "-o", roxford / "r1m.npy")
    files = ["--query-embeddings", roxford / "query.npy", "--gallery-embeddings", roxford / "gallery.npy"]
    files += ["--ground-truth", folder / "gnd_roxford5k.pkl", "--protocol", "roxford", "--json", "--no-intervals"]
    alone = means_of(*files)
    with_distractors = means_of(*files, "--distractor-embeddings", roxford / "r1m.npy")

    model = hgld.load_model("test_resnet", "none", fit="longest", size=64, interpolation="lanczos")
    truth = pickle.loads((folder / "gnd_roxford5k.pkl").read_bytes())

    def embed(path: Path, box: list[float] | None = None) -> torch.Tensor:
        image = Image.open(path).convert("RGB")
        full_size = max(image.size)
        if box is not None:
            image = image.crop(box)  # type: ignore[arg-type]
        side = 64 * max(image.size) / full_size
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255
        settings = model.image_settings
        mean, std = (torch.tensor(values)[:, None, None] for values in (settings.mean, settings.std))
        pixels, total = (pixels - mean) / std, torch.zeros(model.dim)
        with torch.no_grad():
            for scale in scales:
                scaled = pixels[None]
                if scale != 1:
                    scaled = torch.nn.functional.interpolate(
                        scaled, scale_factor=scale, mode="bilinear", align_corners=False
                    )
                total += model.network(scaled)[0]
        return torch.nn.functional.normalize(total, dim=0)

    gallery = torch.stack([embed(folder / "jpg" / f"{name}.jpg") for name in truth["imlist"]])
    distractors = torch.stack([embed(roxford / "r1m" / f"{n}.jpg") for n in range(N_DISTRACTORS)])
    queries = [
        embed(folder / "jpg" / f"{name}.jpg", entry["bbx"])
        for name, entry in zip(truth["qimlist"], truth["gnd"], strict=True)
    ]
    for vectors, means in ((gallery, alone), (torch.cat([gallery, distractors]), with_distractors)):
        for setting, positive_kinds, junk_kinds in (
            ("medium", ("easy", "hard"), ("junk",)),
            ("hard", ("hard",), ("junk", "easy")),
        ):
            values = []
            for query, entry in zip(queries, truth["gnd"], strict=True):
                ranking = (-vectors @ query).argsort().tolist()
                positives, junk = (
                    set(np.concatenate([entry[kind] for kind in kinds]).tolist())
                    for kinds in (positive_kinds, junk_kinds)
                )
                values.append(published(ranking, positives, junk, 10)[0])
            assert means[setting] == pytest.approx(np.mean(values), abs=1e-9)
    assert with_distractors != alone


def means_of(*arguments: object) -> dict[str, float]:
    results = json.loads(run_hgld("evaluate", *arguments).stdout)["results"]
    return {result["name"]: result["means"]["mAP"] for result in results}
