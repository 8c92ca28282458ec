from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch.distributed

from hgld.compute.processes import Processes, current_processes, joined_processes, local_device

#: Evaluates together with the other processes and alone, in the same process, as threads may change the last bits.
SCRIPT = """
import sys
from pathlib import Path

import numpy as np

from hgld.evaluation import evaluate_retrieval
from hgld.compute.processes import current_processes, joined_processes

with joined_processes() as processes:
    assert current_processes() == processes
    assert processes.gather(processes.rank) == list(range(processes.count))
    rng = np.random.default_rng(0)
    fine = rng.integers(20, size=150)
    labels = np.stack([fine, fine // 4], axis=1)
    embeddings = rng.normal(size=(150, 32)).astype(np.float32)
    for block_size in (7, 100):  # many blocks; or one and a half, so that a third process is idle
        for name, those in (("together", processes), ("alone", None)):
            result = evaluate_retrieval(embeddings, labels, block_size=block_size, processes=those)
            name = f"{processes.count}_{processes.rank}_{block_size}_{name}.pkl"
            result.per_query.to_pickle(Path(sys.argv[1]) / name)
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pd.DataFrame]:
    """Return the per-query values of two and of three processes by the names of their files."""
    folder = tmp_path_factory.mktemp("processes")
    script = folder / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    running = [
        subprocess.Popen([*torchrun, count, str(script), str(folder)], env=environment, stderr=subprocess.PIPE)
        for count in ("2", "3")
    ]
    for process in running:
        errors = process.communicate(timeout=120)[1].decode()
        assert process.returncode == 0, errors
    return {path.stem: pd.read_pickle(path) for path in folder.glob("*.pkl")}


@pytest.mark.slow
@pytest.mark.parametrize("block_size", [7, 100])
@pytest.mark.parametrize(("count", "rank"), [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)])
def test_several_processes_return_the_numbers_of_one(
    outputs: dict[str, pd.DataFrame], count: int, rank: int, block_size: int
) -> None:
    together, alone = (outputs[f"{count}_{rank}_{block_size}_{name}"] for name in ("together", "alone"))
    assert alone.notna().all(axis=None)
    pd.testing.assert_frame_equal(together, alone, check_exact=True)
    pd.testing.assert_frame_equal(together, outputs[f"2_0_{block_size}_alone"], check_exact=True)


def test_single_process_does_not_initialise_distributed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with joined_processes() as processes:
        assert processes == current_processes() == Processes(0, 1)
        assert processes.part == (0, 1)
        assert processes.gather("mine") == ["mine"]
    assert not torch.distributed.is_initialized()


def test_current_processes_are_those_of_the_default_group(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'meet'}", rank=0, world_size=1)
    try:
        assert current_processes() == Processes(0, 1)
    finally:
        torch.distributed.destroy_process_group()
    assert current_processes() == Processes()


def test_each_local_process_has_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert local_device("cuda") == "cuda:0"  # torch.cuda.set_device takes no device without a number
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert local_device("cuda") == "cuda:2"
    assert local_device("cuda:1") == "cuda:1"
    assert local_device("cpu") == "cpu"
