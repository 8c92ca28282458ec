"""The page of ``hgld evaluate --worst``: names from the hierarchy, photographs from a folder, links from a table."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from hgld.errors import ConfigurationError
from hgld.evaluation import Evaluation, RankingConfig, evaluate_retrieval
from hgld.evaluation.retrieval_task import RetrievalTask, leave_one_out_task
from hgld.gldv2.image_index import index_images
from hgld.hierarchy import Hierarchy
from hgld.inspection.query_pages import write_evaluation_page
from tests.datasets.pictures import picture
from tests.gldv2.test_image_index import write_tar

IDS = ["a0", "a1", "b0", "b1", "c0", "c1"]


@pytest.fixture
def evaluation() -> Evaluation:
    """Return a leave-one-out evaluation of two images each of two lakes and a church."""
    hierarchy = Hierarchy.from_pandas(
        pd.DataFrame(
            {
                "split": "train",
                "landmark_id": [1, 2, 3],
                "hierarchical_label": ["lakes", "lakes", "churches"],
                "natural_or_human_made": ["natural", "natural", "human-made"],
            }
        )
    )
    labels = hierarchy.labels_of([1, 1, 2, 2, 3, 3])
    vectors = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    task = leave_one_out_task(torch.from_numpy(vectors), labels, ids=np.array(IDS), level_names=hierarchy.level_names)
    return Evaluation((evaluate_retrieval(vectors, labels),), (task,), hierarchy=hierarchy)


def with_ids(task: RetrievalTask, ids: list[str]) -> RetrievalTask:
    return replace(task, query_ids=np.array(ids), gallery_ids=np.array(ids))


def write_page(evaluation: Evaluation, folder: Path, images: Path | None, sources: Path | None) -> str:
    out = folder / "worst.html"
    write_evaluation_page(evaluation, out, 2, images=images, sources=sources, config=RankingConfig())
    return out.read_text(encoding="utf-8")


def test_page_shows_names_photographs_and_links(evaluation: Evaluation, tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    for image_id in IDS:
        Image.new("RGB", (20, 10), "teal").save(images / f"{image_id}.jpg")
    sources = tmp_path / "train.csv"
    urls = [f"https://example.org/{image_id}.jpg" for image_id in IDS]
    pd.DataFrame({"id": IDS, "url": urls, "landmark_id": [1, 1, 2, 2, 3, 3]}).to_csv(sources, index=False)
    html = write_page(evaluation, tmp_path, images, sources)
    assert "The 2 queries with the lowest H-AP" in html
    assert html.count("<img ") == 2 * (1 + 5)
    assert all(f'href="{url}"' in html for url in urls)
    assert "landmark 3" in html
    assert "churches" in html


def test_photographs_of_the_page_may_be_in_tar_files_or_named_by_a_manifest(
    evaluation: Evaluation, tmp_path: Path
) -> None:
    tar = write_tar(tmp_path / "tars" / "0.tar", {f"{image_id}.jpg": picture(image_id) for image_id in IDS})
    index_images(tar.parent, tar.parent / "images.parquet")
    plain = tar.parent / "plain.csv"
    rows = [f"{image_id}.jpg,{image_id},test,{image_id}" for image_id in IDS]
    plain.write_text("\n".join(["path,id,split,landmark", *rows]))
    by_path = replace(evaluation, tasks=(with_ids(evaluation.tasks[0], [f"{image_id}.jpg" for image_id in IDS]),))
    places = {tar.parent: by_path, tar: by_path, tar.parent / "images.parquet": evaluation, plain: evaluation}
    for images, shown in places.items():
        assert write_page(shown, tmp_path, images, None).count("<img ") == 2 * (1 + 5), images


def test_page_without_images_and_sources_shows_ids(evaluation: Evaluation, tmp_path: Path) -> None:
    html = write_page(evaluation, tmp_path, None, None)
    assert "6 of 6 photographs are not available" in html
    assert "<a " not in html
    assert all(f">{image_id}</span>" in html for image_id in IDS)


def test_evaluation_without_labels_has_no_page(evaluation: Evaluation, tmp_path: Path) -> None:
    without_labels = replace(evaluation, tasks=(replace(evaluation.tasks[0], query_labels=None),))
    with pytest.raises(ConfigurationError, match="does not rank by labels of several levels"):
        write_page(without_labels, tmp_path, None, None)
