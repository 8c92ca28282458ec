"""Models that embed lists and folders of images, from Python."""

import logging
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import hgld
from hgld.datasets.manifest import LANDMARK_LEVEL, write_manifest
from hgld.errors import ConfigurationError, InputError
from hgld.models.image_embedder import ImageEmbedder
from hgld.models.image_embedding import embed_images
from hgld.models.settings import EmbedImagesConfig
from hgld.tables import Provenance
from hgld.tables.embeddings import read_embeddings
from tests.assertions import not_none
from tests.datasets.pictures import manifest_of, picture, save_pictures

PATHS = [f"{n % 3}/p{n:02}.png" for n in range(7)]


@pytest.fixture(scope="module")
def model() -> ImageEmbedder:
    return hgld.load_model("test_resnet", "none", size=32, resize=40)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_pictures(tmp_path / "pictures", *PATHS)
    return tmp_path / "pictures"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_folder_gives_what_the_command_writes(
    model: ImageEmbedder, folder: Path, tmp_path: Path, workers: int
) -> None:
    (folder / PATHS[3]).write_bytes(b"no picture")
    embed_images(folder, tmp_path / "e.parquet", model, EmbedImagesConfig(batch_size=3, workers=0))
    written, embedded = read_embeddings(tmp_path / "e.parquet"), model.embed(folder, batch_size=3, workers=workers)
    assert not_none(embedded.ids).tolist() == not_none(written.ids).tolist()
    assert len(embedded) == 6
    assert torch.equal(embedded.vectors, written.vectors)


def test_a_list_of_pictures_paths_and_arrays_gives_a_row_for_each(model: ImageEmbedder, folder: Path) -> None:
    paths = [folder / path for path in sorted(PATHS)]
    pictures = [Image.open(path) for path in paths]
    embedded = model.embed(folder, batch_size=4)
    mixed: list[Any] = [str(paths[0]), pictures[1], np.asarray(pictures[2]), *paths[3:]]
    for images in (paths, pictures, [np.asarray(image) for image in pictures], mixed):
        vectors = model.embed(images, batch_size=4)
        assert vectors.dtype == np.float32
        assert vectors.shape == (7, 96)
        np.testing.assert_array_equal(vectors, embedded.vectors.numpy())
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)
    assert model.embed([]).shape == (0, 96)


def test_preprocess_and_network_give_the_embedding_of_any_picture(model: ImageEmbedder) -> None:
    grey = Image.fromarray(np.arange(60 * 50, dtype=np.uint8).reshape(60, 50))
    turned = grey.convert("RGB")
    turned.getexif()[0x0112] = 6  # its right side is up
    for image in (grey, turned, grey.convert("LA"), grey.convert("CMYK"), grey.convert("P")):
        pixels = pickle.loads(pickle.dumps(model.preprocess))(image)  # as worker processes receive it
        assert (pixels.shape, pixels.dtype) == ((3, 32, 32), torch.float32)
        with torch.no_grad():
            alone = model.network(pixels[None])[0].numpy()
        np.testing.assert_allclose(alone, model.embed([image])[0], atol=1e-6)
    upright = turned.copy().transpose(Image.Transpose.ROTATE_270)
    torch.testing.assert_close(model.preprocess(turned), model.preprocess(upright))


def test_a_manifest_gives_its_ids_and_landmark_ids(model: ImageEmbedder, folder: Path, tmp_path: Path) -> None:
    manifest = manifest_of(PATHS[:3], {LANDMARK_LEVEL: ["11", "11", "5"]}, id=["x", "y", "z"])
    write_manifest(tmp_path / "manifest.parquet", manifest, Provenance("test"))
    embedded = model.embed(str(tmp_path / "manifest.parquet"), root=str(folder))
    assert embedded.landmark_ids is not None
    assert (not_none(embedded.ids).tolist(), embedded.landmark_ids.tolist()) == (["x", "y", "z"], [11, 11, 5])


def test_the_path_of_a_picture_gives_one_row(model: ImageEmbedder, folder: Path) -> None:
    embedded = model.embed(folder / PATHS[2])
    assert not_none(embedded.ids).tolist() == ["p02.png"]
    np.testing.assert_array_equal(embedded.vectors.numpy(), model.embed([folder / PATHS[2]]))


def test_unreadable_images_of_a_folder_are_logged(
    model: ImageEmbedder, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / PATHS[1]).write_bytes(b"no picture")
    with caplog.at_level(logging.WARNING):
        assert len(model.embed(folder)) == 6
    assert f"{folder}: 1 images cannot be read:\n  {PATHS[1]}: not an image" in caplog.text
    for path in PATHS:
        (folder / path).write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"none of the 7 images can be read:\n  0/p00.png: not an image"):
        model.embed(folder)


def damaged(folder: Path) -> Path:
    (folder / "damaged.png").write_bytes(picture("damaged")[:100])
    return folder / "damaged.png"


@pytest.mark.parametrize("workers", [0, 1])
def test_unusable_images_of_a_list_are_refused(model: ImageEmbedder, folder: Path, workers: int) -> None:
    usable = Image.new("RGB", (8, 8))

    def expect(image: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            model.embed([usable, image], workers=workers)

    expect(folder / "absent.png", r"absent.png: No such file or directory$")
    expect(damaged(folder), r"damaged.png: damaged \(")
    if workers:
        return
    expect(np.zeros((4, 4, 3)), r"image 1: an array of float64, shape \(4, 4, 3\); expected uint8")
    expect(np.zeros((4, 4, 2), np.uint8), r"image 1: an array of uint8, shape \(4, 4, 2\); expected uint8, shape")
    expect(np.zeros((0, 4), np.uint8), r"image 1: an array without pixels")
    expect(torch.zeros(3, 4, 4), r"image 1: of type Tensor; expected a PIL image, a path or a uint8 array")
    expect(Image.fromarray(np.zeros((2, 2), np.float32)), "image 1: floating-point pixels")


@pytest.mark.slow
def test_a_script_ends_although_an_error_keeps_its_workers() -> None:
    script = (
        "import hgld; hgld.load_model('test_resnet', 'none', size=32, resize=40).embed(['absent.png'], workers=1)"
    )
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert child.stderr.endswith("InputError: absent.png: No such file or directory\n")


def test_one_image_in_place_of_a_list_is_refused(model: ImageEmbedder, folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="`images` is one Image; expected a list of images, or a path"):
        model.embed(Image.new("RGB", (4, 4)))  # type: ignore[call-overload]
    with pytest.raises(ConfigurationError, match='the device "tpu9" cannot be used'):
        model.to("tpu9")
    with pytest.raises(ConfigurationError, match="`batch_size` is 0; expected 1 or more"):
        model.embed(folder, batch_size=0)


def test_importing_hgld_does_not_import_torch() -> None:
    script = "import sys, hgld; assert 'load_model' in dir(hgld); print('torch' in sys.modules)"
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert child.stdout == "False\n"
