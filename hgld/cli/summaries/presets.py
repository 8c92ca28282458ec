"""Format the output of ``hgld presets``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from hgld.benchmark.presets import ComparisonPreset, ResolvedSetting, TrainingPreset
from hgld.cli.render import aligned


def format_presets(trainings: Sequence[TrainingPreset], comparisons: Sequence[ComparisonPreset]) -> str:
    """Return a table of the presets of each kind, and where the weights of their backbones come from."""
    rows = [(preset.name, preset.method, preset.tables, preset.backbone, preset.images) for preset in trainings]
    lines = [
        *aligned(["hgld train", "method", "table", "backbone", "images"], rows),
        "",
        *aligned(
            ["hgld benchmark", "methods", "title"],
            [(preset.name, str(len(preset.methods)), preset.title) for preset in comparisons],
        ),
        "",
        "Tables are those of Optimization of Rank Losses for Image Retrieval (Ramzi et al.) unless another paper is",
        "named: ROADMAP, Patel et al. (the recall@k surrogate) or Brown et al. (Smooth-AP). The weights of",
        "efficientnet-lite0, -lite1 and -lite2 come with the extra offline, features from hgld embed-images; weights",
        "of other backbones are downloaded from timm's hub once.",
    ]
    return "\n".join(lines)


def format_resolved(path: Path, settings: Sequence[ResolvedSetting]) -> str:
    """Return all settings of a preset, the origin of each, and its file."""
    rows = [(setting.key, setting.origin, _text(setting.value)) for setting in settings]
    return "\n".join([*aligned(["setting", "from", "value"], rows), "", str(path)])


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
