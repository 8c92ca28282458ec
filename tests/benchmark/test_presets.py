"""``hgld presets``: what the presets are, and where their values come from."""

import re
from pathlib import Path

import pytest

from hgld.benchmark.presets import list_presets, resolve_preset
from hgld.benchmark.runs import read_benchmark, table_runs
from hgld.errors import ConfigurationError, InputError
from hgld.io.presets import comparison_presets, training_presets
from hgld.resources import preset_folder
from hgld.training.run import read_training_settings
from tests.commands import run_hgld


def test_presets_are_listed_with_their_tables() -> None:
    trainings, comparisons = list_presets()
    assert len(trainings) == len(training_presets())
    assert all(preset.method and preset.backbone and preset.images for preset in trainings)
    listed = {preset.name: (preset.method, preset.tables, preset.backbone, preset.images) for preset in trainings}
    assert listed["happier"] == ("HAPPIER (Eq. 22)", "", "efficientnet-lite0", "Your own images")
    assert listed["h-gldv2/happier_f"] == ("HAPPIER_F (Sec. V-A1)", "VII", "resnet101-gem-pca", "H-GLDv2")
    assert listed["h-gldv2/arcface"][1] == ""
    assert listed["sop/smooth_ap"][1] == "I, II, V, IX"
    assert listed["roadmap_sop/smooth_ap"][1] == "ROADMAP 1, 3, 5 to 7"
    assert listed["recall_sop/recall"][1] == "Patel et al. 2"
    assert listed["roadmap_in_shop/roadmap"][1] == ""
    of_paper = [preset for preset in trainings if preset.name.startswith(("sop/", "inat/"))]
    assert all(preset.tables for preset in of_paper)
    assert {preset.name: len(preset.methods) for preset in comparisons}["h-gldv2"] == 10


@pytest.mark.parametrize("name", ["happier", "sop/happier", "washington_head/untrained"])
def test_resolved_settings_name_their_origin(name: str) -> None:
    settings = {setting.key: setting for setting in resolve_preset(name)[1]}
    folder = "own_images" if "/" not in name else name.partition("/")[0]
    assert settings["data.test"].origin == f"{folder}.yaml/shared"
    assert settings["loss.name"].origin == f"{folder}.yaml/{name.rpartition('/')[2]}"
    assert settings["seed"].origin == "default"
    if name == "sop/happier":
        assert (settings["model.dim"].value, settings["model.dim"].origin) == (512, "model preset resnet50")
        assert settings["image.mean"].origin == "backbone"
    if name == "happier":
        assert settings["data.manifest"].origin == "to be given: --manifest"


def test_command_prints_all_presets_or_one() -> None:
    everything = run_hgld("presets")
    names = {line.split("  ")[0] for line in everything.stdout.splitlines()}
    assert names >= {name.removeprefix("own_images/") for name in training_presets()} | set(comparison_presets())
    one = run_hgld("presets", "own_images").stdout
    assert "methods.happier.training" in one
    assert "own_images.yaml/happier" in one


def test_comparison_of_own_files_names_presets(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "title: Mine\nmethods:\n"
        "  own: {title: Own, training: own_images/happier}\n  paper: {title: Paper, training: sop/happier}\n"
        "  mine: {title: Mine}\nshared: {base: sop/happier}\ntrainings: {mine: {seed: 3}}\n"
    )
    methods = read_benchmark(path).methods
    assert (
        table_runs(read_benchmark(path), tmp_path, ["data.manifest=mine.csv"])["mine"][
            0
        ].settings.optimiser.backbone.lr
        == 5e-5
    )
    presets = training_presets()
    assert {name: method.training for name, method in methods.items()} == {
        "own": presets["own_images/happier"],
        "paper": presets["sop/happier"],
        "mine": path / "mine",
    }


def test_a_file_has_several_comparisons_of_its_trainings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.yaml"
    path.write_text(
        "comparisons:\n"
        "  first:\n    title: First\n    columns: [R@1]\n"
        "    methods: {mine: {title: Mine}, own: {title: Own, training: own.yaml}}\n"
        "  second: {base: first, title: Second}\n"
        "  broken: {base: first, metric: [R@1]}\n"
        "shared: {base: sop/happier}\ntrainings: {mine: {seed: 3}}\n"
    )
    first, second = read_benchmark(path / "first"), read_benchmark("mine.yaml/second")
    assert {name: method.training for name, method in first.methods.items()} == {
        "mine": path / "mine",
        "own": tmp_path / "own.yaml",
    }
    assert (second.title, second.columns) == ("Second", ("R@1",))
    assert second.methods["mine"].training == Path("mine.yaml/mine")
    with pytest.raises(
        ConfigurationError, match="mine.yaml/broken: metric: there is no such setting; did you mean metrics"
    ):
        read_benchmark(path / "broken")
    with pytest.raises(InputError, match=r"mine\.yaml: there is no row secnd; did you mean second\?"):
        read_benchmark("mine.yaml/secnd")


def test_a_file_that_has_rows_alone_names_them(tmp_path: Path) -> None:
    path = preset_folder() / "sop.yaml"
    rows = "sop_rank_losses, sop_ablation, sop_memory, sop_state_of_the_art, sop_hierarchical"
    message = f"{path}: its comparisons are rows; give one as {path}/ROW: {rows}"
    for command in (
        ("benchmark", path, "-o", tmp_path / "out"),
        ("benchmark", path, "-o", tmp_path / "out", "--plan"),
    ):
        result = run_hgld(*command, code=1)
        assert result.stderr == f"error: {message}\n"
    with pytest.raises(
        InputError, match=f"^{re.escape(f'{path}: its trainings are rows; give one as {path}/ROW: ')}"
    ):
        read_training_settings(path)
    assert not (tmp_path / "out").exists()


def test_a_training_and_a_comparison_of_the_same_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("trainings: {mine: {base: sop/happier}}\ncomparisons: {mine: {title: Mine}}\n")
    with pytest.raises(InputError, match=r"mine is a row of both trainings and comparisons; rename one of them$"):
        read_training_settings(path / "mine")


def test_rows_of_comparisons_are_presets_under_their_own_names() -> None:
    assert comparison_presets()["sop_memory"] == training_presets()["sop/xbm"].with_name("sop_memory")
    assert list(comparison_presets()) == sorted(comparison_presets())
    assert "sop" not in comparison_presets()  # it has trainings and comparisons, but is none itself
