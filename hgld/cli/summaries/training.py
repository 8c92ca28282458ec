"""Format the output of ``hgld train``."""

from __future__ import annotations

from hgld.cli.summaries.evaluation import format_means
from hgld.evaluation.results import shown_value
from hgld.io.settings import to_yaml
from hgld.training.run import TrainingSummary
from hgld.training.training_images import TrainingImages


def format_training(summary: TrainingSummary) -> str:
    """Return a table of the first evaluation and the result, the gain, and what could not be read."""
    test, metric, result = summary.test, summary.metric, summary.result
    first = next(iter(test))
    gain = shown_value(metric, test[result][metric]) - shown_value(metric, test[first][metric])
    selection = (
        f"the best on val ({shown_value(metric, summary.val[result]):.2f})"
        if summary.val
        else "the last: there is no split val to select one on"
    )
    lines = [
        format_means({name: test[name] for name in (first, result)}),
        f"{summary.n_steps:,} steps; {metric} {gain:+.2f} from {first} to {result}, {selection}",
    ]
    if summary.n_skipped_images:
        lines.append(
            f"{summary.n_skipped_images:,} images could not be read (skipped.csv); "
            f"{summary.n_skipped_batches:,} batches were skipped, with too few images left"
        )
    return "\n".join(lines)


def format_plan(images: TrainingImages) -> str:
    """Return all settings, and the numbers of images, classes, batches and steps."""
    about = "about " if getattr(images.settings.sampler, "packing", None) == "greedy" else ""
    return (
        f"{to_yaml(images.settings)}\n{format_images(images)}\n"
        f"{about}{images.sampler.n_batches(0):,} batches per epoch, {images.n_steps:,} steps"
    )


def format_images(images: TrainingImages) -> str:
    """Return the numbers of training images, classes, validation and test images."""
    train, test = images.train.manifest, images.test.manifest
    classes = ", ".join(f"{n:,} {name}" for n, name in zip(train.n_classes, train.level_names, strict=True))
    ranked = f"{len(test):,} images ranked against each other"
    if images.is_query is not None:
        ranked = f"{int(images.is_query.sum()):,} queries, {int((~images.is_query).sum()):,} in the gallery"
    val = "" if images.val is None else f"val: {len(images.val):,} images ranked against each other\n"
    return f"train: {len(train):,} images, classes by level: {classes}\n{val}test: {ranked}"
