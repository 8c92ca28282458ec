from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.hub_server import hub
from tests.training import toy

__all__ = ["hub"]


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    """Use one thread: with so little work, several mostly wait for each other."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


@pytest.fixture(scope="session")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.write_images(tmp_path_factory.mktemp("images"), n_classes=11, n_val=2)
