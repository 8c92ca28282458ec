"""Local features: matches counted as they are defined, and re-ranking by them."""

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.reranking import first_items, pair_scores
from hgld.evaluation.settings import RerankSettings
from hgld.search.local_features import LocalFeatures
from hgld.tables.embeddings import write_embeddings
from tests.commands import run_hgld

pytest.importorskip("cv2", reason="local features need the extra local-features")


def scene(seed: int, size: int = 200) -> Image.Image:
    """Overlapping rectangles of random greys, which have corners to match."""
    rng, pixels = np.random.default_rng(seed), np.full((size, size), 128, np.uint8)
    for _ in range(150):
        (top, left), (height, width) = rng.integers(0, size, 2), rng.integers(4, 40, 2)
        pixels[top : top + height, left : left + width] = rng.integers(0, 256)
    return Image.fromarray(pixels).convert("RGB")


def turned(image: Image.Image) -> Image.Image:
    """The scene from another side: turned by 20 degrees and smaller."""
    return image.rotate(20, Image.Resampling.BICUBIC).resize((150, 160))


def finder(**images: Image.Image) -> Callable[[str], Image.Image | None]:
    return images.get


@given(seed=st.integers(0, 2**32), n=st.integers(0, 12), n_others=st.integers(0, 12))
def test_matches_are_mutual_and_pass_the_ratio_test(seed: int, n: int, n_others: int) -> None:
    """Few different descriptors, so that many distances are equal: of two equal ones neither is a match."""
    rng = np.random.default_rng(seed)
    own, others = (rng.integers(0, 3, (count, 128)).astype(np.uint8) * 80 for count in (n, n_others))
    others[: n // 2] = own[:n_others][: n // 2]
    expected = []
    for row, a in enumerate(own.tolist()):
        by_distance = sorted((math.dist(a, b), column) for column, b in enumerate(others.tolist()))
        if len(by_distance) < 2 or by_distance[0][0] >= 0.8 * by_distance[1][0]:
            continue
        column = by_distance[0][1]
        if min(range(n), key=lambda i: math.dist(own[i], others[column])) == row:
            expected.append([row, column])
    assert LocalFeatures(finder())._matches(own, others).tolist() == expected


def test_views_of_a_scene_have_many_verified_matches_and_other_scenes_few() -> None:
    features = LocalFeatures(
        finder(q=scene(0), blank=Image.new("RGB", (64, 64))),
        finder(same=scene(0), turned=turned(scene(0)), other=scene(1), blank=Image.new("RGB", (64, 64))),
    )
    same, turned_view, other, blank = features.scores("q", ["same", "turned", "other", "blank"]).tolist()
    assert same > turned_view > 40 > other == 0
    assert blank == 0
    assert features.scores("blank", ["same", "blank"]).tolist() == [0, 0]
    assert features.scores("q", ["other", "turned"]).tolist() == [other, turned_view]
    with pytest.raises(InputError, match="gone: no photograph of this id"):
        features.scores("q", ["gone"])


@given(seed=st.integers(0, 2**32), n_candidates=st.integers(1, 12))
def test_first_items_are_ordered_by_pairs_and_others_stay_behind(seed: int, n_candidates: int) -> None:
    rng = np.random.default_rng(seed)
    queries, gallery = (torch.from_numpy(rng.normal(size=(n, 4))).float() for n in (3, 10))
    table = rng.integers(0, 3, (3, 10))

    class Table:
        def scores(self, query: Any, candidates: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return table[int(query[1:]), [int(item[1:]) for item in candidates]]

    pairs = pair_scores(Table(), np.array([f"q{i}" for i in range(3)]), np.array([f"g{i}" for i in range(10)]))
    settings = RerankSettings("local-features", rerank_candidates=n_candidates)
    config = RankingConfig(block_size=2, reranking=settings)
    _, found = first_items(queries, gallery, 10, config, settings, pairs=pairs)
    _, before = first_items(queries, gallery, 10, RankingConfig(), RerankSettings())
    for row, order in enumerate(before.tolist()):
        first = sorted(order[:n_candidates], key=lambda item: -table[row, item])
        assert found[row].tolist() == first + order[n_candidates:]
    with pytest.raises(ConfigurationError, match="`rerank` local-features compares photographs, which it finds by"):
        first_items(queries, gallery, 10, config, settings)


def test_commands(tmp_path: Path) -> None:
    """Embeddings that say nothing, of two views of each of three scenes: local features put the other view first."""
    names = [f"{number}{view}.png" for number in range(3) for view in "ab"]
    for name in names:
        view = scene(int(name[0])) if name[1] == "a" else turned(scene(int(name[0])))
        (tmp_path / "images").mkdir(exist_ok=True)
        view.save(tmp_path / "images" / name)
    vectors = torch.eye(6) + 1
    write_embeddings(tmp_path / "all.npy", vectors, names)
    (tmp_path / "labels.csv").write_text("\n".join(["id,scene", *(f"{name},{name[0]}" for name in names), ""]))

    files = ("--embeddings", tmp_path / "all.npy", "--labels", tmp_path / "labels.csv", "--metric", "R@1")
    evaluate = partial(run_hgld, "evaluate", *files, "--json", "--no-intervals")
    reranked = ("--rerank", "local-features", "--images", tmp_path / "images")
    (result,) = json.loads(evaluate(*reranked).stdout)["results"]
    assert result["means"]["R@1"] == 1
    assert result["settings"]["re-ranking"] == "local-features, the first 100"
    evaluate(*reranked, "--write-predictions", tmp_path / "p.csv")
    rows = [line.split(",") for line in (tmp_path / "p.csv").read_text().splitlines()[1:]]
    assert all(images.split()[0][0] == query[0] for query, images in rows)
    assert (
        "--rerank local-features compares photographs; name them as --images"
        in evaluate(*reranked[:2], code=1).stderr
    )
