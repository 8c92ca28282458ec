"""Normalisation against the formula, evaluated by NumPy in the order of colours, rows and columns."""

import numpy as np
import pytest
import torch

from hgld.datasets.batch import Batch, Example, Normalisation, collate

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
