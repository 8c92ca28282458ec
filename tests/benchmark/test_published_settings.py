"""Presets of the papers' tables against the settings that their authors published, key by key."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from hgld.benchmark.runs import read_benchmark, table_runs
from hgld.io.presets import training_presets
from hgld.io.settings import flatten, to_dict
from hgld.training.run import read_training_settings
from hgld.training.training_settings import TrainingSettings

PUBLISHED = yaml.safe_load(Path(__file__).with_name("published_settings.yaml").read_text(encoding="utf-8"))
FILES: dict[str, dict[str, list[str]]] = PUBLISHED["presets"]
#: Names of files whose facts hold for all methods of a comparison.
COMPARISONS = [file for file, rows in FILES.items() if "*" in rows]


def published(file: str, row: str) -> dict[str, Any]:
    """Return the published values of a preset by key."""
    values: dict[str, Any] = {}
    for source in (*FILES[file].get("shared", ()), *FILES[file][row]):
        values |= flatten(PUBLISHED["sources"][source])
    return values


def differences(settings: TrainingSettings, facts: dict[str, Any]) -> dict[str, Any]:
    """Return our values of the settings that differ from published ones."""
    values = flatten(to_dict(settings))
    return {key: values.get(key, "no such key") for key, fact in facts.items() if values.get(key, ...) != fact}


def known_differences(preset: str) -> dict[str, Any]:
    return {known["key"]: known["value"] for known in PUBLISHED["differences"] if preset in known["presets"]}


def test_every_preset_of_a_paper_has_published_settings_or_a_reason_why_not() -> None:
    known = {f"{file}/{row}" for file, rows in FILES.items() for row in rows if row not in ("shared", "*")}
    presets = {name for name in training_presets() if name.partition("/")[0] in FILES}
    assert presets == known | set(PUBLISHED["unpublished"])
    assert not known & set(PUBLISHED["unpublished"])


@pytest.mark.parametrize("file", [file for file in FILES if file not in COMPARISONS])
def test_presets_differ_from_published_settings_where_it_is_said(file: str) -> None:
    names = [f"{file}/{row}" for row in FILES[file] if row != "shared"]
    found = {name: differences(read_training_settings(name), published(*name.split("/"))) for name in names}
    assert found == {name: known_differences(name) for name in names}


@pytest.mark.parametrize("comparison", COMPARISONS)
def test_methods_have_the_published_settings_of_transformers(comparison: str) -> None:
    settings = read_benchmark(comparison).model_copy(update={"seeds": (0,)})
    for method, (run,) in table_runs(settings, Path("out")).items():
        assert differences(run.settings, published(comparison, "*")) == known_differences(f"{comparison}/{method}")
