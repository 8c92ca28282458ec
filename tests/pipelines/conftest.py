"""Fixtures of the pipelines."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm_cluster import SlurmCluster, slurm_cluster


@pytest.fixture(scope="session")
def wide_cluster(shared: Path) -> Iterator[SlurmCluster]:
    """A cluster whose nodes have the cores and the memory that the pipelines' profiles ask for."""
    with slurm_cluster(shared, cpus=16, memory_mb=64000) as started:
        yield started
