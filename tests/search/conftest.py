from pathlib import Path

import pytest

from hgld.models.image_embedding import embed_images
from hgld.models.model_loading import load_model
from hgld.models.settings import EmbedImagesConfig
from tests.datasets.pictures import save_pictures

PATHS = [f"{kind}/{product}/{number}.jpg" for kind, product in ("ab", "ac", "de") for number in range(3)]


@pytest.fixture(scope="module")
def gallery_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nine pictures, a manifest of them, and their embeddings with ``center``, by random weights."""
    folder = tmp_path_factory.mktemp("gallery")
    save_pictures(folder / "pictures", *PATHS)
    rows = [f"{path},all,{path.split('/')[1]},{path.split('/')[0]}" for path in PATHS]
    (folder / "manifest.csv").write_text("\n".join(["path,split,product,kind", *rows, ""]))
    model = load_model("test_resnet", "none", size=32, resize=32)
    config = EmbedImagesConfig(center=True, workers=0)
    embed_images(folder / "manifest.csv", folder / "all.npy", model, config, root=folder / "pictures")
    return folder
