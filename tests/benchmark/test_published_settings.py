"""Presets of the TPAMI paper's tables against the settings that its authors published, key by key."""

from __future__ import annotations

import pytest

from hgld.io.preset_files import training_presets
from hgld.training.run import read_training_settings
from tests.benchmark.published_settings_suprank import KNOWN_DIFFERENCES, SUPRANK, UNPUBLISHED
from tests.benchmark.test_published_settings_of_papers import differences

FOLDERS = ("cub", "dyml_animal", "dyml_product", "dyml_vehicle", "h-gldv2", "inat", "sop")


def test_every_preset_of_the_paper_has_facts() -> None:
    presets = {name for name in training_presets() if name.partition("/")[0] in FOLDERS}
    assert presets == set(SUPRANK) | set(UNPUBLISHED)
    assert not set(SUPRANK) & set(UNPUBLISHED)


@pytest.mark.parametrize("folder", FOLDERS)
def test_settings_differ_from_published_ones_where_it_is_said(folder: str) -> None:
    names = [name for name in SUPRANK if name.startswith(f"{folder}/")]
    found, known = {}, {}
    for name in names:
        different = differences(read_training_settings(training_presets()[name]), SUPRANK[name])
        found[name] = {key: ours for key, (ours, _, _) in different.items()}
        known[name] = {key: difference.value for key, difference in KNOWN_DIFFERENCES.get(name, {}).items()}
    assert found == known
