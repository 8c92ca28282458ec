"""Format the output of ``hgld train``."""

from __future__ import annotations

from hgld.cli.summaries.evaluation import format_means
from hgld.io.settings import to_yaml
from hgld.training.run import TrainingSummary
from hgld.training.training_images import TrainingImages


def format_training(summary: TrainingSummary) -> str:
    """Return a table of the first, the best and the last evaluation, the gain, and what could not be read."""
    names = list(summary.evaluations)
    first, best, last = names[0], summary.best, names[-1]
    rows = {
        f"{name}{' (best)' * (name == best)}": summary.evaluations[name]
        for name in dict.fromkeys((first, best, last))
    }
    gain = summary.evaluations[best][summary.metric] - summary.evaluations[first][summary.metric]
    lines = [
        format_means(rows),
        f"{summary.n_steps:,} steps; {summary.metric} {100 * gain:+.2f} from {first} to the best, {best}",
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
    """Return the numbers of training images, classes and test images."""
    train, test = images.train.manifest, images.test.manifest
    classes = ", ".join(f"{n:,} {name}" for n, name in zip(train.n_classes, train.level_names, strict=True))
    ranked = f"{len(test):,} images ranked against each other"
    if images.is_query is not None:
        ranked = f"{int(images.is_query.sum()):,} queries, {int((~images.is_query).sum()):,} in the gallery"
    return f"train: {len(train):,} images, classes by level: {classes}\ntest: {ranked}"
