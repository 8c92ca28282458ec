"""Every preset: those that ``hgld presets`` lists, and those of models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markdown_text import code, table
from option_tables import yaml_text

from hgld.benchmark.presets import TrainingPreset, list_presets
from hgld.models.model_settings import PRESETS


def preset_pages() -> dict[str, str]:
    """Return the page of all presets."""
    trainings, comparisons = list_presets()
    parts = [
        "# Presets",
        "Settings that come with hgld. `hgld presets NAME` prints all values of one, and where each comes from. A "
        "file of [settings](training_settings.md) extends one with `base: NAME`.",
        "## Trainings",
        "What `hgld train` takes. Tables are those of *Optimization of Rank Losses for Image Retrieval* unless "
        "another paper is named.",
        *_trainings(trainings),
        "## Comparisons",
        "What `hgld benchmark` takes.",
        table(
            ["preset", "title", "methods"],
            [
                [code(each.name), each.title, ", ".join(map(code, each.methods))]
                for each in comparisons
            ],
        ),
        "## Models",
        "What `model: {preset: NAME}` stands for, and `--model NAME` of `hgld embed-images`.",
        table(
            ["preset", "settings"],
            [[code(name), code(yaml_text(values))] for name, values in PRESETS.items()],
        ),
    ]
    return {"presets.md": "\n\n".join(parts) + "\n"}


def _trainings(presets: Sequence[TrainingPreset]) -> Iterator[str]:
    for images in dict.fromkeys(preset.images for preset in presets):
        yield f"### {images}"
        group = [preset for preset in presets if preset.images == images]
        rows = [[code(each.name), each.method, each.tables, code(each.backbone)] for each in group]
        yield table(["preset", "method", "table", "backbone"], rows)
