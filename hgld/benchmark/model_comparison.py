"""Compare models on the images of a manifest: what ``hgld compare-models`` runs.

::

    OUT/embeddings/NAME.parquet    embeddings of the evaluated split, and of all images where a treatment is fitted,
                                   see hgld embed-images
    OUT/embeddings/NAME.json       what the model is, and how fast it was
    OUT/adaptations/NAME+LOSS/     trainings of linear layers on the embeddings of the training split
    OUT/evaluations/NAME.parquet   a row per query, see hgld.evaluation.results; NAME+TREATMENT after a treatment, and
                                   NAME+METHOD after re-ranking
    OUT/results.parquet            a row per metric and model, see hgld.benchmark.statistics.compare
    OUT/results.md, .tex           tables
    OUT/levels.png, metrics.png, costs.png, differences.html, index.html    figures and pages
    OUT/results.made.json          files of the report, and their provenance

Files that exist and were made from the same inputs are kept, so the same call resumes an interrupted comparison. A
model that fails is reported with its reason. The other models are compared on the images that all of them have
embeddings for.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from sklearn.decomposition import PCA

from hgld.arrays import Integers
from hgld.benchmark.compared_models import (
    EMBEDDING_SUFFIXES,
    embeddings_file,
    report_record,
    result_path,
)
from hgld.benchmark.engine import (
    Report,
    ResultFile,
    compute_runs,
    describe_failures,
    open_folder,
    report_provenance,
)
from hgld.benchmark.evaluations import with_classes
from hgld.benchmark.model_comparison_settings import (
    ModelComparisonConfig,
    ModelEntry,
    Treatment,
    parse_treatment,
)
from hgld.benchmark.model_reports import ModelFacts, ModelResults, write_model_reports
from hgld.benchmark.statistics import compare
from hgld.compute.scoring import Distance
from hgld.datasets.image_labels import read_labels
from hgld.datasets.manifest import Manifest, read_manifest
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.evaluation.evaluate import EvaluationConfig, evaluate_tasks
from hgld.evaluation.metrics import default_metrics
from hgld.evaluation.protocols import labelled_leave_one_out
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.results import RetrievalResult, read_per_query, write_per_query
from hgld.evaluation.retrieval_task import RetrievalTask
from hgld.evaluation.settings import RerankSettings
from hgld.hierarchy.label_sets import main_labels
from hgld.inspection.method_differences import find_method_differences
from hgld.inspection.photos import manifest_photos
from hgld.inspection.query_pages import write_method_differences_page
from hgld.io.files import read_json, write_text
from hgld.models import EmbedImagesConfig, embed_images, load_checkpoint_model, load_model
from hgld.models.embedding_files import recorded_distance
from hgld.progress import NoProgress, Progress
from hgld.tables import Provenance, input_digests
from hgld.tables.embeddings import (
    Embeddings,
    find_ids_file,
    read_embeddings,
    required_ids,
)
from hgld.training import TrainingSettings, train
from hgld.training.run import is_finished

log = logging.getLogger(__name__)

Vectors = npt.NDArray[np.float32]
#: Number of images of each class in a batch of linear adaptation, and largest number of its classes.
_PER_CLASS, _MAX_CLASSES = 4, 32
#: Largest number of dimensions after linear adaptation.
_MAX_DIMENSIONS = 512


@dataclass(frozen=True)
class ModelRun:
    """A model after a treatment and re-ranking: a row of the tables.

    Args:
        model: Name of the model.
        reranking: Re-ranking; without a method, images are ranked once.
    """

    model: str
    treatment: Treatment
    reranking: RerankSettings

    def __str__(self) -> str:
        name = self.model
        if self.treatment.kind != "none":
            name += f" + {self.treatment}"
        if self.reranking.rerank is not None:
            name += f" + {self.reranking.rerank}"
        return name


class ModelComparison:
    """Models that are compared on the images of a manifest.

    Args:
        manifest: Table of the images.
        root: Folder that the paths in it are relative to; None for the folder of the manifest.
    """

    def __init__(
        self,
        models: Sequence[ModelEntry],
        manifest: Path,
        root: Path | None,
        out: Path,
        config: ModelComparisonConfig,
    ) -> None:
        names = [entry.name for entry in models]
        if len(set(names)) < len(names):
            raise ConfigurationError(
                f"models are called {', '.join(names)}; give each a name of its own: NAME=MODEL"
            )
        self._models, self._config = models, config
        self._manifest, self._root, self._out = manifest, root, out
        #: Facts about each model, by its name.
        self._facts = {
            entry.name: ModelFacts(entry.name, entry.model, entry.seen) for entry in models
        }
        #: Embeddings of each model that did not fail.
        self._files: dict[str, Path] = {}
        #: Ids of evaluated images that some model has no embedding of, which are excluded for all models.
        self._missing_ids: set[str] = set()
        #: Reasons why models failed.
        self._failures: dict[str, str] = {}
        #: Files of results by the names of runs.
        self._results: dict[str, Path] = {}
        self._compared_embeddings = lru_cache(maxsize=1)(self._read_compared_embeddings)

    @cached_property
    def _images(self) -> Manifest:
        return read_manifest(self._manifest)

    @property
    def _fitted_treatments(self) -> list[str]:
        """Treatments that are fitted to the embeddings of the training split."""
        return [text for text in self._config.treatments if parse_treatment(text).needs_training]

    @cached_property
    def _split(self) -> str | None:
        """Split whose images are ranked against each other; None for all images."""
        split, train_split = self._config.split, self._config.train_split
        if split is None and "test" in self._images.split_names:
            split = "test"
        if self._fitted_treatments:
            self._images.rows_of(train_split, self._manifest)  # raises if there is no such split
            if split in (None, train_split):
                raise ConfigurationError(
                    f"{self._fitted_treatments[0]} is fitted to the split {train_split}, which would be evaluated, "
                    "too; name another one as `split`"
                )
        return split

    @cached_property
    def _evaluated_ids(self) -> set[str]:
        """Ids of the images that are ranked against each other."""
        return set(self._images.ids[self._images.rows_of(self._split, self._manifest)].tolist())

    def embed(self, *, force: bool, progress: Progress) -> None:
        """Embed the images with all models; embeddings that are up to date are kept.

        Raises:
            InputError: No image has an embedding of each model that did not fail.
        """
        log.info("evaluated images: split %s", self._split or "all")
        n_evaluated = len(self._evaluated_ids)
        runs = {}
        for entry in self._models:
            runs[entry.name] = partial(self._embed, entry, force=force, progress=progress)
        self._failures = compute_runs(runs, NoProgress())
        if self._files and len(self._missing_ids) == n_evaluated:
            raise InputError(
                "no image of the manifest is among the embeddings of all models; compare fewer models"
            )

    def _embed(self, entry: ModelEntry, *, force: bool, progress: Progress) -> None:
        """Embed the images with a model, and note its file and the evaluated images that it lacks."""
        path = self._embedding_file(entry, force=force, progress=progress)
        images = read_embeddings(path)
        largest = torch.as_tensor(images.vectors).abs().amax(dim=1)
        n_zeros = int((largest == 0).sum())
        if n_zeros:
            raise InputError(
                f"{path}: the embeddings of {n_zeros:,} images are zero, and cannot be ranked"
            )
        missing = self._evaluated_ids.difference(required_ids(images).tolist())
        if len(missing) == len(self._evaluated_ids):
            raise InputError(f"{path}: has no embedding of any evaluated image")
        self._missing_ids.update(missing)
        self._files[entry.name] = path

    def _embedding_file(self, entry: ModelEntry, *, force: bool, progress: Progress) -> Path:
        """Return the file with the embeddings of a model, and note more facts about the model."""
        facts = self._facts[entry.name]
        file = Path(entry.model)
        if file.suffix in EMBEDDING_SUFFIXES:
            if entry.options:
                options = ", ".join(entry.options)
                raise ConfigurationError(
                    f"{file}: a file of embeddings takes no options, but {options} is given"
                )
            facts.dim = read_embeddings(file).vectors.shape[1]
            return file
        model = load_model(entry.model, **entry.options)
        out = embeddings_file(self._out, entry.name)
        out.parent.mkdir(parents=True, exist_ok=True)
        config, record = self._config, out.with_suffix(".json")
        done = embed_images(
            self._manifest,
            out,
            model,
            EmbedImagesConfig(
                split=None if self._fitted_treatments else self._split,
                device=config.device,
                batch_size=config.batch_size,
                workers=config.workers,
            ),
            root=self._root,
            force=force,
            progress=progress,
        )
        if done is None and record.is_file():
            recorded = read_json(record) | {"model": entry.model, "seen": entry.seen}
            self._facts[entry.name] = ModelFacts(**recorded)
            return out
        facts.dim = model.network.dim
        n_parameters = sum(parameter.numel() for parameter in model.network.parameters())
        facts.parameters = n_parameters or None  # functions have no parameters
        facts.images = model.image_settings.describe()
        if done is not None:
            facts.skipped = len(done.skipped)
            if done.embedded:  # 0 if an interrupted run had embedded all images
                facts.images_per_s = done.embedded / done.seconds
        write_text(record, json.dumps(asdict(facts), indent=1))
        return out

    def evaluate(self, *, force: bool) -> None:
        """Evaluate the models after each treatment, on the images that all models have embeddings for.

        Results that are up to date are kept.
        """
        rerankings = [RerankSettings()]
        if self._config.reranking.rerank is not None:
            rerankings.append(self._config.reranking)
        runs = []
        for model in self._files:
            for text in dict.fromkeys(self._config.treatments):
                runs += [
                    ModelRun(model, parse_treatment(text), reranking) for reranking in rerankings
                ]
        files = {run: self._result_file(run) for run in runs}
        pending = {}
        for run, file in files.items():
            if force or not file.is_up_to_date():
                pending[run] = partial(self._evaluate, run, file, force=force)
        failures = compute_runs(pending, NoProgress())
        for run, file in files.items():
            if run not in failures:
                self._results[str(run)] = file.path
            else:
                self._failures.setdefault(run.model, failures[run])

    def _result_file(self, run: ModelRun) -> ResultFile:
        config, embeddings = self._config, self._files[run.model]
        metrics = None if config.metrics is None else list(config.metrics)
        parameters = {"split": self._split, "metrics": metrics, "treatment": str(run.treatment)}
        if run.treatment.needs_training:
            parameters["train_split"] = config.train_split
        if self._missing_ids:
            names = "\n".join(sorted(self._missing_ids))
            parameters["excluded_images"] = hashlib.sha256(names.encode()).hexdigest()
        if run.reranking.rerank:
            parameters["reranking"] = run.reranking.describe()
        distance = self._distance(run)
        if distance != "cosine":
            parameters["distance"] = distance
        ids = find_ids_file(embeddings)
        digests = input_digests(embeddings=embeddings, embedding_ids=ids, labels=self._manifest)
        provenance = Provenance("compare-models", parameters, digests)
        return ResultFile(result_path(self._out, str(run)), provenance)

    def _distance(self, run: ModelRun) -> Distance:
        if run.treatment.kind == "none":
            return recorded_distance(self._files[run.model])
        return "cosine"

    def _evaluate(self, run: ModelRun, file: ResultFile, *, force: bool) -> None:
        """Evaluate embeddings after a treatment, and write the result."""
        config, images = self._config, self._compared_embeddings(run.model)
        if run.treatment.kind != "none":
            vectors = self._treated(run.treatment, images, run.model, force)
            images = replace(images, vectors=torch.from_numpy(vectors))
        task = self._task(images)
        assert task.query_labels is not None
        metrics = config.metrics
        if metrics is None:
            judgements = task.judgements
            metrics = list(default_metrics(judgements.n_levels, judgements.n_gallery - 1))
            metrics.append("mistake_severity")
        ranking = RankingConfig(
            device=config.device, distance=self._distance(run), reranking=run.reranking
        )
        evaluation = EvaluationConfig(metrics=tuple(metrics), ranking=ranking)
        (result,) = evaluate_tasks([task], evaluation)
        classes = main_labels(task.query_labels)[:, 0].astype(str)
        result = with_classes(replace(result, name=str(run)), classes)
        write_per_query([result], file.path, file.provenance)

    def _read_compared_embeddings(self, model: str) -> Embeddings:
        """Read the embeddings of a model in the order of the manifest, without images that another model lacks."""
        images = read_embeddings(self._files[model])
        ids = required_ids(images)
        rows = ids.find(self._images.ids)
        is_missing = np.array([name in self._missing_ids for name in self._images.ids.tolist()])
        rows = rows[(rows >= 0) & ~is_missing]
        if np.array_equal(rows, np.arange(len(images))):  # they may stay in their file
            return images
        landmark_ids = None if images.landmark_ids is None else images.landmark_ids[rows]
        return replace(
            images,
            vectors=images.vectors[torch.from_numpy(rows)],
            ids=ids[rows],
            landmark_ids=landmark_ids,
        )

    def _treated(
        self, treatment: Treatment, images: Embeddings, model: str, force: bool
    ) -> Vectors:
        """Return the embeddings of all images after a treatment, float32, shape (N, d)."""
        vectors: Vectors = torch.as_tensor(images.vectors).float().numpy()
        kind, value = treatment
        n_features = vectors.shape[1]
        n_dims = int(value) if value.isdigit() else n_features
        if n_dims > n_features:
            raise ConfigurationError(
                f"{treatment}: the embeddings have {n_features:,} dimensions only"
            )
        if kind == "truncate":
            return vectors[:, :n_dims]
        labels = read_labels(self._manifest, images, split=self._config.train_split)
        fitted = vectors[labels.labelled]
        if kind == "adapt":
            train_split = self._config.train_split
            data = {
                "manifest": self._manifest,
                "features": images.path,
                "train": train_split,
                "test": self._split,
            }
            classes = main_labels(labels.labelling)[labels.labelled, 0]
            settings = _adaptation_settings(value, data, n_features, classes)
            run = self._out / "adaptations" / f"{model}+{value}"
            if force or not is_finished(settings, run):
                train(settings, run, resume=not force, force=force, device=self._config.device)
            network = load_checkpoint_model(run / "last.pt").network
            blocks = torch.split(torch.from_numpy(vectors), 4096)
            with torch.inference_mode():
                return torch.cat([network(block) for block in blocks]).numpy()
        if kind == "center":
            return np.asarray(vectors - fitted.mean(0))
        if n_dims > len(fitted):
            raise ConfigurationError(
                f"{treatment}: the training split has {len(fitted):,} images only"
            )
        pca = PCA(n_dims, whiten=kind == "whiten", svd_solver="covariance_eigh").fit(fitted)
        return np.asarray(pca.transform(vectors), np.float32)

    def _task(self, images: Embeddings) -> RetrievalTask:
        labels = read_labels(self._manifest, images, split=self._split)
        task = labelled_leave_one_out(images, labels)
        # The counts would include the images of other splits, which have no label here.
        return replace(task, counts={})

    def report(self, *, force: bool) -> tuple[ModelResults, list[Path]]:
        """Compare the models that did not fail, and write tables, figures and pages unless they are up to date."""
        if not self._results:
            raise InputError(
                f"no model could be compared:\n{indented_list(describe_failures(self._failures))}"
            )
        for model, reason in self._failures.items():
            self._facts[model].failure = " ".join(reason.split())
        facts = tuple(self._facts.values())
        results = {}
        for name, path in self._results.items():
            (results[name],) = read_per_query(path)
        table = compare(results, self._config.reference)
        outcome = ModelResults(
            table, facts, results, self._split, n_excluded=len(self._missing_ids)
        )
        parameters = {
            "reference": self._config.reference,
            "images": str(self._root or self._manifest.parent),
            "models": [asdict(model) for model in facts],
        }

        def write(provenance: Provenance) -> list[Path]:
            differences = self._write_differences(results)
            reports = write_model_reports(
                outcome, self._out, provenance, has_differences=bool(differences)
            )
            return reports + differences

        provenance = report_provenance("compare-models", parameters, self._results)
        report = Report(report_record(self._out), provenance, write)
        report.update(force=force)
        return outcome, report.files

    def _write_differences(self, results: Mapping[str, RetrievalResult]) -> list[Path]:
        """Write the page of the queries on which the best two models differ most, without treatments."""
        untreated = []
        for name in self._files:
            if name in results and "H-AP" in results[name].metrics:
                untreated.append(results[name])
        if len(untreated) < 2:
            return []
        untreated.sort(key=lambda result: -result.means["H-AP"])
        best, second = untreated[:2]
        best_task = self._task(self._read_compared_embeddings(best.name))
        second_task = self._task(self._read_compared_embeddings(second.name))
        differences = find_method_differences((second, best), (second_task, best_task))
        if differences is None:
            return []
        ids = best_task.query_ids
        photos = manifest_photos(self._images, self._root or self._manifest.parent, ids, ids)
        page = self._out / "differences.html"
        title = f"{second.name} and {best.name}: largest differences"
        write_method_differences_page(differences, page, photos, title=title)
        return [page]


def compare_models(
    models: Sequence[ModelEntry],
    manifest: Path,
    out: Path,
    config: ModelComparisonConfig | None = None,
    *,
    root: Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> tuple[ModelResults, list[Path]]:
    """Embed the images of a manifest with models, evaluate the embeddings leave-one-out, and compare the results.

    Args:
        manifest: Table of ``hgld manifest``.
        root: Folder that the paths of the manifest are relative to. Default: the folder of the manifest.
        force: Whether to do everything again, although it is up to date.
        progress: Progress in images.

    Returns:
        The results, and the files of tables, figures and pages.

    Raises:
        ConfigurationError: Two models have the same name, a treatment has no training split, or the manifest lacks a
            split.
        InputError: The manifest cannot be read, or every model fails.
        BusyError: Another comparison is writing to the folder.
    """
    comparison = ModelComparison(models, manifest, root, out, config or ModelComparisonConfig())
    with open_folder(out):
        comparison.embed(force=force, progress=progress or NoProgress())
        comparison.evaluate(force=force)
        return comparison.report(force=force)


def _adaptation_settings(
    loss: str, data: Mapping[str, object], n_features: int, classes: Integers
) -> TrainingSettings:
    """Return the settings of a linear layer that begins as a PCA.

    The heads for Washington's photographs have the same settings, which were chosen on training landmarks alone. With
    few images or classes to train on, dimensions and batches are smaller.
    """
    sizes = np.unique(classes, return_counts=True)[1]
    n_classes = int(np.count_nonzero(sizes >= _PER_CLASS))
    head = {"name": "adam", "lr": 1e-4, "weight_decay": 0, "schedule": "cosine", "interval": "step"}
    values = {
        "model": {
            "backbone": "features",
            "n_features": n_features,
            "l2_norm": True,
            "dim": min(n_features, _MAX_DIMENSIONS, len(classes) - 1),
            "projection": "pca",
        },
        "data": data,
        "sampler": {"name": "class_balanced", "per_class": _PER_CLASS},
        "loss": {"name": loss},
        "optimiser": {"head": head},
        "batch_size": _PER_CLASS * max(1, min(_MAX_CLASSES, n_classes)),
        "steps": 300,
        "evaluation": {"every": 1000},
        "workers": 0,
        "loggers": [],
    }
    return TrainingSettings.model_validate(values)
