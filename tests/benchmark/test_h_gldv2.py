"""Table VII in miniature: the file of the full size and the commands of its document, on files in GLDv2's layout."""

import shlex
from pathlib import Path

import pytest

from hgld.benchmark.runs import read_benchmark, table_runs
from hgld.datasets.manifest import read_manifest
from tests.benchmark.comparisons import train_and_evaluate
from tests.benchmark.miniature_datasets import write_gldv2_train
from tests.benchmark.test_gldv2_pictures import generated, write_gldv2
from tests.commands import run_hgld
from tests.examples.pages import console_steps, read_page

CHECKOUT = Path(__file__).parents[2]
BENCHMARK = CHECKOUT / "pipelines" / "benchmarks" / "h-gldv2.yaml"
#: Changes to a model of a tenth of a megabyte, with small images and batches.
SMALL: tuple[str, ...] = (
    "model.backbone=test_resnet",
    "model.pretrained=false",
    "model.dim=8",
    "image.size=32",
    "image.resize=32",
)
SMALL = (*SMALL, "batch_size=8", "steps=2", "workers=0")


def commands(*names: str) -> list[list[str]]:
    """Return the commands of docs/how-to/gldv2.md with these names."""
    page = read_page(CHECKOUT / "docs" / "how-to" / "gldv2.md")
    steps = [step for block in page.blocks if block.language == "console" for step in console_steps(block)]
    lines = [shlex.split(step.command.replace("\\\n", " ")) for step in steps]
    return [words[1:] for words in lines if words[0] == "hgld" and words[1] in names]


def test_documented_commands_write_what_the_comparison_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("data/gldv2")
    write_gldv2(folder, *generated())
    write_gldv2_train(folder)
    for split in ("test", "index"):
        (folder / split / "images.parquet").unlink()
    for words in commands("index-images", "manifest"):
        run_hgld(*words)
    manifest = read_manifest(folder / "train" / "manifest.parquet")
    assert 4 <= (manifest.splits == "test").sum() <= 8

    settings = read_benchmark(BENCHMARK)
    (run, *_) = table_runs(settings, tmp_path / "out", SMALL)["happier"]
    result = train_and_evaluate(settings, run).result
    assert {*settings.columns, "map100_official"} <= set(result.means)


def test_settings_are_those_of_the_paper() -> None:
    settings = read_benchmark(BENCHMARK)
    assert settings.columns == ("map100_labelled", "H-AP", "ASI", "NDCG")
    runs = table_runs(settings, Path("out"))
    table = {"softbin_ap", "smooth_ap", "recall", "roadmap", "csl", "happier", "happier_f"}
    assert table <= set(runs)
    for name, of_method in runs.items():
        training = of_method[0].settings
        assert training.loss.name == {"untrained": "smooth_ap", "happier_f": "happier"}.get(name, name)
        assert (training.batch_size, training.steps) == (256, 0 if name == "untrained" else 55_000)
        assert training.model.backbone.startswith("resnet101")
        assert (training.optimiser.backbone.name, training.optimiser.backbone.lr) == ("adam", 1e-5)
    assert [run.settings.seed for run in runs["happier"]] == [0, 1, 2]
