"""A small model, and pictures to embed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from hgld.models.image_embedder import ImageEmbedder
from hgld.models.model_loading import load_model
from tests.datasets.pictures import save_pictures
from tests.models.embedding import PATHS


@pytest.fixture(scope="session")
def loaded() -> ImageEmbedder:
    return load_model("test_resnet", "none", size=32, resize=32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_pictures(tmp_path / "pictures", *PATHS)
    return tmp_path / "pictures"


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Use one thread, as torchrun does: the last bits of convolutions depend on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
