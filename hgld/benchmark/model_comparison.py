"""Compare models on the images of a manifest: what ``hgld compare-models`` runs.

::

    OUT/embeddings/NAME.parquet    embeddings of the evaluated split, and of all images where a treatment is fitted,
                                   see hgld embed-images
    OUT/embeddings/NAME.json       what the model is, and how fast it was
    OUT/adaptations/NAME+LOSS/     trainings of linear layers on the embeddings of the training split
    OUT/evaluations/NAME.parquet   a row per query, see hgld.evaluation.results; NAME+TREATMENT after a treatment, and
                                   NAME+METHOD after re-ranking
    OUT/results.parquet, .csv      a row per metric and model, see hgld.benchmark.statistics.compare
    OUT/results.md, .tex           tables
    OUT/levels.png, metrics.png, costs.png, differences.html, index.html    figures and pages

Whatever is there and made from the same files is not made again, so that an interrupted comparison is resumed by the
same call. A model that fails is reported with its reason; the others are compared, on the images of which all of them
have embeddings.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from sklearn.decomposition import PCA

from hgld.benchmark.evaluations import with_classes
from hgld.benchmark.model_comparison_settings import ModelComparisonConfig, ModelEntry, Treatment, parse_treatment
from hgld.benchmark.model_reports import ModelFacts, ModelResults, write_model_reports
from hgld.benchmark.statistics import compare
from hgld.datasets.image_labels import read_labels
from hgld.datasets.manifest import Manifest, read_manifest
from hgld.errors import ConfigurationError, InputError, failure_reason, indented_list
from hgld.evaluation.evaluate import EvaluationConfig
from hgld.evaluation.evaluation_files import EvaluationInputs, evaluate_inputs, get_protocol
from hgld.evaluation.metrics import default_metrics
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.results import RetrievalResult, read_per_query, write_per_query
from hgld.evaluation.retrieval_task import RetrievalTask
from hgld.evaluation.settings import EvaluationFiles, RerankSettings
from hgld.hierarchy.label_matrix import main_labels
from hgld.inspection.photos import manifest_photos
from hgld.inspection.queries import find_method_differences
from hgld.inspection.query_pages import write_method_differences_page
from hgld.io.files import exclusive_lock, sha256_of, write_text
from hgld.models import EmbedImagesConfig, embed_images, load_checkpoint_model, load_model
from hgld.models.embedding_files import recorded_distance
from hgld.progress import NoProgress, Progress
from hgld.tables import Provenance, input_digests, is_up_to_date
from hgld.tables.embeddings import EMBEDDING_READERS, Embeddings, read_embeddings
from hgld.training import TrainingSettings, train
from hgld.training.run import is_finished

log = logging.getLogger(__name__)

Vectors = npt.NDArray[np.float32]
#: Number of images of each class in a batch of linear adaptation, and largest number of its classes.
_PER_CLASS, _MAX_CLASSES = 4, 32
#: Largest number of dimensions after linear adaptation.
_MAX_DIMENSIONS = 512


@dataclass(frozen=True, eq=False)
class ModelComparison:
    """Models that are compared on the images of a manifest.

    Args:
        manifest: Table of the images.
        root: Folder that its paths are relative to; None for its own.
        facts: What is known about each model so far, by its name.
        results: Evaluations so far, by name in tables.
        files: Embeddings of each model that did not fail.
        missing_ids: Ids of evaluated images that some model has no embedding of, which are excluded for all models.
    """

    models: Sequence[ModelEntry]
    manifest: Path
    root: Path | None
    out: Path
    config: ModelComparisonConfig
    facts: dict[str, ModelFacts] = field(default_factory=dict)
    results: dict[str, RetrievalResult] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)
    missing_ids: set[str] = field(default_factory=set)

    def run(self, *, force: bool, progress: Progress) -> None:
        """Embed and evaluate the models, as far as that is not done, on the images that all models have."""
        names = [entry.name for entry in self.models]
        if len(set(names)) < len(names):
            raise ConfigurationError(f"models are called {', '.join(names)}; give each a name of its own: NAME=MODEL")
        log.info("evaluated images: split %s", self.split or "all")
        for entry in self.models:
            self._embed_or_note_failure(entry, force, progress)
        if self.files and len(self.missing_ids) == len(self.evaluated_ids):
            raise InputError("no image of the manifest is among the embeddings of all models; compare fewer models")
        for entry in self.models:
            if entry.name in self.files:
                self._evaluate_or_note_failure(entry, force)

    @cached_property
    def images(self) -> Manifest:
        """The images."""
        return read_manifest(self.manifest)

    @property
    def fitted_treatments(self) -> list[str]:
        """Treatments that are fitted to the embeddings of the training split."""
        return [text for text in self.config.treatments if parse_treatment(text).needs_training]

    @cached_property
    def split(self) -> str | None:
        """Split whose images are ranked against each other; None for all images."""
        splits = self.images.split_names
        chosen = self.config.split or ("test" if "test" in splits else None)
        fitted = self.fitted_treatments
        for split in (chosen, self.config.train_split if fitted else None):
            if split is not None and split not in splits:
                raise ConfigurationError(
                    f"{self.manifest}: has no split {split}; expected {', '.join(sorted(map(str, splits)))}"
                )
        if fitted and chosen in (None, self.config.train_split):
            raise ConfigurationError(
                f"{fitted[0]} is fitted to the split {self.config.train_split}, which would be evaluated, too; "
                "name another one as `split`"
            )
        return chosen

    def _embed_or_note_failure(self, entry: ModelEntry, force: bool, progress: Progress) -> None:
        facts = ModelFacts(entry.name, entry.model, entry.seen)
        try:
            path, facts = self._embed(entry, facts, force, progress)
            images = read_embeddings(path)
            zeros = int((torch.as_tensor(images.vectors).abs().amax(dim=1) == 0).sum())
            if zeros:
                raise InputError(f"{path}: the embeddings of {zeros:,} images are zero, and cannot be ranked")
            self._note_missing_images(images)
            self.files[entry.name] = path
        except Exception as error:
            facts = replace(facts, failure=_failure_line(error))
        self.facts[entry.name] = facts

    def _evaluate_or_note_failure(self, entry: ModelEntry, force: bool) -> None:
        try:
            images = self._read_compared_embeddings(entry.name)
            for text in dict.fromkeys(self.config.treatments):
                treatment = parse_treatment(text)
                name = entry.name if text == "none" else f"{entry.name} + {text}"
                self._evaluate(name, images, treatment, RerankSettings(), force)
                if (method := self.config.reranking.rerank) is not None:
                    self._evaluate(f"{name} + {method}", images, treatment, self.config.reranking, force)
        except Exception as error:
            self.facts[entry.name] = replace(self.facts[entry.name], failure=_failure_line(error))

    @cached_property
    def evaluated_ids(self) -> set[str]:
        """Ids of the images that are ranked against each other."""
        ids: list[str] = self.images.ids.tolist()
        if self.split is None:
            return set(ids)
        return {name for name, split in zip(ids, self.images.splits, strict=True) if split == self.split}

    def _note_missing_images(self, images: Embeddings) -> None:
        """Add the evaluated images that a model has no embedding of to ``missing_ids``.

        Raises:
            InputError: It has an embedding of none of them.
        """
        if images.ids is None:
            return
        missing = self.evaluated_ids.difference(images.ids.tolist())
        if len(missing) == len(self.evaluated_ids):
            raise InputError(f"{images.path}: has no embedding of any evaluated image")
        self.missing_ids.update(missing)

    def _read_compared_embeddings(self, model: str) -> Embeddings:
        """Read the embeddings of a model, without the evaluated images that another model lacks."""
        images = read_embeddings(self.files[model])
        if not self.missing_ids or images.ids is None:
            return images
        kept = np.array([name not in self.missing_ids for name in images.ids.tolist()])
        rows = np.flatnonzero(kept)
        landmark_ids = None if images.landmark_ids is None else images.landmark_ids[rows]
        return replace(
            images, vectors=images.vectors[torch.from_numpy(rows)], ids=images.ids[rows], landmark_ids=landmark_ids
        )

    def _embed(
        self, entry: ModelEntry, facts: ModelFacts, force: bool, progress: Progress
    ) -> tuple[Path, ModelFacts]:
        """Return the file with the embeddings of a model, and more facts about the model."""
        given = Path(entry.model)
        if given.suffix in EMBEDDING_READERS and given.is_file():
            return given, replace(facts, dim=read_embeddings(given).vectors.shape[1])
        model = load_model(entry.model, **entry.options)
        out = self.out / "embeddings" / f"{entry.name}.parquet"
        out.parent.mkdir(parents=True, exist_ok=True)
        config, record = self.config, out.with_suffix(".json")
        done = embed_images(
            self.manifest,
            out,
            model,
            EmbedImagesConfig(
                split=None if self.fitted_treatments else self.split,
                device=config.device,
                batch_size=config.batch_size,
                workers=config.workers,
            ),
            root=self.root,
            force=force,
            progress=progress,
        )
        if done is not None or not record.is_file():
            facts = replace(
                facts,
                dim=model.network.dim,
                parameters=sum(parameter.numel() for parameter in model.network.parameters()) or None,
                images=model.image_settings.describe(),
                images_per_s=done.embedded / done.seconds if done is not None else None,
                skipped=len(done.skipped) if done is not None else 0,
            )
            write_text(record, json.dumps(asdict(facts), indent=1))
        known = json.loads(record.read_text(encoding="utf-8"))
        return out, ModelFacts(**known | {"model": entry.model, "seen": entry.seen})

    def _evaluate(
        self, name: str, images: Embeddings, treatment: Treatment, reranking: RerankSettings, force: bool
    ) -> None:
        """Evaluate embeddings after a treatment, unless that is done."""
        config = self.config
        file = self._evaluation_file(name)
        metrics = None if config.metrics is None else list(config.metrics)
        parameters = {"split": self.split, "metrics": metrics, "treatment": str(treatment)}
        parameters |= {"train_split": config.train_split} if treatment.needs_training else {}
        if self.missing_ids:
            names = "\n".join(sorted(self.missing_ids))
            parameters["excluded_images"] = hashlib.sha256(names.encode()).hexdigest()
        parameters |= {"reranking": reranking.describe()} if reranking.rerank else {}
        distance = recorded_distance(images.path) if treatment.kind == "none" else "cosine"
        parameters |= {"distance": distance} if distance != "cosine" else {}
        made_of = Provenance(
            "compare-models", parameters, input_digests(embeddings=images.path, labels=self.manifest)
        )
        if not force and is_up_to_date(file, made_of):
            self.results[name] = read_per_query(file)[0]
            return
        if treatment.kind != "none":
            vectors = self._treated(treatment, images, name.partition(" + ")[0], force)
            images = replace(images, vectors=torch.from_numpy(vectors))
        task = self._task(images)
        if metrics is None:
            metrics = [*default_metrics(task.judgements.n_levels, task.judgements.n_gallery - 1), "mistake_severity"]
        ranking = RankingConfig(device=config.device, distance=distance, reranking=reranking)
        (result,) = evaluate_inputs(
            get_protocol("leave-one-out"),
            EvaluationInputs(EvaluationFiles(embeddings=images.path), images, images),
            [task],
            EvaluationConfig(metrics=tuple(metrics), ranking=ranking),
        ).results
        assert task.query_labels is not None
        result = with_classes(replace(result, name=name), main_labels(task.query_labels)[:, 0].astype(str))
        file.parent.mkdir(parents=True, exist_ok=True)
        write_per_query([result], file, made_of)
        self.results[name] = result

    def _treated(self, treatment: Treatment, images: Embeddings, model: str, force: bool) -> Vectors:
        """Return the embeddings of all images after a treatment, which is not none: float32, shape (N, d)."""
        vectors: Vectors = torch.as_tensor(images.vectors).float().numpy()
        kind, value = treatment
        n_dims = int(value) if value.isdigit() else vectors.shape[1]
        if n_dims > vectors.shape[1]:
            raise ConfigurationError(f"{treatment}: the embeddings have {vectors.shape[1]:,} dimensions only")
        if kind == "truncate":
            return vectors[:, :n_dims]
        labels = read_labels(self.manifest, images, split=self.config.train_split)
        fitted = vectors[labels.labelled]
        if kind == "adapt":
            train_split = self.config.train_split
            data = {"manifest": self.manifest, "features": images.path, "train": train_split, "test": self.split}
            classes = main_labels(labels.labelling)[labels.labelled, 0]
            settings = _adaptation(value, data, vectors.shape[1], classes)
            run = self.out / "adaptations" / f"{model}+{value}"
            if force or not is_finished(settings, run):
                train(settings, run, resume=not force, force=force, device=self.config.device)
            network = load_checkpoint_model(run / "last.pt").network
            with torch.inference_mode():
                parts = [network(part) for part in torch.split(torch.from_numpy(vectors), 4096)]
            return torch.cat(parts).numpy()
        if kind == "center":
            return np.asarray(vectors - fitted.mean(0))
        if n_dims > len(fitted):
            raise ConfigurationError(f"{treatment}: the training split has {len(fitted):,} images only")
        pca = PCA(n_dims, whiten=kind == "whiten", svd_solver="covariance_eigh").fit(fitted)
        return np.asarray(pca.transform(vectors), np.float32)

    def _evaluation_file(self, name: str) -> Path:
        return self.out / "evaluations" / f"{name.replace(' ', '')}.parquet"

    def _task(self, images: Embeddings) -> RetrievalTask:
        files = EvaluationFiles(embeddings=images.path, labels=self.manifest, split=self.split)
        (task,) = get_protocol("leave-one-out").build_tasks(EvaluationInputs(files, images, images))
        # They count images without a label, which here are those of other splits.
        return replace(task, counts={})

    def write(self) -> tuple[ModelResults, list[Path]]:
        """Compare the models that did not fail, and write tables, figures and pages."""
        facts = tuple(self.facts[entry.name] for entry in self.models)
        if not self.results:
            failures = [f"{each.name}: {each.failure}" for each in facts]
            raise InputError(f"no model could be compared:\n{indented_list(failures)}")
        table = compare(self.results, self.config.reference)
        outcome = ModelResults(table, facts, self.results, self.split, n_excluded=len(self.missing_ids))
        differences = self._write_differences()
        inputs = {name: sha256_of(self._evaluation_file(name)) for name in self.results}
        made_of = Provenance("compare-models", {"reference": self.config.reference}, inputs)
        files = write_model_reports(outcome, self.out, made_of, has_differences=bool(differences))
        return outcome, [*files, *differences]

    def _write_differences(self) -> list[Path]:
        """Write the page of the queries on which the best two models differ most, without treatments."""
        untreated = [
            self.results[name] for name in self.files if name in self.results and "H-AP" in self.results[name].metrics
        ]
        pair = sorted(untreated, key=lambda result: -result.means["H-AP"])[:2]
        if len(pair) < 2:
            return []
        first, second = pair
        tasks = [self._task(self._read_compared_embeddings(result.name)) for result in (second, first)]
        differences = find_method_differences((second, first), (tasks[0], tasks[1]))
        if differences is None:
            return []
        ids = tasks[0].query_ids
        photos = manifest_photos(self.images, self.root or self.manifest.parent, ids, ids)
        page = self.out / "differences.html"
        title = f"{second.name} and {first.name}: largest differences"
        write_method_differences_page(differences, page, photos, title=title)
        return [page]


def _failure_line(error: Exception) -> str:
    """Return why a model failed in one line; see :func:`hgld.errors.failure_reason`."""
    return " ".join(failure_reason(error).split())


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
        root: Folder that the paths of the manifest are relative to. Default: that of the manifest.
        force: Whether to embed again what is up to date.
        progress: Progress in images.

    Returns:
        The results, and the files written.

    Raises:
        ConfigurationError: Two models have the same name, a treatment has no training split, or the manifest lacks a
            split.
        InputError: The manifest cannot be read, or every model fails.
        BusyError: Another comparison is writing to the folder.
    """
    comparison = ModelComparison(models, manifest, root, out, config or ModelComparisonConfig())
    out.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(out):
        comparison.run(force=force, progress=progress or NoProgress())
        return comparison.write()


def _adaptation(
    loss: str, data: Mapping[str, object], n_features: int, classes: npt.NDArray[np.int64]
) -> TrainingSettings:
    """Return the settings of a linear layer that begins as a PCA.

    They are those of the heads for Washington's photographs, which were chosen on training landmarks alone. With few
    images or classes to train on, dimensions and batches are smaller.
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
