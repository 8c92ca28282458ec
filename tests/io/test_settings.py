from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import ConfigurationError, InputError
from hgld.io.settings import read_origins, read_settings, to_dict, to_yaml
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


def test_values_have_the_types_of_yaml_1_2(base: Path) -> None:
    settings = read(base)
    assert settings.optimiser.backbone.lr == 1e-5  # a string in YAML 1.1
    assert settings.mixed_precision == "off"
    assert settings.loss.options()["lambda_"] == 0.1
    assert settings.data.manifest == Path("manifest.parquet")


def test_file_overrides_its_base(base: Path, tmp_path: Path) -> None:
    write(tmp_path / "sub" / "middle.yaml", "base: ../base.yaml\noptimiser: {head: {lr: 1}}\nseed: 5\n")
    top = write(tmp_path / "sub" / "top.yaml", "base: middle.yaml\nseed: 6\nmixed_precision: off\n")
    settings = read(top, "optimiser.head.weight_decay=0.5")
    assert (settings.seed, settings.optimiser.head.lr, settings.optimiser.backbone.lr) == (6, 1.0, 1e-5)
    assert settings.optimiser.head.weight_decay == 0.5
    assert settings.mixed_precision == "off"


def test_mapping_with_another_name_replaces_the_lower_one(base: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other.yaml", "base: base.yaml\nloss: {name: triplet, margin: 0.2}\n")
    assert read(other).loss.options()["margin"] == 0.2
    assert read(other, "loss.name=happier").loss.options()["lambda_"] == 0.1  # its default
    assert read(base, "loss.lambda=0.3").loss.options()["lambda_"] == 0.3


def test_circular_bases_are_refused(tmp_path: Path) -> None:
    first = write(tmp_path / "first.yaml", "base: second.yaml\n")
    write(tmp_path / "second.yaml", "base: first.yaml\n")
    with pytest.raises(InputError, match=r"first\.yaml: extends itself"):
        read(first)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "cannot be read as YAML"),
        ("- 1", "expected settings such as"),
        ("base: nowhere.yaml", r'nowhere\.yaml: no such file, which .*top\.yaml names as its "base"'),
    ],
)
def test_invalid_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(write(tmp_path / "top.yaml", text))


def bomb(levels: int, begin: str = "[", end: str = "]", separator: str = ", ") -> str:
    """Return YAML in which each level repeats the one below nine times."""
    lines = [f"a0: &a0 {begin}{'x: 1' if begin == '{' else 'x'}{end}"]
    for level in range(1, levels):
        parts = [f"k{n}: *a{level - 1}" if begin == "{" else f"*a{level - 1}" for n in range(9)]
        lines.append(f"a{level}: &a{level} {begin}{separator.join(parts)}{end}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "text",
    [
        bomb(12),
        bomb(12, "{", "}"),
        "\n".join(f"- {line.partition(': ')[2]}" for line in bomb(12).splitlines()),
    ],
)
def test_aliases_that_repeat_values_too_often_are_refused(base: Path, tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "bomb.yaml", text)
    with pytest.raises(
        InputError, match=r"aliases \(\*name\) repeat values until there are more than 100,000"
    ) as caught:
        read(path)
    assert len(str(caught.value)) < 500
    value = ", ".join(line.partition(": ")[2] for line in bomb(8).splitlines())
    assert "repeat values until" in problems(base, f"seed=[{value}]")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("&a [*a]", "refers to itself by its alias"),
        ("seed: &a {b: *a}", "refers to itself by its alias"),
        (
            f"[{', '.join(['word'] * 10_000)}]",
            r"expected settings such as 'batch_size: 256', found \['word', .{,100}…$",
        ),
        ("[" * 50_000, "cannot be read as YAML"),
    ],
)
def test_odd_files_have_short_messages(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read(write(tmp_path / "odd.yaml", text))
    assert len(str(caught.value)) < 500


def test_aliases_may_repeat_values(base: Path) -> None:
    anchored = BASE.replace("{lr: 1e-5}", "&rate {lr: 1e-5}").replace("{lr: 2e-5}", "*rate")
    assert read(write(base, anchored)).optimiser.head.lr == 1e-5


def test_error_lists_all_problems_with_file_key_and_suggestion(base: Path, tmp_path: Path) -> None:
    top = write(
        tmp_path / "top.yaml",
        "base: base.yaml\nbatchsize: 3\nloss: {lamda: 0.3}\noptimiser: {backbone: {name: adan}}\nimage: {size: big}\n"
        "sampler: {name: class_balanced, super_classes: 3}\nmemory: {sise: 3}\n",
    )
    message = problems(top, "seed=-1", "model.dimension=3", "clip_norm=x")
    assert message.splitlines()[0] == "invalid settings, 9 in all:"
    assert f"{top}: batchsize: there is no such setting; did you mean batch_size?" in message
    assert f"{top}: loss.lamda: there is no such setting; did you mean lambda?" in message
    assert f'{top}: optimiser.backbone.name: found "adan"; did you mean adam?' in message
    assert f'{top}: image.size: expected a valid integer, found "big"' in message
    assert f"{top}: sampler.super_classes: there is no such setting; did you mean per_class?" in message
    assert f"{top}: memory.sise: there is no such setting; did you mean size?" in message
    assert "`overrides`: seed: expected greater than or equal to 0, found -1" in message
    assert "`overrides`: model.dimension: there is no such setting" in message
    assert '`overrides`: clip_norm: expected a valid number, found "x"' in message


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("loss.name=hapier", '`overrides`: loss.name: found "hapier"; did you mean happier?'),
        ("loss.name=HAPPIER", '`overrides`: loss.name: found "HAPPIER"; did you mean happier?'),
        ("loss={lambda: 1}", "`overrides`: loss: its name is missing"),
        ("loss=happier", "`overrides`: loss: expected a mapping ('key: value'), found \"happier\""),
        ("steps=3", "and steps is 3; give one of them, and set the other to null"),
        ("batch_size=6", "batch_size is 6; expected a multiple of per_class 4"),
        ("size=64", "`overrides`: size: there is no such setting; did you mean image.size or memory.size?"),
        (
            "image.batch_size=8",
            "image.batch_size: there is no such setting; did you mean batch_size or evaluation.batch_size?",
        ),
        ("data.queries=q", "`overrides`: data: give either test (leave-one-out), or queries and gallery"),
        ("optimiser.head.momentum=0.9", "momentum is a setting of sgd, not of adam"),
        ("evaluation={metrics: [R@1], best: H-AP}", 'best is "H-AP", which is not among the metrics'),
        ("model={pretrained: false}", "model.backbone: is missing"),
        ("lr", "`overrides` lr: expected KEY=VALUE"),
        ("a..b=1", "`overrides` a..b=1: expected KEY=VALUE"),
        ("seed=[", "`overrides` seed=[: the value is not YAML"),
    ],
)
def test_error_messages(base: Path, override: str, message: str) -> None:
    # A mapping without a name is merged over the lower one, which is emptied first.
    text = base.read_text().replace("{name: happier, lambda: 0.1}", "{}") if override.startswith("loss={") else None
    if override.startswith("model={"):
        text = base.read_text().replace("{backbone: resnet18, pretrained: false}", "{}")
    if text:
        base.write_text(text)
    assert message in problems(base, override)


def test_written_settings_can_be_read_again(base: Path, tmp_path: Path) -> None:
    settings = read(base, "mixed_precision=bf16", "image.mean=[0, 0, 1e-7]")
    again = write(tmp_path / "settings.yaml", to_yaml(settings))
    assert read(again) == settings
    assert to_dict(read(again))["loss"]["lambda"] == 0.1
    assert yaml.safe_load(again.read_text())["mixed_precision"] == "bf16"


@given(st.floats(allow_nan=False))
def test_written_numbers_can_be_read_again(number: float) -> None:
    from hgld.io.yaml_files import _Loader

    for text in (repr(number).replace("inf", ".inf"), yaml.safe_dump(number).split("\n")[0]):
        value = yaml.load(text, _Loader)
        assert isinstance(value, float)
        assert value == number


ROWS = """
title: Mine
shared:
  model: {backbone: resnet18, pretrained: false}
  data: {manifest: manifest.parquet, test: test}
  loss: {name: happier, lambda: 0.1}
  epochs: 2
trainings:
  weighted: {about: Weighted, loss: {lambda: 0.2}}
  seeded: {base: weighted, seed: 3}
  wrong: {base: weighted, loss: {lamda: 1}}
  text: weighted
"""


def test_rows_of_a_file_are_merged_over_what_they_share_or_over_another_row(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.yaml", ROWS)
    settings = read(path / "seeded")
    assert (settings.epochs, settings.loss.options()["lambda_"], settings.seed) == (2, 0.2, 3)
    origins = {key: origin for key, (_, origin) in read_origins(path / "seeded").items()}
    assert (origins["epochs"], origins["seed"]) == (path / "shared", path / "seeded")
    assert origins["loss.lambda"] == path / "weighted"
    assert read_origins(path) == {"title": ("Mine", path)}
    other = write(tmp_path / "other.yaml", "base: mine.yaml/seeded\nseed: 4\n")
    assert read(other, "seed=3") == settings


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("seded", "mine.yaml: there is no row seded; did you mean seeded?"),
        ("wrong", "mine.yaml/wrong: loss.lamda: there is no such setting; did you mean lambda?"),
        ("text", """mine.yaml/text: expected settings such as 'batch_size: 256', found "weighted\""""),
    ],
)
def test_errors_name_the_row(tmp_path: Path, row: str, message: str) -> None:
    path = write(tmp_path / "mine.yaml", ROWS) / row
    with pytest.raises((ConfigurationError, InputError)) as error:
        read(path)
    assert message in str(error.value)
