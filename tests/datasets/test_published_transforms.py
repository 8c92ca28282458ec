"""The transforms of the authors' settings files, composed of torchvision's own, against ours.

A step of one pixel value is 0.017 after normalisation; the tolerance is that of float32.
"""

import io
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as published

from hgld.datasets.transforms import ImageSettings, evaluation_transform, training_transform

#: Of every settings file.
NORMALISE = [published.ToTensor(), published.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]


def thumbnail(image: Image.Image) -> Image.Image:
    """``imresize`` of cirtorch (datahelpers.py) and of the authors' revisited_dataset.py, for 1,024 pixels."""
    image = image.copy()
    image.thumbnail((1024, 1024), Image.Resampling.LANCZOS)
    return image


def resize(*size: int) -> Any:
    return published.Resize(size[0] if len(size) == 1 else size)


def random_crop(size: int, scale: tuple[float, float] = (0.16, 1), ratio: tuple[float, float] = (0.75, 1.33)) -> Any:
    return published.RandomResizedCrop(size, scale, ratio)


EVALUATION: dict[str, tuple[dict[str, Any], list[Any]]] = {
    # SupRank suprank/config/dataset/sop.yaml; HAPPIER happier/config/transform/sop.yaml; ROADMAP .../sop.yaml
    "sop": ({"fit": "squash", "resize": 256}, [resize(256, 256), published.CenterCrop(224)]),
    # ROADMAP roadmap/config/transform/sop_big.yaml and inshop_big.yaml
    "sop_big": ({"fit": "squash", "resize": 288, "size": 256}, [resize(288, 288), published.CenterCrop(256)]),
    # SupRank suprank/config/dataset/gldv2.yaml and gldv2_hier.yaml; ROADMAP roadmap/config/transform/sfm120k.yaml
    "gldv2": ({"fit": "squash", "resize": 224}, [resize(224, 224)]),
    # SupRank suprank/config/dataset/gldv2_bench.yaml
    "gldv2_bench": ({"fit": "squash", "resize": 1024, "size": 1024}, [resize(1024, 1024)]),
    # SupRank cub.yaml, cars.yaml, inat_base.yaml, dyml_animal.yaml; HAPPIER inat.yaml, dyml.yaml; ROADMAP cub.yaml,
    # inaturalist.yaml; src/datasets.py of Recall@k and of Smooth-AP for ResNet-50
    "inat": ({}, [resize(256), published.CenterCrop(224)]),
    # SupRank cub_big.yaml; ROADMAP cub_big.yaml
    "cub_big": ({"resize": 288, "size": 256}, [resize(288), published.CenterCrop(256)]),
    # src/datasets.py of Recall@k and of Smooth-AP for other architectures
    "googlenet": ({"size": 227}, [resize(256), published.CenterCrop(227)]),
    # cirtorch (filipradenovic/cnnimageretrieval-pytorch), which ROADMAP and Recall@k evaluate ROxford and RParis with
    "roxford": ({"fit": "longest", "size": 1024, "interpolation": "lanczos"}, [thumbnail]),
}

TRAINING: dict[str, tuple[dict[str, Any], list[Any]]] = {
    # SupRank, HAPPIER and ROADMAP sop.yaml
    "sop": ({"train_resize": 256}, [resize(256), random_crop(224)]),
    "sop_big": ({"train_resize": 288, "size": 256, "resize": 288}, [resize(288), random_crop(256)]),
    # All others of SupRank, HAPPIER and ROADMAP but the next
    "inat": ({}, [random_crop(224)]),
    "gldv2_bench": ({"fit": "squash", "resize": 1024, "size": 1024, "crop_scale": None}, [resize(1024, 1024)]),
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
                stream = files.extractfile(member)
                assert stream is not None
                photographs[member.name] = Image.open(io.BytesIO(stream.read())).convert("RGB")
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
        expected = published.Compose([resize(224, 224), *NORMALISE])(part)
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
