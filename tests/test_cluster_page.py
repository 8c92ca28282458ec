"""Run the batch scripts of docs/how-to/cluster.md on a real SLURM as they are printed, but for their resources."""

import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from hgld.io.settings import to_dict
from tests.child_processes import run_child, single_thread_environment
from tests.slurm_cluster import SlurmCluster
from tests.training import toy

PAGE = Path(__file__).parent.parent / "docs" / "how-to" / "cluster.md"
#: Options of sbatch that replace those of the page: the cluster of the tests has two nodes of a core and 16 GB each.
#: SLURM counts the memory that a process shares with its reading workers, 1 GB of libraries, once for each of them.
RESOURCES = ("--mem=8000M", "--time=10", "--cpus-per-task=1")


def scripts() -> dict[str, str]:
    """Return the batch scripts of the page by the name of their job."""
    blocks = re.findall(r"^```bash\n(#!.+?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return {match[1]: block for block in blocks if (match := re.search(r"--job-name=(\w+)", block))}


def without_gpus(script: str) -> str:
    """Return a script for nodes without GPUs, of which each runs one task."""
    script = re.sub(r" --gpus(-per-task)?=\d+", "", script).replace("#SBATCH --gpus=1", "#SBATCH")
    return script.replace("--device cuda", "--device cpu").replace("--ntasks-per-node=8", "--ntasks-per-node=1")


def test_the_page_has_the_scripts_that_are_run() -> None:
    assert scripts().keys() == {"train", "evaluate", "embed", "merge"}
    for script in scripts().values():
        run_child(["bash", "-n", "-c", script])


@pytest.mark.slow
def test_the_plan_is_what_the_page_prints(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (line,) = re.findall(r"^\$ hgld (benchmark h-gldv2 .*--plan.*)$", text, re.MULTILINE)
    (block,) = re.findall(r"^```text\n(H-GLDv2: .+?)\n```$", text, re.MULTILINE | re.DOTALL)
    command = [sys.executable, "-m", "hgld", *shlex.split(line)]
    printed = run_child(command, cwd=tmp_path, environment=single_thread_environment(), timeout_s=600).stdout
    assert printed.startswith(f"{block}\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Images of noise with their manifest, and the settings of a training of four steps."""
    toy.write_images(tmp_path)
    settings = to_dict(toy.settings(Path("manifest.parquet"), memory=None, batch_size=8, epochs=None, steps=4))
    settings["model"] = {"backbone": "test_resnet", "pretrained": False}
    settings["image"] = {"size": 32, "resize": 32}
    settings["loggers"] = []
    (tmp_path / "training.yaml").write_text(yaml.safe_dump(settings))
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "hgld").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m hgld "$@"\n')
    (programs / "hgld").chmod(0o755)
    return tmp_path


@pytest.mark.slow
def test_train_embed_in_parts_and_evaluate(folder: Path, cluster: SlurmCluster) -> None:
    environment = single_thread_environment()
    environment |= {"PATH": f"{folder / 'bin'}:{environment['PATH']}"}

    def submit(name: str, *options: str) -> str:
        script = without_gpus(scripts()[name])
        output = ("--chdir", str(folder), "--output", f"{folder}/{name}-%j.log")
        return cluster.submit(script, *RESOURCES, *output, *options, environment=environment)

    def wait(name: str, job: str) -> None:
        # A job whose dependency failed waits for ever: it is cancelled, and the logs say why.
        state = cluster.wait_for(job, timeout=300)["JobState"]
        assert state == "COMPLETED", {path.name: path.read_text() for path in folder.glob("*.log")}

    wait("train", submit("train"))
    assert json.loads((folder / "runs/happier/run.json").read_text())["processes"] == 2
    weights = (folder / "runs/happier/last.pt").read_bytes()

    parts = submit("embed")
    wait("merge", submit("merge", f"--dependency=afterok:{parts}", "--kill-on-invalid-dep=yes"))
    (folder / "whole").mkdir()
    model = ["--model", "runs/happier", "--images", "manifest.parquet", "--split", "test", "-o", "whole/test.parquet"]
    run_child([sys.executable, "-m", "hgld", "embed-images", *model], cwd=folder, environment=environment)
    assert (folder / "test.parquet").read_bytes() == (folder / "whole/test.parquet").read_bytes()

    wait("evaluate", submit("evaluate"))
    assert np.isfinite(json.loads((folder / "evaluation.json").read_text())["results"][0]["means"]["H-AP"])

    wait("train", submit("train"))  # a run that is complete
    assert (folder / "runs/happier/last.pt").read_bytes() == weights
