import gc
import multiprocessing
import os
import pickle
import re
import signal
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError

from hgld.compute.machine import usable_cores
from hgld.compute.processes import Processes
from hgld.datasets import loading, transforms
from hgld.datasets.encoded_images import SkippedImage
from hgld.datasets.image_dataset import ImageDataset, read_image_index
from hgld.datasets.loading import Batch, Example, collate
from hgld.datasets.manifest import Manifest
from hgld.datasets.samplers import ClassBalancedSampler
from hgld.datasets.transforms import ImageSettings, evaluation_transform, training_transform
from hgld.errors import ConfigurationError, InputError
from hgld.gldv2.image_index import index_images
from hgld.inspection.photos import ManifestImages
from hgld.io.images import box_inside, open_image
from tests.datasets.pictures import manifest_of, picture, save_pictures
from tests.figures.test_thumbnails import encoded, png_header
from tests.gldv2.test_image_index import write_tar

PATHS = [f"{n % 5}/{n}.jpg" for n in range(24)]
SMALL = ImageSettings(size=8, resize=10)
IN_ORDER = transforms.evaluation_transform(SMALL)

#: Python 3.12 and 3.13 warn about forking workers while there are threads.
forking = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    """Return a manifest of six classes with four images each, in a folder."""
    save_pictures(tmp_path, *PATHS)
    return manifest_of(PATHS, {"class": [str(n // 4) for n in range(24)], "group": [str(n // 12) for n in range(24)]})


@pytest.fixture
def training(manifest: Manifest, tmp_path: Path) -> ImageDataset:
    return ImageDataset(manifest, tmp_path, training_transform(SMALL))


def batches_of(
    dataset: ImageDataset,
    epoch: int = 0,
    *,
    start: int = 0,
    processes: Processes | None = None,
    seed: int = 0,
    workers: int = 0,
) -> list[Batch]:
    sampler = ClassBalancedSampler(dataset.manifest.labels, 8, 2, seed=0)
    batches = loading.training_batches(
        dataset, sampler, epoch, start=start, processes=processes, seed=seed, workers=workers
    )
    return list(batches)


def same(batches: list[Batch], others: list[Batch]) -> bool:
    return len(batches) == len(others) and all(
        all(map(torch.equal, batch.images, other.images))
        and torch.equal(batch.labels, other.labels)
        and torch.equal(batch.rows, other.rows)
        and batch.skipped == other.skipped
        for batch, other in zip(batches, others, strict=True)
    )


def example_of(result: Example | SkippedImage) -> Example:
    assert isinstance(result, Example)
    return result


def input_of(dataset: ImageDataset, index: int | tuple[int, int]) -> torch.Tensor:
    """Return the input of a model for an image: float32, shape (3, h, w)."""
    assert dataset.normalisation is not None
    return dataset.normalisation(example_of(dataset[index]).image)


def test_evaluation_transform_resizes_crops_and_normalises(tmp_path: Path) -> None:
    wide = Image.new("RGB", (40, 20), (255, 0, 0))
    wide.paste((0, 255, 0), (10, 0, 30, 20))
    wide.save(tmp_path / "a.png")
    settings = ImageSettings(size=10, resize=20)
    dataset = ImageDataset(
        manifest_of(["a.png"], {"class": ["1"]}), tmp_path, transforms.evaluation_transform(settings)
    )
    pixels, labels, row = example_of(dataset[0])
    assert (pixels.dtype, pixels.shape, labels.tolist(), row) == (torch.uint8, (3, 10, 10), [0], 0)
    image = input_of(dataset, 0)
    middle = [(value - mean) / std for value, mean, std in zip((0, 1, 0), settings.mean, settings.std, strict=True)]
    assert torch.allclose(image, torch.tensor(middle)[:, None, None].expand(3, 10, 10))


@given(
    box=st.tuples(st.floats(-20, 60), st.floats(-20, 40)),
    width=st.floats(0, 80),
    height=st.floats(0, 80),
)
def test_crops_are_the_pixels_of_the_box_inside_the_image(
    box: tuple[float, float], width: float, height: float
) -> None:
    left, top = box
    image = Image.fromarray(np.arange(40 * 60, dtype=np.int32).reshape(40, 60).astype(np.uint8))
    columns = [n for n in range(60) if round(left) <= n < round(left + width)]
    rows = [n for n in range(40) if round(top) <= n < round(top + height)]
    edges = (left, top, left + width, top + height)
    if not columns or not rows:
        with pytest.raises(InputError, match="box outside the image"):
            box_inside(edges, image)
        return
    expected = np.asarray(image)[np.ix_(rows, columns)]
    np.testing.assert_array_equal(np.asarray(image.crop(box_inside(edges, image))), expected)


def test_a_box_outside_the_image_is_reported(tmp_path: Path) -> None:
    save_pictures(tmp_path, "a.png")
    manifest = manifest_of(["a.png"], {"class": ["1"]})
    outside = replace(manifest, boxes=np.array([[70.0, 0.0, 79.0, 9.0]]))
    example = ImageDataset(outside, tmp_path, IN_ORDER)[0]
    assert isinstance(example, SkippedImage)
    assert "box outside the image" in example.reason
    assert ManifestImages(outside, tmp_path)("a.png") is None


def test_training_transform_crops_and_flips_at_random(tmp_path: Path) -> None:
    ramp = np.broadcast_to(np.arange(0, 240, 2, dtype=np.uint8)[None, :, None], (90, 120, 3))
    Image.fromarray(np.ascontiguousarray(ramp)).save(tmp_path / "a.png")
    manifest = manifest_of(["a.png"], {"class": ["1"]})
    settings = ImageSettings(size=16, resize=16, mean=(0, 0, 0), std=(1, 1, 1), crop_scale=(0.2, 0.5))
    dataset = ImageDataset(manifest, tmp_path, training_transform(settings))
    rows = [input_of(dataset, (0, seed))[0, 8] for seed in range(40)]
    mirrored = [bool(row[0] > row[-1]) for row in rows]
    assert 8 < sum(mirrored) < 32
    # The ramp goes from 0 to 1 in 127 pixels; a crop of a fifth to half the area is 42 to 97 wide.
    widths = [abs(float(row[-1] - row[0])) * 255 / 2 for row in rows]
    assert 36 < min(widths) < 60
    assert 70 < max(widths) < 98
    plain = ImageDataset(manifest, tmp_path, training_transform(settings.model_copy(update={"flip": False})))
    assert all(image[0, 8, 0] < image[0, 8, -1] for image in (input_of(plain, (0, seed)) for seed in range(20)))


def test_seed_determines_the_pixels_and_leaves_the_global_generator_alone(training: ImageDataset) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, again, other = (example_of(training[3, seed]).image for seed in (7, 7, 8))
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(example_of(training[3]).image, example_of(training[3]).image)


@forking
def test_number_of_workers_changes_nothing(training: ImageDataset, tmp_path: Path) -> None:
    (tmp_path / PATHS[5]).write_bytes(b"no picture")
    alone = batches_of(training)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "This DataLoader")  # torch warns of more workers than cores
        assert same(batches_of(training, workers=usable_cores() + 2), alone)
    assert sum(len(batch.skipped) for batch in alone) == 1
    assert not same(batches_of(training, epoch=1), alone)
    assert not same(batches_of(training, seed=1), alone)


def test_epoch_resumes_in_the_middle(training: ImageDataset) -> None:
    assert same(batches_of(training, start=2), batches_of(training)[2:])
    assert batches_of(training, start=3) == []


def test_processes_share_each_batch(training: ImageDataset) -> None:
    shares = [batches_of(training, processes=Processes(rank, 2)) for rank in range(2)]
    for whole, first, second in zip(batches_of(training), *shares, strict=True):
        assert len(first) == len(second) == 4
        assert torch.equal(torch.cat([first.images, second.images]), whole.images)
        assert torch.equal(torch.cat([first.labels, second.labels]), whole.labels)
        assert torch.equal(torch.cat([first.rows, second.rows]), whole.rows)
    with pytest.raises(ConfigurationError, match="a batch of 8 cannot be shared by 3 processes"):
        batches_of(training, processes=Processes(0, 3))


class SmallBatches:
    """A sampler whose second batch is smaller."""

    batch_size = 6

    def n_batches(self, epoch: int) -> int:
        return 2

    def batches(self, epoch: int) -> list[np.ndarray]:
        return [np.array([3, 0, 2, 5, 1, 4]), np.array([7, 7, 6, 0])]


def test_smaller_batches_are_shared_in_pieces_that_differ_by_one(training: ImageDataset) -> None:
    def batches(processes: Processes | None = None) -> list[Batch]:
        return list(loading.training_batches(training, SmallBatches(), 0, processes=processes, seed=0, workers=0))

    shares = [batches(Processes(rank, 3)) for rank in range(3)]
    assert [[len(batch) for batch in share] for share in shares] == [[2, 2], [2, 1], [2, 1]]
    for whole, *pieces in zip(batches(), *shares, strict=True):
        assert torch.equal(torch.cat([piece.rows for piece in pieces]), whole.rows)
        assert torch.equal(torch.cat([piece.images for piece in pieces]), whole.images)
    repeated = batches()[1].images
    assert not torch.equal(repeated[0], repeated[1]), "each occurrence of an image has an augmentation of its own"


def test_labels_and_rows_are_those_of_the_manifest(training: ImageDataset) -> None:
    for batch in batches_of(training):
        assert batch.rows.dtype == batch.labels.dtype == torch.int64
        assert batch.labels.tolist() == training.manifest.labels[batch.rows.numpy()].tolist()


@forking
def test_evaluation_batches_keep_the_given_order(manifest: Manifest, tmp_path: Path) -> None:
    dataset = ImageDataset(manifest, tmp_path, IN_ORDER)
    rows = np.array([3, 1, 4, 1, 5])
    batches = list(loading.evaluation_batches(dataset, rows, batch_size=2, workers=0))
    assert [batch.rows.tolist() for batch in batches] == [[3, 1], [4, 1], [5]]
    assert same(list(loading.evaluation_batches(dataset, rows, batch_size=2, workers=2)), batches)
    assert torch.equal(batches[1].images[0], input_of(dataset, 4))
    for batch_size, workers in ((0, 0), (1, -1)):
        with pytest.raises(ConfigurationError):
            loading.evaluation_batches(dataset, rows, batch_size=batch_size, workers=workers)


def images_in_tars(root: Path) -> Manifest:
    for shard in range(2):
        names = [f"{shard}{n}.jpg" for n in range(3)]
        write_tar(root / f"{shard}.tar", {f"a/{name}": picture(name, file_format="JPEG") for name in names})
    index_images(root, root / "images.parquet")
    return read_image_index(root / "images.parquet")


def read_row(dataset: ImageDataset, row: int) -> Example | SkippedImage:
    return dataset[row]


def test_images_are_read_from_tar_files(tmp_path: Path) -> None:
    manifest = images_in_tars(tmp_path)
    for name in manifest.ids:
        (tmp_path / f"{name}.jpg").write_bytes(picture(f"{name}.jpg", file_format="JPEG"))
    plain = ImageDataset(manifest_of([f"{name}.jpg" for name in manifest.ids], {"x": ["1"] * 6}), tmp_path, IN_ORDER)
    dataset = ImageDataset(manifest, tmp_path, IN_ORDER)
    copy = pickle.loads(pickle.dumps(dataset))
    assert torch.equal(example_of(copy[4]).image, example_of(dataset[4]).image)
    for row in range(6):
        assert torch.equal(example_of(dataset[row]).image, example_of(plain[row]).image)
    assert example_of(dataset[0]).labels.shape == (0,)


@pytest.mark.slow
def test_images_are_read_in_spawned_workers(tmp_path: Path) -> None:
    dataset = ImageDataset(images_in_tars(tmp_path), tmp_path, IN_ORDER)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        spawned = example_of(pool.submit(read_row, dataset, 4).result())
    assert torch.equal(spawned.image, example_of(dataset[4]).image)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", r"not an image \(in 0 bytes\)"),
        (b"not a picture", r"not an image \(in 13 bytes\)"),
        (picture("a", file_format="JPEG")[:650], r"damaged \(image file is truncated .*\)"),
        (picture("a")[:-30], r"damaged \(.*\)"),
        (png_header(20_000, 20_000), r"too large \(Image size \(400000000 pixels\) exceeds limit of .*\)"),
        (encoded(Image.new("F", (4, 4)), "TIFF"), r"floating-point pixels \(save it with 8 or 16 bits per channel\)"),
        (None, "/.*/a/0.jpg: No such file or directory"),
    ],
)
def test_unreadable_image_is_skipped_with_a_reason(tmp_path: Path, data: bytes | None, reason: str) -> None:
    save_pictures(tmp_path, "a/1.jpg")
    if data is None:
        (tmp_path / "a" / "0.jpg").unlink(missing_ok=True)
    else:
        (tmp_path / "a" / "0.jpg").write_bytes(data)
    manifest = manifest_of(["a/0.jpg", "a/1.jpg"], {"class": ["1", "1"]})
    dataset = ImageDataset(manifest, tmp_path, IN_ORDER)
    batch = collate([dataset[row] for row in range(2)], dataset.normalisation)
    assert batch.rows.tolist() == [1]
    assert len(batch) == len(batch.labels) == len(batch.images) == 1
    assert [image.row for image in batch.skipped] == [0]
    assert re.fullmatch(f"a/0.jpg: {reason}", batch.skipped[0].reason)


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "1"])
def test_images_of_any_mode_are_converted_to_rgb(tmp_path: Path, mode: str) -> None:
    suffix = "jpg" if mode == "CMYK" else "png"
    (tmp_path / f"a.{suffix}").write_bytes(picture("a", file_format="JPEG" if mode == "CMYK" else "PNG", mode=mode))
    dataset = ImageDataset(manifest_of([f"a.{suffix}"], {"class": ["1"]}), tmp_path, IN_ORDER)
    assert example_of(dataset[0]).image.shape == (3, 8, 8)


def colours_in(tmp_path: Path, data: bytes) -> torch.Tensor:
    """Return the colours, 0 to 1, of the upper left, upper right and lower left of a picture as a model sees it."""
    (tmp_path / "a.jpg").write_bytes(data)
    settings = ImageSettings(size=16, resize=16, mean=(0, 0, 0), std=(1, 1, 1))
    dataset = ImageDataset(manifest_of(["a.jpg"], {"x": ["1"]}), tmp_path, evaluation_transform(settings))
    pixels = input_of(dataset, 0)
    return pixels[:, [3, 3, 12], [3, 12, 3]].T


def test_pictures_are_read_upright_with_their_greys_on_white(tmp_path: Path) -> None:
    """As in the thumbnails of the review: rotated, of 16 bits, transparent, animated."""
    red_left = Image.new("RGB", (32, 32), (0, 0, 255))
    red_left.paste((255, 0, 0), (0, 0, 16, 32))
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: the left half is the upper one
    red, blue = torch.tensor([1.0, 0, 0]), torch.tensor([0, 0, 1.0])
    expected = {
        encoded(red_left): [red, blue, red],
        encoded(red_left, exif=exif): [red, red, blue],
        encoded(red_left.convert("CMYK")): [red, blue, red],
        encoded(red_left, "GIF", save_all=True, append_images=[Image.new("RGB", (32, 32))]): [red, blue, red],
    }
    for data, colours in expected.items():
        assert torch.allclose(colours_in(tmp_path, data), torch.stack(colours), atol=0.08)
    greys = np.full((32, 32), 0x4000, np.uint16)
    greys[:, 16:] = 0xC000
    for file_format in ("PNG", "TIFF"):
        dark, light, _ = colours_in(tmp_path, encoded(Image.fromarray(greys), file_format))
        assert torch.allclose(torch.stack([dark[0], light[0]]), torch.tensor([0.25, 0.75]), atol=0.01)
    clear = Image.new("RGBA", (32, 32), (0, 0, 0, 0))
    assert torch.equal(colours_in(tmp_path, encoded(clear, "PNG")), torch.ones(3, 3))


def test_images_up_to_the_limit_of_pixels_are_read_without_a_warning() -> None:
    """Pillow warns from half of that limit on, and warnings are errors in tests."""
    assert open_image(encoded(Image.new("1", (10_000, 10_000)), "PNG")).size == (10_000, 10_000)


def test_images_of_which_none_can_be_read_are_refused_by_name(manifest: Manifest, tmp_path: Path) -> None:
    dataset = ImageDataset(manifest, tmp_path, IN_ORDER)
    dataset.require_readable()
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty: none of the \d+ images can be read; is this the folder") as raised:
        ImageDataset(manifest, tmp_path / "empty", IN_ORDER).require_readable()
    assert f"\n  {manifest.ids[0]}: {tmp_path}/empty/{manifest.paths[0]}: No such file" in str(raised.value)


@forking
@pytest.mark.parametrize("workers", [0, 1])
def test_batch_without_readable_images_is_an_error_in_training_only(
    manifest: Manifest, tmp_path: Path, workers: int
) -> None:
    (tmp_path / "empty").mkdir()
    dataset = ImageDataset(manifest, tmp_path / "empty", IN_ORDER)
    (batch,) = loading.evaluation_batches(dataset, np.arange(3), batch_size=3, workers=workers)
    assert (len(batch), len(batch.labels), len(batch.rows)) == (0, 0, 0)
    assert [image.row for image in batch.skipped] == [0, 1, 2]
    with pytest.raises(InputError, match="^none of the 8 images of a batch can be read; is the folder") as raised:
        batches_of(dataset, workers=workers)
    assert "Traceback" not in str(raised.value)


@forking
def test_workers_end_by_themselves_when_the_traceback_of_an_error_is_collected(
    manifest: Manifest, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    dataset = ImageDataset(manifest, tmp_path / "empty", IN_ORDER)
    others = set(multiprocessing.active_children())

    def fail() -> list[BaseProcess]:
        error: InputError | None = None
        try:
            batches_of(dataset, workers=1)
        except InputError as raised:
            error = raised  # a cycle: the traceback has this frame
        assert error is not None
        return list(set(multiprocessing.active_children()) - others)

    workers = fail()
    gc.collect()
    assert [worker.exitcode for worker in workers] == [0]


@forking
@pytest.mark.parametrize("workers", [0, 1])
def test_missing_folders_and_tar_files_are_reported(tmp_path: Path, workers: int) -> None:
    manifest = images_in_tars(tmp_path)
    with pytest.raises(InputError, match="absent: no such folder; name the one"):
        ImageDataset(manifest, tmp_path / "absent", IN_ORDER)
    dataset = ImageDataset(manifest, tmp_path, IN_ORDER)
    (tmp_path / "1.tar").write_bytes(b"something else")
    batches = loading.evaluation_batches(dataset, np.arange(6), batch_size=3, workers=workers)
    assert len(next(batches)) == 3
    with pytest.raises(
        InputError, match=r"^.*1\.tar: not the tar file that was indexed: .*run hgld index-images again$"
    ):
        next(batches)
    (tmp_path / "1.tar").unlink()
    with pytest.raises(InputError, match=r"1 of the manifest's 2 tar files are not in this folder; .*\n  1\.tar$"):
        ImageDataset(manifest, tmp_path, IN_ORDER)


@pytest.mark.parametrize(
    "settings",
    [
        {"size": 0},
        {"resize": 200},
        {"crop_scale": (0.5, 0.4)},
        {"crop_scale": (0, 1)},
        {"crop_scale": (0.5, 1.1)},
        {"crop_ratio": (1.5, 1.2)},
        {"crop_ratio": (0, 1.2)},
        {"crop_scale": None, "train_resize": 256},
        {"fit": "stretch"},
        {"fit": "squash", "resize": 200},
        {"interpolation": "nearest"},
        {"std": (0, 1, 1)},
        {"colour": 1},
    ],
)
def test_invalid_image_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ImageSettings.model_validate(settings)


@forking
def test_signals_to_all_processes_of_a_job_do_not_end_its_readers(training: ImageDataset) -> None:
    sampler = ClassBalancedSampler(training.manifest.labels, 8, 2, seed=0)
    batches = loading.training_batches(training, sampler, 0, seed=0, workers=1)
    others = set(multiprocessing.active_children())  # of pools that earlier tests have used
    first = next(batches)
    (reader,) = set(multiprocessing.active_children()) - others
    assert reader.pid is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(reader.pid, number)
    assert same([first, *batches], batches_of(training))
