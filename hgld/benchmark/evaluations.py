"""Evaluations of trained models that a comparison can ask for, with their settings.

Embeddings of the images of a run are in its folder ``evaluation``, see :mod:`hgld.benchmark.runs`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import pandas as pd
from pydantic import AfterValidator, Field, NonNegativeInt, PositiveFloat

from hgld.arrays import Floats, Objects
from hgld.compute.parts import Part
from hgld.compute.processes import Processes
from hgld.datasets.manifest import write_manifest
from hgld.datasets.readers.base import build_manifest
from hgld.datasets.readers.dyml import DymlLevel, label_files, read_test_set
from hgld.evaluation import EvaluationConfig, EvaluationFiles, RankingConfig, evaluate_files
from hgld.evaluation.gldv2_retrieval import LANDMARKS, SOLUTION
from hgld.evaluation.results import RetrievalResult
from hgld.gldv2.retrieval_ground_truth import (
    query_landmarks,
    read_image_to_landmark,
    read_retrieval_solution,
)
from hgld.hierarchy.label_sets import main_labels
from hgld.io.settings import Settings
from hgld.models.embedding_model import MEMORY_FORMAT, EmbeddingModel
from hgld.models.image_embedder import ImageEmbedder
from hgld.models.image_embedding import embed_images, embed_part
from hgld.models.model_loading import load_checkpoint_model
from hgld.models.settings import EmbedImagesConfig
from hgld.tables import Provenance, input_digests
from hgld.tables.embeddings import write_embeddings
from hgld.training.run_folder import RunFolder
from hgld.training.training_images import (
    TrainingImages,
    evaluation_manifest,
    read_training_manifest,
)
from hgld.training.training_settings import DataSettings, TrainingSettings
from hgld.training.validation import embed_dataset, rank_embedded

#: Name of the set of embeddings of the evaluation images of a training.
SPLIT_EMBEDDINGS = "embeddings"
_OFFICIAL = "map100_official"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
T = TypeVar("T")


def _require_file_names(values: Mapping[str, T]) -> Mapping[str, T]:
    for name in values:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f'"{name}" names a folder or a file; expected lower-case letters, digits, - and _'
            )
    return values


def _require_different(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"the seeds are {', '.join(map(str, seeds))}; expected different seeds")
    return seeds


#: Settings by names that can be those of folders or files.
ByFileName = Annotated[Mapping[str, T], AfterValidator(_require_file_names)]
#: Different seeds of trainings or of random splits.
Seeds = Annotated[tuple[NonNegativeInt, ...], AfterValidator(_require_different)]


@dataclass(frozen=True)
class EvaluationContext:
    """A run to evaluate, with the metrics, the device and the processes of the evaluation.

    Args:
        folder: Folder of the finished run.
        metrics: Names of metrics; () for the metrics of the papers.
        processes: Processes that share the images and the queries.
    """

    folder: Path
    training: TrainingSettings
    metrics: tuple[str, ...]
    device: str
    processes: Processes

    @cached_property
    def model(self) -> ImageEmbedder:
        """The trained model."""
        return load_checkpoint_model(RunFolder(self.folder).result)

    @property
    def ranking(self) -> RankingConfig:
        """Settings of the ranking of the model's embeddings."""
        return RankingConfig(device=self.device, distance=self.training.model.distance)

    def embed(
        self,
        name: str,
        images: Path,
        *,
        root: Path | None = None,
        split: str | None = None,
        scales: Sequence[float] = (1.0,),
    ) -> Path:
        """Embed a table of images with the model, and return the file of the embeddings of this name."""
        out = embedding_file(self.folder, name)
        config = EmbedImagesConfig(
            split=split,
            scales=scales,
            device=self.device,
            batch_size=self.training.evaluation.batch_size,
            workers=self.training.workers,
        )
        n_processes = self.processes.count
        if n_processes > 1:
            part = Part(self.processes.rank + 1, n_processes)
            embed_part(images, out, self.model, config, part=part, root=root)
            self.processes.gather(None)  # wait for the other parts
        if self.processes.rank == 0:
            embed_images(images, out, self.model, config, root=root)
        self.processes.gather(None)
        return out

    def evaluate(
        self, files: EvaluationFiles, protocol: str, metrics: tuple[str, ...] = ()
    ) -> Sequence[RetrievalResult]:
        """Evaluate embeddings by a protocol."""
        config = EvaluationConfig(
            metrics=metrics or None, ranking=self.ranking, processes=self.processes
        )
        return evaluate_files(files, protocol, config).results


class BaseEvaluation(Settings, ABC):
    """A way to evaluate trained models."""

    name: str

    @property
    def files(self) -> Mapping[str, Path]:
        """Files that it reads besides the files of the training, by their role."""
        return {}

    @property
    def parameters(self) -> dict[str, Any]:
        """Settings that change its results."""
        return {"protocol": self.name}

    @property
    def embedding_sets(self) -> tuple[str, ...]:
        """Names of the sets of images that it embeds, after which the files of embeddings are named."""
        return (SPLIT_EMBEDDINGS,)

    @abstractmethod
    def evaluate(self, context: EvaluationContext) -> list[RetrievalResult]:
        """Embed the images with the model of the run and evaluate them; all processes call this together.

        Returns:
            Results with the column ``class``, the finest label of each query.

        Raises:
            InputError: Images or labels cannot be read.
            ConfigurationError: A metric is unknown.
        """

    def join(self, results: list[RetrievalResult]) -> RetrievalResult:
        """Return the results of :meth:`evaluate` as one."""
        return join_sets(results)

    @abstractmethod
    def describe(self, result: RetrievalResult, trainings: Sequence[TrainingSettings]) -> list[str]:
        """Return sentences on the images of the runs of one split; ``result`` belongs to the first run."""


class SplitEvaluation(BaseEvaluation):
    """Evaluation on the images of the trainings, by the labels of the landmarks.

    Each image of ``data.test`` is ranked against all others, or ``data.queries`` against ``data.gallery``.
    """

    name: Literal["split"] = "split"

    def evaluate(self, context: EvaluationContext) -> list[RetrievalResult]:
        return [_evaluate_images(context, TrainingImages(context.training), SPLIT_EMBEDDINGS)]

    def join(self, results: list[RetrievalResult]) -> RetrievalResult:
        (result,) = results
        return result

    def describe(self, result: RetrievalResult, trainings: Sequence[TrainingSettings]) -> list[str]:
        trained = any(training.steps != 0 for training in trainings)
        data_sets = dict.fromkeys(training.data for training in trainings)
        sentences = [describe_data(data, trained=trained) for data in data_sets]
        gallery = "all other images"
        if result.name != "leave-one-out":
            gallery = f"a gallery of {result.counts['gallery']:,} images"
        sentences.append(f"{result.counts['queries']:,} queries, each of which ranks {gallery}.")
        return sentences


class ManifestsEvaluation(BaseEvaluation):
    """Evaluation on the test images of several manifests, such as the small, medium and large set of VehicleID.

    Each is evaluated as with ``name: split``, with the splits that the trainings name. Metrics begin
    with the name of the set: ``small R@1``.

    Args:
        manifests: Manifests by the names of the sets. Their paths are relative to ``data.root`` of the trainings.
    """

    name: Literal["manifests"]
    manifests: ByFileName[Path] = Field(min_length=1)

    @property
    def files(self) -> Mapping[str, Path]:
        return {f"manifest/{name}": path for name, path in self.manifests.items()}

    @property
    def embedding_sets(self) -> tuple[str, ...]:
        return tuple(self.manifests)

    def evaluate(self, context: EvaluationContext) -> list[RetrievalResult]:
        training, results = context.training, []
        for name, manifest in self.manifests.items():
            data = training.data.model_copy(update={"manifest": manifest, "val": None})
            images = TrainingImages(training.model_copy(update={"data": data}))
            results.append(replace(_evaluate_images(context, images, name), name=name))
        return results

    def describe(self, result: RetrievalResult, trainings: Sequence[TrainingSettings]) -> list[str]:
        queries = f"{result.counts['queries']:,} queries in all"
        return [f"Test sets {result.name}: {queries}, each of which ranks its own set."]


class DymlEvaluation(BaseEvaluation):
    """DyML's protocol: the test sets of its levels, and the means over them, see :mod:`hgld.evaluation.protocols`.

    Metrics of a level begin with its name: ``fine AP``.

    Args:
        root: Folder of DyML-Vehicle, -Animal or -Product.
    """

    name: Literal["dyml"]
    root: Path

    @property
    def files(self) -> Mapping[str, Path]:
        return {path.relative_to(self.root).as_posix(): path for path in label_files(self.root)}

    def evaluate(self, context: EvaluationContext) -> list[RetrievalResult]:
        levels = read_test_set(self.root)
        images = evaluation_folder(context.folder) / "images.parquet"
        if context.processes.rank == 0:
            ids = _image_ids(levels)
            columns = {"path": ids, "split": ["test"] * len(ids)}
            manifest = build_manifest(self.root, columns, {"image": ids})
            images.parent.mkdir(parents=True, exist_ok=True)
            provenance = Provenance("benchmark", {}, input_digests(**self.files))
            write_manifest(images, manifest, provenance)
        context.processes.gather(None)  # the other processes wait for the manifest
        embeddings = context.embed(SPLIT_EMBEDDINGS, images, root=self.root)
        files = EvaluationFiles(embeddings=embeddings, ground_truth=self.root)
        results = []
        for result in context.evaluate(files, "dyml", context.metrics):
            labels = levels[result.name].query_labels.tolist()
            # A label of one level has no meaning at another level.
            results.append(with_classes(result, [f"{result.name} {label}" for label in labels]))
        return results

    def join(self, results: list[RetrievalResult]) -> RetrievalResult:
        """Return the results of the levels as one, with the mean of each metric over the levels.

        The metrics of a level begin with its name (``fine AP``). The values of the other metrics (``AP``) are
        weighted such that their mean over all queries is the mean over the levels, and every level counts the same.
        Queries without a value are excluded from both means.
        """
        joined = join_sets(results)
        means = {}
        for metric in results[0].metrics:
            values = [result.per_query[metric].to_numpy() for result in results]
            means[metric] = _weighted_equally(values)
        per_query = joined.per_query.assign(**means)
        return replace(joined, per_query=per_query, metrics=(*means, *joined.metrics))

    def describe(self, result: RetrievalResult, trainings: Sequence[TrainingSettings]) -> list[str]:
        queries = f"{result.counts['queries']:,} queries in all"
        return [
            f"DyML: test sets {result.name}, {queries}, each of which ranks its own set.",
            "Metrics without the name of a level are means over the levels.",
        ]


class Gldv2Evaluation(BaseEvaluation):
    """GLDv2's retrieval protocol: its test images against its index, see :mod:`hgld.evaluation.gldv2_retrieval`.

    Args:
        queries: Table of the test images from ``hgld index-images``, in the folder of their tar files.
        gallery: Table of the index images, in the folder of their tar files.
        ground_truth: Folder of ``retrieval_solution_v2.1.csv`` and ``index_image_to_landmark.csv``.
        hierarchy: Hierarchy of the index landmarks.
    """

    name: Literal["gldv2-retrieval"]
    queries: Path
    gallery: Path
    ground_truth: Path
    hierarchy: Path

    @property
    def files(self) -> Mapping[str, Path]:
        return {
            "queries": self.queries,
            "gallery": self.gallery,
            "solution": self.ground_truth / SOLUTION,
            "landmarks": self.ground_truth / LANDMARKS,
            "hierarchy": self.hierarchy,
        }

    @property
    def embedding_sets(self) -> tuple[str, ...]:
        return "queries", "gallery"

    def evaluation_files(self, run: Path) -> EvaluationFiles:
        """Return the files of the evaluation of the run in a folder."""
        return EvaluationFiles(
            query_embeddings=embedding_file(run, "queries"),
            gallery_embeddings=embedding_file(run, "gallery"),
            hierarchy=self.hierarchy,
            ground_truth=self.ground_truth,
        )

    def evaluate(self, context: EvaluationContext) -> list[RetrievalResult]:
        for name, images in (("queries", self.queries), ("gallery", self.gallery)):
            context.embed(name, images)
        results = context.evaluate(
            self.evaluation_files(context.folder), "gldv2-retrieval", context.metrics
        )
        solution = read_retrieval_solution(self.ground_truth / SOLUTION)
        landmarks = query_landmarks(solution, read_image_to_landmark(self.ground_truth / LANDMARKS))
        names = pd.Series(landmarks.landmark_ids.astype(str), index=list(solution.query_ids))
        return [with_classes(result, names[result.per_query.index]) for result in results]

    def join(self, results: list[RetrievalResult]) -> RetrievalResult:
        """Add the official values of all queries to the result of the queries with hierarchical labels."""
        labelled, *official = results
        values = pd.concat([part.per_query[[_OFFICIAL, "class"]] for part in official])
        per_query = values.join(labelled.per_query.drop(columns="class"))
        return replace(labelled, per_query=per_query, metrics=(*labelled.metrics, _OFFICIAL))

    def describe(self, result: RetrievalResult, trainings: Sequence[TrainingSettings]) -> list[str]:
        counts = result.counts
        return [
            f"GLDv2 retrieval: {counts['queries']:,} test images with hierarchical labels, a gallery of "
            f"{counts['gallery']:,} images.",
            f"{_OFFICIAL} covers {len(result.per_query):,} test images, Public and Private together.",
        ]


class RevisitedData(Settings):
    """ROxford5k or RParis6k.

    Args:
        manifest: Manifest from ``hgld manifest revisited``, with the splits query and gallery.
        root: Folder that its paths are relative to.
        ground_truth: ``gnd_roxford5k.pkl`` or ``gnd_rparis6k.pkl``.
    """

    manifest: Path
    root: Path
    ground_truth: Path


class RevisitedEvaluation(BaseEvaluation):
    """Evaluation on ROxford5k and RParis6k, see :func:`hgld.evaluation.protocols.revisited_tasks`.

    Metrics begin with the names of the data set and of the setting: ``roxford5k medium mAP``. Images are resized like
    the evaluated images of the trainings.

    Args:
        datasets: Data sets by name.
        scales: Factors of height and width; embeddings at several scales are averaged, as by ``hgld embed-images``.
        distractors: Further images of both galleries, such as the million of R1M: a folder of pictures or a table.
            There are results with and without distractors; the former are named ``roxford5k+distractors``.
            Default: no distractors.
    """

    name: Literal["revisited"]
    datasets: ByFileName[RevisitedData] = Field(min_length=1)
    scales: tuple[PositiveFloat, ...] = Field(default=(1.0,), min_length=1)
    distractors: Path | None = None

    @property
    def parameters(self) -> dict[str, Any]:
        return {**super().parameters, "scales": list(self.scales)}

    @property
    def files(self) -> Mapping[str, Path]:
        files = {}
        for name, data in self.datasets.items():
            files[f"{name}/manifest"] = data.manifest
            files[f"{name}/ground_truth"] = data.ground_truth
        if self.distractors is not None:
            files["distractors"] = self.distractors
        return files

    @property
    def embedding_sets(self) -> tuple[str, ...]:
        sets = []
        for name in self.datasets:
            sets += [f"{name}_query", f"{name}_gallery"]
        if self.distractors is not None:
            sets.append("distractors")
        return tuple(sets)

    def evaluate(self, context: EvaluationContext) -> list[RetrievalResult]:
        galleries: dict[str, Path | None] = {"": None}
        if self.distractors is not None:
            galleries["+distractors"] = context.embed(
                "distractors", self.distractors, scales=self.scales
            )
        results = []
        for name, data in self.datasets.items():
            embeddings = {}
            for split in ("query", "gallery"):
                embeddings[split] = context.embed(
                    f"{name}_{split}",
                    data.manifest,
                    root=data.root,
                    split=split,
                    scales=self.scales,
                )
            for suffix, distractors in galleries.items():
                files = EvaluationFiles(
                    query_embeddings=embeddings["query"],
                    gallery_embeddings=embeddings["gallery"],
                    ground_truth=data.ground_truth,
                    distractor_embeddings=distractors,
                )
                for result in context.evaluate(files, "roxford"):  # the protocol of both
                    # The name of a query begins with the name of its landmark: all_souls_000013.
                    landmarks = [str(query).rpartition("_")[0] for query in result.per_query.index]
                    named = replace(result, name=f"{name}{suffix} {result.name}")
                    results.append(with_classes(named, landmarks))
        return results

    def describe(self, result: RetrievalResult, trainings: Sequence[TrainingSettings]) -> list[str]:
        scales = ", ".join(f"{scale:g}" for scale in self.scales)
        return [f"ROxford and RParis: {result.name}; scales {scales}. AP by trapezoids."]


Evaluation = Annotated[
    SplitEvaluation | ManifestsEvaluation | DymlEvaluation | Gldv2Evaluation | RevisitedEvaluation,
    Field(discriminator="name"),
]
#: Evaluations of images whose embeddings and labels figures and pages can show.
PicturedEvaluation = SplitEvaluation | ManifestsEvaluation | Gldv2Evaluation


def evaluation_folder(run: Path) -> Path:
    """Return the folder of the evaluation of the run in a folder."""
    return run / "evaluation"


def embedding_file(run: Path, name: str) -> Path:
    """Return the file with the embeddings of a set of images."""
    return evaluation_folder(run) / f"{name}.npy"


def join_sets(results: list[RetrievalResult]) -> RetrievalResult:
    """Return results of several sets of queries as one.

    The names of metrics and queries begin with the name of their result: ``small R@1``, ``small/0001.jpg``. A query
    has the metrics of its own set. Counts are sums over the sets.

    >>> part = pd.DataFrame({"AP": [0.5], "class": ["a"]}, index=pd.Index(["0.jpg"], name="query"))
    >>> sets = [RetrievalResult(name, part, ("AP",), {"queries": 1}, {}) for name in ("small", "large")]
    >>> join_sets(sets).means, join_sets(sets).counts
    ({'small AP': 0.5, 'large AP': 0.5}, {'queries': 2})
    """
    metrics: list[str] = []
    tables = []
    counts: dict[str, int] = {}
    for result in results:
        new_names = {metric: f"{result.name} {metric}" for metric in result.metrics}
        metrics += new_names.values()
        table = result.renamed(new_names).per_query
        tables.append(table.set_axis([f"{result.name}/{query}" for query in table.index]))
        for name, count in result.counts.items():
            counts[name] = counts.get(name, 0) + count
    return replace(
        results[0],
        name=", ".join(result.name for result in results),
        per_query=pd.concat(tables).rename_axis("query"),
        metrics=tuple(metrics),
        counts=counts,
    )


def describe_data(data: DataSettings, *, trained: bool = True) -> str:
    """Return a sentence on the images of a training and its evaluation."""
    manifest = read_training_manifest(data)
    train, test = manifest.select_split(data.train), evaluation_manifest(manifest, data)
    n_shared = np.intersect1d(train.class_names[0], test.class_names[0]).size
    shared = "none of which is a training class"
    if n_shared:
        shared = f"{n_shared:,} of which are also training classes"
    level = manifest.level_names[0]
    tested = f"{len(test):,} images of {test.n_classes[0]:,} classes"
    if not trained:
        return f"Evaluated on {tested} ({level}); nothing was trained."
    trained_on = f"{len(train):,} images of {train.n_classes[0]:,} classes ({level})"
    return f"Trained on {trained_on}, evaluated on {tested}, {shared}."


def _evaluate_images(
    context: EvaluationContext, images: TrainingImages, name: str
) -> RetrievalResult:
    """Embed the test images, write their embeddings, and rank them."""
    model: EmbeddingModel = context.model.network.to(context.device).to(memory_format=MEMORY_FORMAT)
    embedded = embed_dataset(
        model,
        images.test,
        batch_size=context.training.evaluation.batch_size,
        workers=context.training.workers,
        processes=context.processes,
    )
    rows = embedded.rows.numpy()
    manifest = images.test.manifest.take(rows)
    if context.processes.rank == 0:
        file = embedding_file(context.folder, name)
        write_embeddings(file, embedded.vectors, manifest.ids.tolist())
    result = rank_embedded(
        embedded,
        images.test,
        images.is_query,
        metrics=context.metrics,
        ranking=context.ranking,
        processes=context.processes,
    )
    queries = np.arange(len(manifest))
    if images.is_query is not None:
        queries = np.flatnonzero(images.is_query[rows])
    labels = main_labels(manifest.labelling)[queries, 0]
    classes = np.array(manifest.class_names[0], object)[labels]
    per_query = result.per_query.set_axis(pd.Index(manifest.ids[queries], name="query"))
    counts = result.counts | {"images_not_read": len(embedded.skipped)}
    return with_classes(replace(result, per_query=per_query, counts=counts), classes)


def with_classes(
    result: RetrievalResult, classes: Sequence[str] | pd.Series[str] | Objects
) -> RetrievalResult:
    """Return a result with the finest class of each query, by which comparisons group queries."""
    per_query = result.per_query.assign(**{"class": np.asarray(classes, object)})
    return replace(result, per_query=per_query)


def _image_ids(levels: Mapping[str, DymlLevel]) -> list[str]:
    """Return the different paths of all test images, relative to the folder of the data set."""
    names: dict[str, None] = {}
    for level in levels.values():
        names |= dict.fromkeys(level.query_ids)
        names |= dict.fromkeys(level.gallery_ids)
    return list(names)


def _weighted_equally(levels: list[Floats]) -> Floats:
    """Scale the values of each level such that the mean over all queries is the mean over the levels.

    >>> float(np.nanmean(_weighted_equally([np.array([0.25, 0.75, np.nan]), np.array([1.0])])))
    0.75
    """
    counts = np.array([np.count_nonzero(~np.isnan(values)) for values in levels])
    weights = counts.sum() / (len(levels) * np.maximum(counts, 1))
    return np.concatenate([weight * values for weight, values in zip(weights, levels, strict=True)])
