"""Presets of the tables of ROADMAP, the recall@k surrogate and Smooth-AP against published settings, key by key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hgld.benchmark.runs import read_benchmark, table_runs
from hgld.io.preset_files import training_presets
from hgld.io.settings import flatten, to_dict
from hgld.training.run import read_training_settings
from hgld.training.training_settings import TrainingSettings
from tests.benchmark.published_facts import Facts
from tests.benchmark.published_settings_recall import RECALL
from tests.benchmark.published_settings_roadmap import ROADMAP, ROADMAP_DEIT
from tests.benchmark.published_settings_smooth_ap import SMOOTH_AP

PAPERS = {"roadmap": ROADMAP, "recall": RECALL, "smooth_ap": SMOOTH_AP}
#: Presets of which nothing is published but their loss.
UNPUBLISHED = {"roadmap_sfm120k/contrastive"}


def differences(settings: TrainingSettings, facts: Facts) -> dict[str, tuple[Any, Any, str]]:
    """Return the settings that differ from published ones: theirs, the published value and its source."""
    values = flatten(to_dict(settings))
    missing = object()
    return {
        key: (values.get(key, "no such key"), fact.value, fact.source)
        for key, fact in facts.items()
        if values.get(key, missing) != fact.value
    }


@pytest.mark.parametrize("paper", PAPERS)
def test_presets_have_the_published_settings(paper: str) -> None:
    facts, presets = PAPERS[paper], training_presets()
    of_paper = {name for name in presets if name.startswith(f"{paper}_")}
    assert of_paper - UNPUBLISHED == set(facts)
    different = {name: differences(read_training_settings(presets[name]), facts[name]) for name in facts}
    assert {name: found for name, found in different.items() if found} == {}


@pytest.mark.parametrize("comparison", ROADMAP_DEIT)
def test_methods_have_the_published_settings_of_transformers(comparison: str) -> None:
    settings = read_benchmark(comparison).model_copy(update={"seeds": (0,)})
    for method, (run,) in table_runs(settings, Path("out")).items():
        facts = dict(ROADMAP_DEIT[comparison])
        if method == "blackbox_ap":
            del facts["mixed_precision"]
        assert differences(run.settings, facts) == {}, method
