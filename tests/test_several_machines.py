"""Parts of commands, by a job array of SLURM and by Ray, and scripts of the page on several machines.

Commands and scripts of the page are run on a real SLURM as they are printed, but for their resources.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from hgld.io.settings import to_dict
from tests.child_processes import run_child
from tests.several_machines import COMMANDS, Work
from tests.slurm_cluster import SlurmCluster
from tests.training import toy

PAGE = Path(__file__).parent.parent / "docs" / "how-to" / "cluster.md"
#: Options of sbatch that replace those of the page: the cluster of the tests has two nodes of a core and 16 GB each.
#: SLURM counts the memory that a process shares with its reading workers, 1 GB of libraries, once for each of them.
RESOURCES = ("--mem=8000M", "--time=10", "--cpus-per-task=1")


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


def array_commands() -> str:
    """Return the commands of the page that submit an array, and the job that joins its parts."""
    text = PAGE.read_text(encoding="utf-8")
    (block,) = [block for block in re.findall(r"^```console\n(.+?)^```", text, re.M | re.S) if "--array" in block]
    return "\n".join(line.removeprefix("$ ") for line in block.splitlines())


def scripts() -> dict[str, str]:
    """Return the batch scripts of the page by the name of their job."""
    blocks = re.findall(r"^```bash\n(#!.+?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return {match[1]: block for block in blocks if (match := re.search(r"--job-name=(\w+)", block))}


def test_the_page_has_the_commands_and_scripts_that_are_run() -> None:
    assert scripts().keys() == {"train", "evaluate"}
    for script in (array_commands(), *scripts().values()):
        run_child(["bash", "-n", "-c", script])


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_an_array_with_a_killed_task_gives_the_bytes_of_one_process(
    work: Work, cluster: SlurmCluster, name: str
) -> None:
    work.run(COMMANDS[name].format(out="one"))
    work.fail(name, "killed")
    printed = "embed-images --model runs/happier --manifest manifest.parquet --device cuda -o embeddings.parquet"
    resources = "--gpus=1 --cpus-per-task=8 --mem=32G --time=4:00:00"
    commands = array_commands()
    assert commands.count(printed) == commands.count(resources) == 2
    commands = commands.replace(printed, COMMANDS[name].format(out="parts"))
    commands = commands.replace(resources, " ".join(RESOURCES)).replace("16", "3")
    environment = work.environment | cluster.variables
    shown = run_child(["bash", "-ec", f"{commands}\necho $array"], cwd=work.folder, environment=environment).stdout
    last, array = re.findall(r"\d+", shown)
    # A job whose dependency failed waits for ever.
    logs = {path.name: path.read_text() for path in work.folder.glob("slurm-*.out")}
    assert cluster.wait_for(last, timeout=300)["JobState"] == "COMPLETED", logs
    states = sorted(cluster.facts(f"{array}_{task}")["JobState"] for task in (1, 2, 3))
    assert states == ["COMPLETED", "COMPLETED", "FAILED"]
    work.require_same_files(name, "one", "parts")


@pytest.fixture
def ray_address(work: Work, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Address of a Ray cluster: a head that runs no task, and three nodes of a core each."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    for name, value in work.environment.items():
        monkeypatch.setenv(name, value)
    nodes = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(3):
            nodes.add_node(num_cpus=1)
        yield nodes.address
    finally:
        nodes.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_ray_with_a_lost_node_and_a_killed_process_gives_the_bytes_of_one_process(
    work: Work, ray_address: str, name: str
) -> None:
    work.run(COMMANDS[name].format(out="one"))
    work.fail(name, "killed", "node")
    work.run(COMMANDS[name].format(out="parts"), "--ray", ray_address, "--parts", "3")
    work.require_same_files(name, "one", "parts")


@pytest.mark.slow
def test_ray_reports_parts_that_fail(work: Work, ray_address: str) -> None:
    (work.folder / "model.py").write_text("def model(images):\n    return images\n")
    command = "embed-images --model python:model.py:model --size 8 --resize 8 --images images -o e.npy"
    options = ["--ray", ray_address, "--parts", "3"]
    child = run_child(
        [work.folder / "bin" / "hgld", *command.split(), *options],
        exit_code=1,
        cwd=work.folder,
        environment=work.environment,
    )
    assert "error: 3 of 3 parts failed, the others are done; the same command goes on from here:" in child.stderr
    assert re.search(r"^  part 2/3: .*returns the shape \(1, 3, 8, 8\)", child.stderr, re.MULTILINE)
    assert child.stdout == ""


@pytest.mark.slow
def test_train_and_evaluate_on_two_nodes(work: Work, cluster: SlurmCluster) -> None:
    folder = work.folder
    toy.write_images(folder)
    settings = to_dict(toy.settings(Path("manifest.parquet"), memory=None, batch_size=8, epochs=None, steps=4))
    settings["model"] = {"backbone": "test_resnet", "pretrained": False}
    settings["image"] = {"size": 32, "resize": 32}
    settings["loggers"] = []
    (folder / "training.yaml").write_text(yaml.safe_dump(settings))

    def run(name: str) -> None:
        script = re.sub(r" --gpus-per-task=\d+", "", scripts()[name])
        script = script.replace("--ntasks-per-node=8", "--ntasks-per-node=1")
        output = ("--chdir", str(folder), "--output", f"{folder}/{name}-%j.log")
        job = cluster.submit(script, *RESOURCES, *output, environment=work.environment)
        state = cluster.wait_for(job, timeout=300)["JobState"]
        assert state == "COMPLETED", {path.name: path.read_text() for path in folder.glob("*.log")}

    run("train")
    assert json.loads((folder / "runs/happier/run.json").read_text())["processes"] == 2
    weights = (folder / "runs/happier/last.pt").read_bytes()

    work.run("embed-images --model runs/happier --manifest manifest.parquet --split test -o test.parquet")
    run("evaluate")
    assert np.isfinite(json.loads((folder / "evaluation.json").read_text())["results"][0]["means"]["H-AP"])

    run("train")  # a run that is complete
    assert (folder / "runs/happier/last.pt").read_bytes() == weights
