"""Pictures, how they are resized and cropped, and their normalisation."""

import io
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torchvision import transforms as published

from hgld.datasets.loading import Batch, Example, collate
from hgld.datasets.transforms import (
    ImageSettings,
    Normalisation,
    evaluation_transform,
    open_picture,
    training_transform,
)
from hgld.io.images import open_image, upright_rgb
from tests.assertions import not_none
from tests.figures.test_thumbnails import encoded


def noise(width: int, height: int, seed: int = 0) -> NDArray[np.uint8]:
    """Return random pixels, half of which are black or white, where values are clipped."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    return np.where(rng.random(pixels.shape) < 0.5, 255 * (pixels > 127), pixels).astype(np.uint8)


def jpeg(width: int = 37, height: int = 23, mode: str = "RGB", **options: object) -> bytes:
    return encoded(Image.fromarray(noise(width, height)).convert(mode), "JPEG", **options)


def turned(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return jpeg(exif=exif)


FILES = {
    **{f"4:{s}": jpeg(subsampling=f"4:{s}") for s in ("4:4", "2:2", "2:0")},
    "progressive": jpeg(progressive=True),
    "grey": jpeg(mode="L"),
    "four colours": jpeg(mode="CMYK"),
    "low quality": jpeg(quality=5),
    **{f"orientation {value}": turned(value) for value in (1, 2, 3, 4, 5, 6, 7, 8, 9)},
    "png": encoded(Image.fromarray(noise(9, 8)), "PNG"),
    "transparent": encoded(Image.new("RGBA", (5, 4), (0, 0, 0, 0)), "PNG"),
    "one pixel": jpeg(1, 1),
}


@pytest.mark.parametrize("name", FILES)
def test_the_size_of_a_picture_is_known_before_it_is_decoded(name: str) -> None:
    expected = upright_rgb(open_image(FILES[name]))
    picture = open_picture(FILES[name])
    assert (picture.width, picture.height) == expected.size
    np.testing.assert_array_equal(picture.decode(), expected)


@pytest.mark.parametrize(("reduction", "size"), [(1, (37, 23)), (2, (19, 12)), (4, (10, 6)), (8, (5, 3))])
def test_reduced_jpeg_files_are_of_the_rounded_up_size(reduction: int, size: tuple[int, int]) -> None:
    for name, expected in {"4:2:0": size, "orientation 6": size[::-1], "grey": size}.items():
        picture = open_picture(FILES[name])
        assert picture.decode(reduction).size == expected
        assert (picture.height, picture.width) == ((37, 23) if "6" in name else (23, 37)), "those of the whole"


def test_a_reduced_picture_has_the_means_of_the_pixels() -> None:
    ramp = np.broadcast_to(np.arange(0, 256, 4, dtype=np.uint8)[None, :, None], (64, 64, 3))
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(ramp)).save(file, "JPEG", quality=100)
    reduced = np.asarray(open_picture(file.getvalue()).decode(4))
    means = ramp.reshape(16, 4, 16, 4, 3).mean((1, 3))
    np.testing.assert_allclose(reduced, means, atol=2)


#: Of every settings file.
NORMALISE = [published.ToTensor(), published.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]


def thumbnail(image: Image.Image) -> Image.Image:
    """``imresize`` of cirtorch (datahelpers.py) and of the authors' revisited_dataset.py, for 1,024 pixels."""
    image = image.copy()
    image.thumbnail((1024, 1024), Image.Resampling.LANCZOS)
    return image


def old_resize(*size: int) -> Any:
    return published.Resize(size[0] if len(size) == 1 else size)


def random_crop(size: int, scale: tuple[float, float] = (0.16, 1), ratio: tuple[float, float] = (0.75, 1.33)) -> Any:
    return published.RandomResizedCrop(size, scale, ratio)


EVALUATION: dict[str, tuple[dict[str, Any], list[Any]]] = {
    # SupRank suprank/config/dataset/sop.yaml; HAPPIER happier/config/transform/sop.yaml; ROADMAP .../sop.yaml
    "sop": ({"fit": "squash", "resize": 256}, [old_resize(256, 256), published.CenterCrop(224)]),
    # ROADMAP roadmap/config/transform/sop_big.yaml and inshop_big.yaml
    "sop_big": (
        {"fit": "squash", "resize": 288, "size": 256},
        [old_resize(288, 288), published.CenterCrop(256)],
    ),
    # SupRank suprank/config/dataset/gldv2.yaml and gldv2_hier.yaml; ROADMAP roadmap/config/transform/sfm120k.yaml
    "gldv2": ({"fit": "squash", "resize": 224}, [old_resize(224, 224)]),
    # SupRank suprank/config/dataset/gldv2_bench.yaml
    "gldv2_bench": ({"fit": "squash", "resize": 1024, "size": 1024}, [old_resize(1024, 1024)]),
    # SupRank cub.yaml, cars.yaml, inat_base.yaml, dyml_animal.yaml; HAPPIER inat.yaml, dyml.yaml; ROADMAP cub.yaml,
    # inaturalist.yaml; src/datasets.py of Recall@k and of Smooth-AP for ResNet-50
    "inat": ({}, [old_resize(256), published.CenterCrop(224)]),
    # SupRank cub_big.yaml; ROADMAP cub_big.yaml
    "cub_big": ({"resize": 288, "size": 256}, [old_resize(288), published.CenterCrop(256)]),
    # src/datasets.py of Recall@k and of Smooth-AP for other architectures
    "googlenet": ({"size": 227}, [old_resize(256), published.CenterCrop(227)]),
    # cirtorch (filipradenovic/cnnimageretrieval-pytorch), which ROADMAP and Recall@k evaluate ROxford and RParis with
    "roxford": ({"fit": "longest", "size": 1024, "interpolation": "lanczos"}, [thumbnail]),
}

TRAINING: dict[str, tuple[dict[str, Any], list[Any]]] = {
    # SupRank, HAPPIER and ROADMAP sop.yaml
    "sop": ({"train_resize": 256}, [old_resize(256), random_crop(224)]),
    "sop_big": ({"train_resize": 288, "size": 256, "resize": 288}, [old_resize(288), random_crop(256)]),
    # All others of SupRank, HAPPIER and ROADMAP but the next
    "inat": ({}, [random_crop(224)]),
    "gldv2_bench": (
        {"fit": "squash", "resize": 1024, "size": 1024, "crop_scale": None},
        [old_resize(1024, 1024)],
    ),
    # src/datasets.py of Recall@k and of Smooth-AP: torchvision's defaults
    "recall": ({"crop_scale": (0.08, 1), "crop_ratio": (3 / 4, 4 / 3)}, [published.RandomResizedCrop(224)]),
}

Photographs = dict[str, Image.Image]


@pytest.fixture(scope="module")
def drawn() -> Photographs:
    """Synthetic pictures of several aspect ratios, one of them smaller than any crop."""
    rng = np.random.default_rng(0)
    sizes = [(1024, 512), (300, 1100), (256, 256), (90, 61)]
    return {f"{w} x {h}": Image.fromarray(rng.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in sizes}


@pytest.fixture(scope="module")
def real(shared: Path) -> Photographs:
    """Some photographs of landmarks, 224 x 224, and of groceries, most of them 256 x 256 or 256 x 341."""
    photographs = {}
    for tar, n in (("wa_gldv2/train/images_000.tar", 3), ("grocery/images_001.tar", 20)):
        with tarfile.open(shared / tar) as files:
            members = [member for member in files if member.isfile()][: 20 * n : 20]
            for member in members:
                data = io.BytesIO(not_none(files.extractfile(member)).read())
                photographs[member.name] = Image.open(data).convert("RGB")
    assert len({photograph.size for photograph in photographs.values()}) > 1
    return photographs


def require_same_pixels(
    ours: Callable[[Image.Image], torch.Tensor], steps: Sequence[Any], photographs: Photographs
) -> None:
    theirs = published.Compose([*steps, *NORMALISE])
    for photograph in photographs.values():
        torch.manual_seed(3)
        expected = theirs(photograph)
        torch.manual_seed(3)
        torch.testing.assert_close(ours(photograph), expected, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("name", EVALUATION)
def test_evaluation_transforms_are_those_published(name: str, drawn: Photographs) -> None:
    settings, steps = EVALUATION[name]
    require_same_pixels(evaluation_transform(ImageSettings(**settings)), steps, drawn)


@pytest.mark.parametrize("name", TRAINING)
def test_training_transforms_are_those_published(name: str, drawn: Photographs) -> None:
    settings, steps = TRAINING[name]
    mirrored = [*steps, published.RandomHorizontalFlip(0.5)]
    require_same_pixels(training_transform(ImageSettings(**settings)), mirrored, drawn)


@pytest.mark.parametrize("name", ["sop", "gldv2", "inat", "roxford"])
def test_pixels_of_real_photographs_are_those_published(name: str, real: Photographs) -> None:
    settings, steps = EVALUATION[name]
    require_same_pixels(evaluation_transform(ImageSettings(**settings)), steps, real)


def test_queries_are_cut_out_as_published(drawn: Photographs) -> None:
    """As in revisited_dataset.py of SupRank and of ROADMAP: squashed to 224 pixels, and with an ``imsize`` of 640."""
    box = (10.5, 7.0, 81.2, 55.49)
    squash = evaluation_transform(ImageSettings(fit="squash", resize=224))
    longest = evaluation_transform(ImageSettings(fit="longest", size=640, interpolation="lanczos"))
    for photograph in drawn.values():
        part = photograph.crop(box)
        expected = published.Compose([old_resize(224, 224), *NORMALISE])(part)
        torch.testing.assert_close(squash(photograph, box), expected, atol=2e-6, rtol=1e-5)
        side = 640 * max(part.size) / max(photograph.size)
        part.thumbnail((side, side), Image.Resampling.LANCZOS)
        expected = published.Compose(NORMALISE)(part)
        torch.testing.assert_close(longest(photograph, box), expected, atol=2e-6, rtol=1e-5)


def test_only_a_squashed_picture_shows_its_sides() -> None:
    wide = Image.new("RGB", (1024, 512), (0, 0, 0))
    wide.paste((255, 0, 0), (0, 0, 240, 512))  # the centre crop begins at 256, and interpolation reaches 4 further
    neutral = {"mean": (0, 0, 0), "std": (1, 1, 1), "resize": 224}
    cropped, squashed = (
        evaluation_transform(ImageSettings.model_validate({**neutral, "fit": fit}))(wide)
        for fit in ("crop", "squash")
    )
    assert cropped.max() == 0
    assert squashed[0, :, :50].min() == 1


def test_the_longer_side_is_reduced_and_never_enlarged(drawn: Photographs) -> None:
    transform = evaluation_transform(ImageSettings(fit="longest", size=512))
    shapes = {name: tuple(transform(photograph).shape[1:]) for name, photograph in drawn.items()}
    assert shapes == {
        "1024 x 512": (256, 512),
        "300 x 1100": (512, 140),
        "256 x 256": (256, 256),
        "90 x 61": (61, 90),
    }


IMAGENET = Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def by_numpy(pixels: torch.Tensor) -> torch.Tensor:
    std, mean = (np.array(values, np.float32)[:, None, None] for values in (IMAGENET.std, IMAGENET.mean))
    return torch.from_numpy(pixels.numpy() * (1 / (255 * std)) - mean / std)


@pytest.mark.parametrize("shape", [(3, 5, 7), (2, 3, 4, 1), (1, 3, 1, 1), (0, 3, 0, 0), (4, 3, 33, 65)])
def test_every_bit_is_that_of_the_formula(shape: tuple[int, ...]) -> None:
    pixels = torch.randint(256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    expected = by_numpy(pixels)
    for layout in (pixels, pixels.movedim(-3, -1).contiguous().movedim(-1, -3)):
        result = IMAGENET(layout)
        assert result.dtype == torch.float32
        assert torch.equal(result, expected)
        assert torch.equal(IMAGENET(layout, torch.bfloat16), expected.to(torch.bfloat16))


def test_images_of_a_batch_keep_their_colours_side_by_side() -> None:
    generator = torch.Generator().manual_seed(0)
    images = [torch.randint(256, (3, 4, 5), dtype=torch.uint8, generator=generator) for _ in range(3)]
    batch = collate([Example(image, torch.tensor([0]), 0) for image in images], IMAGENET)
    assert isinstance(batch.images, torch.Tensor)
    assert torch.equal(batch.images, torch.stack([by_numpy(image) for image in images]))
    assert batch.images.is_contiguous(memory_format=torch.channels_last)
    assert batch.images is batch.images, "they are computed once"


def test_features_are_not_normalised() -> None:
    features = torch.rand(2, 6)
    batch = Batch(features, torch.zeros(2, 1), torch.arange(2), [], None)
    assert batch.images_on("cpu", torch.bfloat16) is features
