"""Image retrieval with graded judgements as a task of MTEB, and models of hgld as encoders of MTEB.

A judgement is the number of levels that a query and an image share: 0 to 3 in H-GLDv2. If they have several labels,
the two that share most levels count, as with ``several_labels="best"`` in :func:`hgld.evaluate_retrieval`.

MTEB takes ``ndcg_at_k`` from these numbers as they are. It is hgld's ``NDCG@k`` with the gain ``[0, 1, ..., L]``, not
with 2^l - 1. The task adds ``H-AP`` and ``NDCG`` (with 2^l - 1), which hgld's functions compute from MTEB's rankings.
These hold the whole gallery, so both are exact. Items with equal scores are in MTEB's order, by id; hgld puts the
one of lower level first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from hgld.datasets.manifest import Manifest, read_manifest
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.metrics import h_ap, hierarchical_relevance, ndcg
from hgld.evaluation.ranking_statistics import ranking_statistics
from hgld.evaluation.retrieval_task import label_judgements
from hgld.hierarchy.label_matrix import take_images
from hgld.inspection.photos import FindImage, images_of_manifest
from hgld.io.files import sha256_of
from hgld.io.images import upright_rgb
from hgld.models.embedding_files import weights_digest
from hgld.models.image_embedder import ImageEmbedder
from hgld.resources import import_extra

#: Judgements or scores by the id of the query and that of the image.
_Numbers = Mapping[str, Mapping[str, float]]


def retrieval_task(
    manifest: str | Path,
    root: str | Path | None = None,
    *,
    split: str | None = None,
    query_split: str | None = None,
    name: str = "HierarchicalImageRetrieval",
    max_pairs: int = 10_000_000,
) -> Any:
    """Return a task of MTEB that ranks the images of a manifest; nothing is downloaded.

    Run it with ``mteb.evaluate(as_mteb_model(model), task)``. MTEB embeds queries and gallery apart, and thus each
    image twice where every image is a query. JPEG files are decoded in full, while ``hgld embed-images`` decodes
    those of at least twice the wanted size at a fraction of it: embeddings of large photographs differ slightly.

    Args:
        manifest: Table of ``hgld manifest``.
        root: Folder that its paths are relative to. Default: that of the manifest.
        split: Split of the gallery. Default: all images.
        query_split: Split of the queries. Default: every image of the gallery is ranked against all others.
        name: Name of the task.
        max_pairs: Largest number of pairs of a query and a gallery image. MTEB holds all rankings in dictionaries,
            about 250 bytes of memory per pair.

    Raises:
        InputError: The manifest cannot be read; or, when the task is run, an image cannot be read.
        ConfigurationError: mteb is not installed, the manifest lacks a split, or there are too many pairs.
    """
    mteb, path = import_extra("mteb"), Path(manifest)
    folder = path.parent if root is None else Path(root)
    images = read_manifest(path, folder)
    gallery = images.rows_of(split)
    queries = gallery if query_split is None else images.rows_of(query_split)
    if (n_pairs := len(queries) * len(gallery)) > max_pairs:
        raise ConfigurationError(
            f"{path}: {len(queries):,} queries and {len(gallery):,} images of the gallery are {n_pairs:,} pairs, "
            f"more than {max_pairs:,}; take smaller splits, or raise `max_pairs` if there is memory for so many"
        )
    # MTEB keeps results by name, revision and split of the task.
    mteb_split = split or "all" if query_split is None else f"{query_split}-{split or 'all'}"
    n_levels, n_gallery = len(images.level_names), len(gallery)
    n_ranked = n_gallery - bool(np.isin(queries, gallery).any())

    class HierarchicalImageRetrieval(mteb.abstasks.AbsTaskRetrieval):  # type: ignore[misc, name-defined]
        metadata = mteb.TaskMetadata(
            name=name,
            description=f"Rank images by the levels that they share with the query: {', '.join(images.level_names)}.",
            dataset={"path": path.stem, "revision": sha256_of(path)[:12]},
            type="Any2AnyRetrieval",
            category="i2i",
            modalities=["image"],
            eval_splits=[mteb_split],
            eval_langs=["zxx-Zxxx"],
            main_score="ndcg_at_10",
        )
        ignore_identical_ids = True
        # MTEB ranks as many items as the largest k: the whole gallery.
        k_values = tuple(sorted({*mteb.abstasks.AbsTaskRetrieval.k_values, n_gallery}))

        def task_specific_scores(self, scores: Any, qrels: _Numbers, results: _Numbers, **_: Any) -> dict[str, float]:
            return _graded_scores(qrels, results, n_levels, n_ranked)

    task, find = HierarchicalImageRetrieval(), images_of_manifest(images, folder)
    task.dataset = {
        "default": {
            mteb_split: {
                "queries": _dataset(images.ids[queries].tolist(), find, folder),
                "corpus": _dataset(images.ids[gallery].tolist(), find, folder),
                "relevant_docs": _judgements(images, queries, gallery),
                "top_ranked": None,
            }
        }
    }
    task.data_loaded = True
    return task


def as_mteb_model(model: ImageEmbedder) -> Any:
    """Return a model of :func:`hgld.load_model` as an encoder of MTEB, for any of its tasks on images alone.

    Raises:
        ConfigurationError: mteb is not installed.
    """
    mteb = import_extra("mteb")
    network = model.network

    class HgldEncoder(mteb.models.abs_encoder.AbsEncoder):  # type: ignore[misc, name-defined]
        mteb_model_meta = mteb.models.ModelMeta.create_empty(
            {
                "name": f"hgld/{re.sub(r'[^a-zA-Z0-9.]+', '-', model.settings.backbone)}",
                "revision": weights_digest(network)[:12],
                "n_parameters": sum(parameter.numel() for parameter in network.parameters()) or None,
                "embed_dim": model.dim,
                "similarity_fn_name": mteb.models.model_meta.ScoringFunction.COSINE,
                "modalities": ["image"],
                "experiment_kwargs": {"images": model.image_settings.describe()},
            }
        )

        def encode(self, inputs: Any, **_: Any) -> NDArray[np.float32]:
            return np.concatenate([model.embed(batch["image"], batch_size=len(batch["image"])) for batch in inputs])

    return HgldEncoder()


def _graded_scores(judgements: _Numbers, scores: _Numbers, n_levels: int, n_ranked: int) -> dict[str, float]:
    """Return H-AP and NDCG of MTEB's rankings, which hold ``n_ranked`` images for each query."""
    levels = torch.zeros(len(scores), n_ranked, dtype=torch.uint8)
    for row, (query, similarity) in enumerate(scores.items()):
        if len(similarity) < n_ranked:
            raise InputError(
                f"{query}: the model ranks {len(similarity):,} of {n_ranked:,} images; H-AP and NDCG need all"
            )
        ranked = sorted(similarity.items(), key=lambda item: (item[1], item[0]), reverse=True)
        levels[row] = torch.tensor([judgements[query].get(image, 0) for image, _ in ranked])
    statistics = ranking_statistics(levels, n_levels)
    values = {"H-AP": h_ap(statistics, hierarchical_relevance), "NDCG": ndcg(statistics)}
    return {metric: float(value.nanmean()) for metric, value in values.items()}


def _dataset(ids: list[str], find: FindImage, root: Path) -> Any:
    """Return images as a dataset of the package datasets, which reads them when they are asked for."""

    def read(image_id: str) -> Image.Image:
        image = find(image_id)
        if image is None:
            raise InputError(f"{root}: the image {image_id} is missing or damaged; leave it out of the manifest")
        return upright_rgb(image)

    def transform(batch: dict[str, list[str]]) -> dict[str, list[Any]]:
        return {name: [*map(read, values)] if name == "image" else values for name, values in batch.items()}

    return import_module("datasets").Dataset.from_dict({"id": ids, "image": ids}).with_transform(transform)


def _judgements(
    images: Manifest, queries: NDArray[np.int64], gallery: NDArray[np.int64]
) -> dict[str, dict[str, int]]:
    """Return the levels above 0 by the id of the query and that of the image."""
    labels = (take_images(images.labelling, rows) for rows in (queries, gallery))
    judgements = label_judgements(*labels)["judgements"]
    ids, result = np.asarray(images.ids[gallery]), {}
    for row, query in enumerate(images.ids[queries].tolist()):
        levels = judgements.levels(slice(row, row + 1), slice(0, len(ids)))[0].numpy()
        relevant = (levels > 0) & (ids != query)
        result[query] = dict(zip(ids[relevant].tolist(), levels[relevant].tolist(), strict=True))
    return result
