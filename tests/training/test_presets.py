from pathlib import Path

import numpy as np
import pytest

from hgld.errors import ConfigurationError, InputError
from hgld.io.presets import (
    comparison_file,
    comparison_presets,
    rejection_file,
    training_file,
    training_presets,
)
from hgld.losses import LabelSpace, build_loss
from hgld.training.run import read_training_settings

PRESETS = training_presets()
#: The rows of the paper's tables.
TABLE_I = ["fast_ap", "softbin_ap", "blackbox_ap", "smooth_ap", "roadmap"]
TABLE_II = [
    *("smooth_ap", "sup_ap", "roadmap_pairs", "roadmap", "recall", "sup_recall", "rod_recall_pairs"),
    "rod_recall",
]
TABLE_V = ["triplet", "norm_softmax", "proxy_nca_pp", "smooth_ap", "triplet_sum", "norm_softmax_sum"]
TABLE_V += ["proxy_nca_pp_sum", "csl", "rod_ndcg", "happier", "happier_f"]
TABLE_VII = ["softbin_ap", "smooth_ap", "recall", "roadmap", "csl", "happier", "happier_f"]


def test_every_row_of_the_tables_has_a_preset() -> None:
    expected = {f"{data}/{name}" for data in ("sop", "inat") for name in (*TABLE_I, *TABLE_II, *TABLE_V)}
    expected |= {f"h-gldv2/{name}" for name in TABLE_VII}
    assert expected <= set(PRESETS)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_can_be_read_and_their_losses_built(preset: str) -> None:
    settings = read_training_settings(preset, ["data.manifest=given.parquet"])
    levels = 2 if preset.startswith(("sop", "inat")) else 3
    labels = [[0] * levels, [1] + [0] * (levels - 1), [2] + [1] * (levels - 1)]
    build_loss(settings.loss, LabelSpace.from_labels(8, np.array(labels)))


def test_a_name_without_folder_is_for_images_of_your_own() -> None:
    assert training_file("happier") == PRESETS["own_images/happier"]
    assert training_file("HAPPIER") == PRESETS["own_images/happier"]
    assert training_file("H-GLDv2/HAPPIER_F") == PRESETS["h-gldv2/happier_f"]
    assert {name.partition("/")[2] for name in PRESETS if name.startswith("own_images/")} >= set(TABLE_VII)
    settings = read_training_settings("happier", ["data.manifest=mine.csv"])
    assert settings.model.pretrained == "efficientnet-lite0"  # from a package: nothing is downloaded
    assert settings.image.mean[0] > 0.49  # that of its backbone
    with pytest.raises(ConfigurationError, match="no images are named; give their table with `manifest`"):
        read_training_settings("happier")


def test_a_path_is_the_file_even_if_a_preset_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = Path("happier")
    own.write_text("base: sop/happier\nseed: 7\n")  # a file of one's own extends a preset by its name
    assert training_file("happier") == PRESETS["own_images/happier"]
    settings = read_training_settings("./happier")
    assert (settings.seed, settings.optimiser.backbone.lr) == (7, 5e-5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hapier", r'neither a preset nor a file "hapier"; did you mean happier, happier_f or sop/happier\?'),
        ("arcface", "did you mean h-gldv2/arcface"),
        ("triplet", r"did you mean dyml_animal/triplet, .*inat/triplet or .*sop/triplet\? `hgld presets` lists all"),
        ("washington", "is the preset of a comparison, not of a training; did you mean washington/csl, "),
        ("../washington/happier.yaml", "happier.yaml: no such file; the preset is called washington/happier"),
        ("../Washington/Happier.yaml", "Happier.yaml: no such file; the preset is called washington/happier"),
        ("../my-washington/happier.yaml", "happier.yaml: no such file$"),
        ("Washington", "is the preset of a comparison, not of a training"),
        ("TRIPLET", "did you mean dyml_animal/triplet, .*inat/triplet or .*sop/triplet"),
        ("settings.yaml", "settings.yaml: no such file$"),
    ],
)
def test_unknown_names_suggest_presets(name: str, message: str) -> None:
    with pytest.raises((ConfigurationError, InputError), match=message):
        training_file(name)


def test_comparisons_have_names() -> None:
    assert comparison_file("own_images") == comparison_presets()["own_images"]
    with pytest.raises(ConfigurationError, match='"happier" is the preset of a training, not of a comparison'):
        comparison_file("happier")


def test_comparisons_of_rejection_scores_have_names() -> None:
    assert rejection_file("Washington") == rejection_file("washington")
    with pytest.raises(ConfigurationError, match='neither a preset nor a file "paris"; .* are .*washington'):
        rejection_file("paris")
    with pytest.raises(InputError, match="paris.yaml: no such file; .* are .*washington"):
        rejection_file("paris.yaml")
