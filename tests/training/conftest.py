from collections.abc import Iterator

import pytest
import torch

from tests.hub_server import hub

__all__ = ["hub"]


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    """Use one thread: with so little work, several mostly wait for each other."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)
