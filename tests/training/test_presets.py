from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hgld.losses import LabelSpace, build_loss
from hgld.training.run import read_training_settings

FOLDER = Path(__file__).parents[2] / "pipelines" / "benchmarks"
PRESETS = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*/*.yaml") if path.name != "base.yaml")
#: The rows of the paper's tables.
TABLE_I = ["fast_ap", "softbin_ap", "blackbox_ap", "smooth_ap", "roadmap"]
TABLE_II = [
    "smooth_ap",
    "sup_ap",
    "roadmap_pairs",
    "roadmap",
    "recall",
    "sup_recall",
    "rod_recall_pairs",
    "rod_recall",
]
TABLE_V = ["triplet", "norm_softmax", "proxy_nca_pp", "smooth_ap", "triplet_sum", "norm_softmax_sum"]
TABLE_V += ["proxy_nca_pp_sum", "csl", "rod_ndcg", "happier", "happier_f"]
TABLE_VII = ["softbin_ap", "smooth_ap", "recall", "roadmap", "csl", "happier", "happier_f"]


def test_every_row_of_the_tables_has_a_preset() -> None:
    expected = {f"{data}/{name}.yaml" for data in ("sop", "inat") for name in (*TABLE_I, *TABLE_II, *TABLE_V)}
    expected |= {f"h-gldv2/{name}.yaml" for name in TABLE_VII}
    assert expected <= set(PRESETS)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_can_be_read_and_their_losses_built(preset: str) -> None:
    settings = read_training_settings(FOLDER / preset)
    levels = 2 if preset.startswith(("sop", "inat")) else 3
    labels = [[0] * levels, [1] + [0] * (levels - 1), [2] + [1] * (levels - 1)]
    build_loss(settings.loss, LabelSpace.from_labels(8, np.array(labels)))


def test_settings_are_those_of_the_authors() -> None:
    happier = read_training_settings(FOLDER / "sop" / "happier_f.yaml")
    assert happier.loss.options()["alpha"] == 5
    assert happier.loss.options()["variant"] == "cfg144"
    assert (happier.optimiser.backbone.lr, happier.optimiser.proxies.end_lr) == (5e-5, 0.1)
    assert happier.sampler.name == "hierarchical"
    inat = read_training_settings(FOLDER / "inat" / "roadmap_pairs.yaml")
    assert inat.loss.options()["decomposability"] == "pairs"
    assert inat.loss.options()["lambda_"] == 0.1
    assert inat.image.mean == (0.485, 0.456, 0.406)
    assert read_training_settings(FOLDER / "washington" / "happier.yaml").image.mean[0] > 0.49  # that of its backbone
    csl = read_training_settings(FOLDER / "h-gldv2" / "csl.yaml")
    assert (csl.optimiser.proxies.lr, csl.optimiser.head.lr) == (10, 1e-5)
    assert csl.model.backbone.startswith("resnet101")
