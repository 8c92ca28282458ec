from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import ConfigurationError, InputError
from hgld.io.yaml_files import plain, read_settings, to_yaml
from hgld.training.training_settings import TrainingSettings

BASE = """
model: {backbone: resnet18, pretrained: false}
data: {manifest: manifest.parquet, test: test}
loss: {name: happier, lambda: 0.1}
epochs: 2
optimiser:
  backbone: {lr: 1e-5}
  head: {lr: 2e-5}
"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write(tmp_path / "base.yaml", BASE)


def read(path: Path, *overrides: str) -> TrainingSettings:
    return read_settings(TrainingSettings, path, overrides)


def problems(path: Path, *overrides: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read(path, *overrides)
    return str(caught.value)


def test_values_arrive_with_their_types(base: Path) -> None:
    settings = read(base)
    assert settings.optimiser.backbone.lr == 1e-5  # a text to YAML 1.1
    assert settings.mixed_precision == "off"
    assert settings.loss.options()["lambda_"] == 0.1
    assert settings.data.manifest == Path("manifest.parquet")


def test_a_file_is_laid_over_the_one_it_builds_upon(base: Path, tmp_path: Path) -> None:
    write(tmp_path / "sub" / "middle.yaml", "base: ../base.yaml\noptimiser: {head: {lr: 1}}\nseed: 5\n")
    top = write(tmp_path / "sub" / "top.yaml", "base: middle.yaml\nseed: 6\nmixed_precision: off\n")
    settings = read(top, "optimiser.head.weight_decay=0.5")
    assert (settings.seed, settings.optimiser.head.lr, settings.optimiser.backbone.lr) == (6, 1.0, 1e-5)
    assert settings.optimiser.head.weight_decay == 0.5
    assert settings.mixed_precision == "off"


def test_another_loss_has_none_of_the_options_of_the_first(base: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other.yaml", "base: base.yaml\nloss: {name: triplet, margin: 0.2}\n")
    assert read(other).loss.options()["margin"] == 0.2
    assert read(other, "loss.name=happier").loss.options()["lambda_"] == 0.1  # its default
    assert read(base, "loss.lambda=0.3").loss.options()["lambda_"] == 0.3


def test_files_that_build_upon_each_other(tmp_path: Path) -> None:
    first = write(tmp_path / "first.yaml", "base: second.yaml\n")
    write(tmp_path / "second.yaml", "base: first.yaml\n")
    with pytest.raises(InputError, match=r"first\.yaml: builds upon itself"):
        read(first)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "cannot be read as YAML"),
        ("- 1", "expected settings such as"),
        ("base: nowhere.yaml", r'nowhere\.yaml: no such file, which .*top\.yaml names as its "base"'),
    ],
)
def test_files_that_are_no_settings(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(write(tmp_path / "top.yaml", text))


def test_all_that_is_wrong_is_told_with_file_key_and_suggestion(base: Path, tmp_path: Path) -> None:
    top = write(
        tmp_path / "top.yaml",
        "base: base.yaml\nbatchsize: 3\nloss: {lamda: 0.3}\noptimiser: {backbone: {name: adan}}\nimage: {size: big}\n"
        "sampler: {name: class_balanced, super_classes: 3}\nmemory: {sise: 3}\n",
    )
    said = problems(top, "seed=-1", "model.dimension=3", "clip_norm=x")
    assert said.splitlines()[0] == "wrong settings, 9 in all:"
    assert f"{top}: batchsize: there is no such setting; did you mean batch_size?" in said
    assert f"{top}: loss.lamda: there is no such setting; did you mean lambda?" in said
    assert f'{top}: optimiser.backbone.name: found "adan"; did you mean adam?' in said
    assert f'{top}: image.size: expected a valid integer, found "big"' in said
    assert f"{top}: sampler.super_classes: there is no such setting; did you mean per_class?" in said
    assert f"{top}: memory.sise: there is no such setting; did you mean size?" in said
    assert "--set: seed: expected greater than or equal to 0, found -1" in said
    assert "--set: model.dimension: there is no such setting" in said
    assert '--set: clip_norm: expected a valid number, found "x"' in said


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("loss.name=hapier", '--set: loss.name: found "hapier"; did you mean happier?'),
        ("loss={lambda: 1}", "--set: loss: its name is missing"),
        ("loss=happier", "--set: loss: expected settings of its own ('key: value'), found \"happier\""),
        ("steps=3", "give either epochs or steps"),
        ("batch_size=6", "batch_size 6 is no multiple of 4 per class"),
        ("data.queries=q", "--set: data: give either test (leave-one-out), or queries and gallery"),
        ("optimiser.head.momentum=0.9", "momentum is a setting of sgd, not of adam"),
        ("evaluation={metrics: [R@1], best: H-AP}", '"H-AP" is to choose the best, but it is not among the metrics'),
        ("data={test: test}", "data.manifest: is missing"),
        ("lr", "--set lr: expected KEY=VALUE"),
        ("a..b=1", "--set a..b=1: expected KEY=VALUE"),
        ("seed=[", "--set seed=[: the value is no YAML"),
    ],
)
def test_a_wrong_setting_is_told(base: Path, override: str, message: str) -> None:
    # A mapping without a name is laid over the one below it, so that is made empty first.
    kept = base.read_text().replace("{name: happier, lambda: 0.1}", "{}") if override.startswith("loss={") else None
    if override.startswith("data={"):
        kept = base.read_text().replace("{manifest: manifest.parquet, test: test}", "{}")
    if kept:
        base.write_text(kept)
    assert message in problems(base, override)


def test_what_is_written_can_be_read_again(base: Path, tmp_path: Path) -> None:
    settings = read(base, "mixed_precision=bf16", "image.mean=[0, 0, 1e-7]")
    again = write(tmp_path / "settings.yaml", to_yaml(settings))
    assert read(again) == settings
    assert plain(read(again))["loss"]["lambda"] == 0.1
    assert yaml.safe_load(again.read_text())["mixed_precision"] == "bf16"


@given(st.floats(allow_nan=False))
def test_numbers_are_read_as_they_are_written(number: float) -> None:
    from hgld.io.yaml_files import _Loader

    for text in (repr(number).replace("inf", ".inf"), yaml.safe_dump(number).split("\n")[0]):
        found = yaml.load(text, _Loader)
        assert isinstance(found, float)
        assert found == number
