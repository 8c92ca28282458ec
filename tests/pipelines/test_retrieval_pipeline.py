"""The Snakemake pipeline of retrieval, run by Snakemake with the commands of ``hgld``."""

import importlib.util
import re
import shlex
import tarfile
from pathlib import Path

import pytest
import typer
import yaml

from hgld.cli import app
from tests.pipelines.retrieval import SLURM_PROFILE, SNAKEFILE, TINY_MODEL, RetrievalPipeline, planned_jobs
from tests.pipelines.test_label_pipeline import run_commands

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("snakemake") is None,
        reason="snakemake is not installed (pip install '.[snakemake]')",
    ),
]


def shipped(name: str, folder: Path) -> RetrievalPipeline:
    """A pipeline with settings that come with hgld, in a folder where nothing is."""
    return RetrievalPipeline(folder, yaml.safe_load((SNAKEFILE.parent / name).read_text(encoding="utf-8")))


@pytest.mark.skipif(
    importlib.util.find_spec("snakemake_executor_plugin_slurm") is None, reason="the extra slurm is not installed"
)
@pytest.mark.parametrize(
    ("name", "jobs"),
    [
        (
            "config.yaml",
            {
                **{"fetch_train": 1, "fetch_index": 1, "fetch_test": 1, "index": 3, "manifest": 1},
                **{"embed_part": 18, "embed": 2, "evaluate": 1, "benchmark_part": 28, "benchmark": 1},
            },
        ),
        (
            "washington.yaml",
            {
                **{"fetch_washington": 1, "index": 1, "manifest": 1, "embed_part": 2, "embed": 1},
                **{"evaluate": 1, "benchmark_part": 1, "benchmark": 1},
            },
        ),
        (
            "own_images.yaml",
            {
                **{"manifest": 1, "repack": 1, "embed_part": 1, "embed": 1},
                **{"evaluate": 1, "benchmark_part": 1, "benchmark": 1},
            },
        ),
    ],
)
def test_shipped_settings_make_commands_that_exist(name: str, jobs: dict[str, int], tmp_path: Path) -> None:
    output = shipped(name, tmp_path).run("--dry-run", "--printshellcmds", "--workflow-profile", str(SLURM_PROFILE))
    assert planned_jobs(output) == jobs
    assert output.count("gpu=1") == (46 if name == "config.yaml" else 0), "of embed_part and benchmark_part"
    lines = re.findall(r"hgld (.*?)(?: 2>&1 \|| > )", output)
    assert len(lines) == sum(jobs.values())
    for line in lines:
        command, words = typer.main.get_command(app), shlex.split(line)
        while (inner := getattr(command, "commands", {}).get(words[0])) is not None:
            command, words = inner, words[1:]
        command.make_context(None, words)


@pytest.fixture
def groceries(shared: Path, tmp_path: Path) -> RetrievalPipeline:
    """A pipeline over some photographs in nested folders, which are made smaller first."""
    with tarfile.open(shared / "grocery" / "images_000.tar") as archive:
        apples = [member for member in archive if member.isfile() and "/Apple/" in member.name]
        for member in apples[::8]:
            archive.extract(member, tmp_path, filter="data")
    settings = {
        "out": "out",
        "datasets": {
            "groceries": {
                "folder": "train",
                "manifest": "folder train --depth 3",
                "repack": "--size 40",
                "embed": ["tiny"],
                "parts": 1,
            }
        },
        "models": {"tiny": TINY_MODEL},
        "evaluations": {
            "groceries/tiny": "--embeddings out/groceries/tiny.parquet --manifest out/groceries/manifest.parquet"
        },
    }
    return RetrievalPipeline(tmp_path, settings)


def test_outputs_are_those_of_the_commands_and_only_what_changed_runs_again(
    groceries: RetrievalPipeline, tmp_path: Path
) -> None:
    # The last bits depend on the number of threads, which Snakemake sets to that of the rule.
    groceries.run("--set-threads", "embed_part=1")
    assert groceries.planned() == {}
    expected = tmp_path / "expected"
    expected.mkdir()
    run_commands(
        tmp_path,
        groceries.process_environment,
        "manifest folder train --depth 3 -o expected/manifest.parquet",
        "repack expected/manifest.parquet --images train --size 40 -o expected/repacked",
        "embed-images --manifest out/groceries/repacked/manifest.parquet "
        f"--images out/groceries/repacked {TINY_MODEL} -o expected/tiny.parquet",
    )
    made = groceries.out / "groceries"
    tars = sorted(str(path.relative_to(expected)) for path in expected.rglob("*.tar"))
    assert tars
    for name in ("manifest.parquet", "repacked/manifest.parquet", "tiny.parquet", *tars):
        assert (made / name).read_bytes() == (expected / name).read_bytes(), name

    settings = groceries.settings
    groceries.settings = settings | {"models": {"tiny": f"{TINY_MODEL} --fit squash"}}
    assert groceries.planned() == {"embed_part": 1, "embed": 1, "evaluate": 1}
    groceries.settings = settings
    manifest = made / "manifest.parquet"
    manifest.write_bytes(manifest.read_bytes() + b" ")
    assert groceries.planned() == {"repack": 1, "embed_part": 1, "embed": 1, "evaluate": 1}
