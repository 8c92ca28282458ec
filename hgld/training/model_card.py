"""Model cards: the README.md of a published model, with its metadata for the Hugging Face hub."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

from hgld.evaluation.metric_units import percent_title, shown_value
from hgld.io.licences import model_fields
from hgld.io.markdown import markdown_table
from hgld.models.image_embedder import ImageEmbedder
from hgld.training.push_settings import PushConfig
from hgld.version import __version__

_TEMPLATE = Path(__file__).parents[1] / "templates" / "models" / "README.md"
_TASK = "image-feature-extraction"
_TAGS = ("image-retrieval", "metric-learning", "hierarchical-labels")


@dataclass(frozen=True)
class ModelEvaluation:
    """Mean metrics of a model on a data set.

    Args:
        protocol: Name of the evaluation, such as ``leave-one-out``.
        means: Mean of each metric: a share from 0 to 1, or a distance in levels; NaN if it is undefined.
        n_queries: Number of queries; None if unknown.
        digest: SHA-256 of the manifest of the images; None if unknown.
    """

    dataset: str
    protocol: str
    means: Mapping[str, float]
    n_queries: int | None = None
    digest: str | None = None


@dataclass(frozen=True)
class CardFacts:
    """Contents of a model card besides the settings of the model.

    Args:
        source: Name by which :func:`hgld.load_model` finds the model, such as ``hf:owner/name``.
        training: Contents of ``training.json``; None if hgld did not train the model.
        evaluations: Evaluations of the training and of files of ``hgld evaluate --json``.
        config: Description of the model; the card takes its licence and its data sets on the hub.
    """

    title: str
    source: str
    training: Mapping[str, Any] | None
    evaluations: Sequence[ModelEvaluation] = ()
    config: PushConfig = field(default_factory=PushConfig)


def model_card(model: ImageEmbedder, facts: CardFacts) -> str:
    """Return the text of ``README.md``."""
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        metadata=_metadata(facts),
        title=facts.title,
        source=facts.source,
        dim=model.dim,
        vectors=_vectors(model),
        description=_description(model, facts.training),
        model=_model_table(model),
        training=_training_text(facts.training),
        evaluation=_evaluation_text(facts.evaluations),
    )


def _vectors(model: ImageEmbedder) -> str:
    """Describe the embeddings, and how they are compared."""
    if model.settings.distance == "cosine":
        return f"unit vector of {model.dim} numbers; similar images have a high cosine similarity"
    name = {"euclidean": "Euclidean", "poincare": "Poincaré"}[model.settings.distance]
    return f"vector of {model.dim} numbers; similar images have a small {name} distance"


def _metadata(facts: CardFacts) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    results = []
    metrics: dict[str, None] = {}
    for evaluation in facts.evaluations:
        for name, mean in evaluation.means.items():
            if not math.isfinite(mean):
                continue
            metrics[name] = None
            results.append(
                EvalResult(
                    task_type=_TASK,
                    task_name="Image retrieval",
                    dataset_name=evaluation.dataset,
                    dataset_type=evaluation.dataset,
                    dataset_revision=evaluation.digest,
                    metric_type=name,
                    metric_value=round(mean, 6),
                    metric_name=f"{name} ({evaluation.protocol})",
                )
            )
    licence = {}
    if facts.config.license is not None:
        licence = model_fields(facts.config.license)
    data = ModelCardData(
        license=licence.get("license"),
        license_name=licence.get("license_name"),
        license_link=licence.get("license_link"),
        library_name="hgld",
        pipeline_tag=_TASK,
        tags=list(_TAGS),
        datasets=list(facts.config.datasets) or None,
        metrics=list(metrics) or None,
        model_name=facts.title,
        eval_results=results or None,
    )
    return data.to_yaml()


def _description(model: ImageEmbedder, training: Mapping[str, Any] | None) -> str:
    backbone = f"`{model.settings.backbone}`"
    if training is None or training["step"] == 0:
        return f"The image model {backbone}, as hgld {__version__} embeds with it; hgld did not train it."
    settings = training["settings"]
    return (
        f"{backbone} trained for image retrieval by hgld with the loss `{settings['loss']['name']}`, on the split "
        f"`{settings['data']['train']}` of `{settings['data']['manifest']}`."
    )


def _model_table(model: ImageEmbedder) -> str:
    settings, image = model.settings, model.image_settings
    if settings.layer_norm_learnt:
        norm = "LayerNorm with learnt weight and bias"
    elif settings.layer_norm:
        norm = "LayerNorm"
    elif settings.l2_norm:
        norm = "L2 norm"
    else:
        norm = "none"
    n_parameters = sum(parameter.numel() for parameter in model.network.parameters())
    rows = [
        ["backbone", f"`{settings.backbone}`"],
        ["pooling", settings.pooling],
        ["norm before the projection", norm],
        ["projection", f"{settings.dim} dimensions" if settings.dim else "none"],
        ["images", image.describe()],
        ["mean, standard deviation", f"{_numbers(image.mean)}; {_numbers(image.std)}"],
        ["parameters", f"{n_parameters:,}"],
    ]
    return markdown_table(["", ""], rows)


def _training_text(training: Mapping[str, Any] | None) -> str:
    if training is None:
        return "The weights are those that the model came with; see its authors for their training and licence."
    settings = training["settings"]
    length = f"{training['epoch']}, {training['step']:,} ({_selection_text(training)})"
    rows = [
        ["loss", f"`{settings['loss']['name']}`"],
        ["batch size", str(settings["batch_size"])],
        ["epochs, steps", length],
        ["seed", str(settings["seed"])],
    ]
    split = settings["data"]["random_split"]
    if split:
        level = f"level `{split['level']}`" if split["level"] else "finest level"
        share = f"{split['test_share']:.4g} of the classes of the {level} for testing, seed {split['seed']}"
        rows.append(["random split", share])
    for name, version in training["versions"].items():
        rows.append([f"version of {name}", version])
    digests = []
    for name, digest in training["digests"].items():
        digests.append([f"`{settings['data'][name]}`", f"`{digest}`"])
    return (
        f"{markdown_table(['', ''], rows)}\n\n`training.json` holds all settings. The data, by their SHA-256:\n\n"
        f"{markdown_table(['file', 'SHA-256'], digests)}"
    )


def _selection_text(training: Mapping[str, Any]) -> str:
    if training["checkpoint"] != "best.pt":
        return f"`{training['checkpoint']}`"
    settings = training["settings"]
    return f"selected by {settings['evaluation']['best']} on the split `{settings['data']['val'] or 'val'}`"


def _evaluation_text(evaluations: Sequence[ModelEvaluation]) -> str:
    if not evaluations:
        return "None was recorded."
    metrics: dict[str, None] = {}
    for evaluation in evaluations:
        metrics |= dict.fromkeys(evaluation.means)
    rows = []
    for evaluation in evaluations:
        row = [evaluation.dataset, evaluation.protocol]
        for name in metrics:
            mean = evaluation.means.get(name, math.nan)
            row.append(f"{shown_value(name, mean):.2f}" if math.isfinite(mean) else "")
        row.append("" if evaluation.n_queries is None else f"{evaluation.n_queries:,}")
        rows.append(row)
    header = ["mean in %", "protocol"]
    for name in metrics:
        header.append(percent_title(name))
    header.append("queries")
    return markdown_table(header, rows, n_numeric=len(metrics) + 1)


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)
