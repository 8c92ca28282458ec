"""The model card of a published model: metadata for the Hugging Face hub, and what readers need to know."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from hgld.evaluation.results import shown_value
from hgld.io.markdown import markdown_table
from hgld.models.image_embedder import ImageEmbedder
from hgld.version import __version__

_TEMPLATE = Path(__file__).parents[1] / "templates" / "models" / "README.md"
_TASK = "image-feature-extraction"
_TAGS = ("image-retrieval", "metric-learning", "hierarchical-labels")


@dataclass(frozen=True)
class ModelEvaluation:
    """Mean metrics of a model on a data set.

    Args:
        dataset: Name of the data set.
        protocol: Name of the evaluation, such as ``leave-one-out``.
        means: Mean of each metric, from 0 to 1; undefined ones are NaN.
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
    """What a model card says besides the settings of the model.

    Args:
        title: Name of the model.
        source: How :func:`hgld.load_model` finds it, such as ``hf:owner/name``.
        training: Contents of ``training.json``; None if hgld did not train the model.
        evaluations: Evaluations of the model.
        license: Licence of the weights, by its identifier on the hub; None if it was not stated.
        datasets: Names of data sets on the hub that the model was trained on.
    """

    title: str
    source: str
    training: Mapping[str, Any] | None
    evaluations: Sequence[ModelEvaluation] = ()
    license: str | None = None
    datasets: Sequence[str] = ()


def model_card(model: ImageEmbedder, facts: CardFacts) -> str:
    """Return the text of ``README.md``."""
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        metadata=_metadata(facts),
        title=facts.title,
        source=facts.source,
        dim=model.dim,
        description=_description(model, facts.training),
        model=_model_table(model),
        training=_training_text(facts.training),
        evaluation=_evaluation_text(facts.evaluations),
    )


def _metadata(facts: CardFacts) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    results = [
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
        for evaluation in facts.evaluations
        for name, mean in evaluation.means.items()
        if math.isfinite(mean)
    ]
    data = ModelCardData(
        license=facts.license,
        library_name="hgld",
        pipeline_tag=_TASK,
        tags=list(_TAGS),
        datasets=list(facts.datasets) or None,
        metrics=list(dict.fromkeys(result.metric_type for result in results)) or None,
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
    norm = "LayerNorm" if settings.layer_norm else "L2 norm" if settings.l2_norm else "none"
    if settings.layer_norm_learnt:
        norm = "LayerNorm with learnt weight and bias"
    rows = [
        ["backbone", f"`{settings.backbone}`"],
        ["pooling", settings.pooling],
        ["norm before the projection", norm],
        ["projection", f"{settings.dim} dimensions" if settings.dim else "none"],
        ["images", image.describe()],
        ["mean, standard deviation", f"{_numbers(image.mean)}; {_numbers(image.std)}"],
        ["parameters", f"{sum(parameter.numel() for parameter in model.network.parameters()):,}"],
    ]
    return markdown_table(["", ""], rows)


def _training_text(training: Mapping[str, Any] | None) -> str:
    if training is None:
        return "The weights are those that the model came with; see its authors for their training and licence."
    settings = training["settings"]
    split_rows = []
    if split := settings["data"]["random_split"]:
        level = f"level `{split['level']}`" if split["level"] else "finest level"
        share = f"{split['test_share']:.4g} of the classes of the {level} for testing, seed {split['seed']}"
        split_rows.append(["random split", share])
    rows = [
        ["loss", f"`{settings['loss']['name']}`"],
        ["batch size", str(settings["batch_size"])],
        ["epochs, steps", f"{training['epoch']}, {training['step']:,} ({_selection_text(training)})"],
        ["seed", str(settings["seed"])],
        *split_rows,
        *([f"version of {name}", version] for name, version in training["versions"].items()),
    ]
    digests = [[f"`{settings['data'][name]}`", f"`{digest}`"] for name, digest in training["digests"].items()]
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
    metrics = list(dict.fromkeys(name for evaluation in evaluations for name in evaluation.means))
    rows = [
        [
            evaluation.dataset,
            evaluation.protocol,
            *(_cell(name, evaluation.means.get(name, math.nan)) for name in metrics),
            "" if evaluation.n_queries is None else f"{evaluation.n_queries:,}",
        ]
        for evaluation in evaluations
    ]
    return markdown_table(["mean in %", "protocol", *metrics, "queries"], rows, n_numeric=len(metrics) + 1)


def _cell(metric: str, mean: float) -> str:
    return f"{shown_value(metric, mean):.2f}" if math.isfinite(mean) else ""


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)
