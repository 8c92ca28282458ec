"""A model that is ready to use: a network and the transform of its images, which embed many images."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import overload

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from hgld.datasets.encoded_images import SkippedImage
from hgld.datasets.image_dataset import AnyImage, ImageDataset, ImageList, as_rgb_image, open_images
from hgld.datasets.loading import Batch, Images, evaluation_batches
from hgld.datasets.transforms import ImageSettings, Transform, evaluation_transform
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.io.images import Box
from hgld.models.embedding_model import MEMORY_FORMAT, EmbeddingModel
from hgld.models.model_settings import ModelSettings, ModelSource
from hgld.progress import NoProgress, Progress
from hgld.tables.embeddings import Embeddings

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class EmbeddingShard:
    """The embeddings of some images of a manifest.

    Args:
        vectors: float32, shape (n, d), as the distance of the model compares them.
        rows: int64, shape (n,): rows of the images in the manifest.
        deviations: float32, shape (n, c): standard deviations of the feature maps, if they were asked for.
    """

    vectors: Tensor
    rows: Tensor
    skipped: list[SkippedImage]
    deviations: Tensor | None = None


def embed_batches(
    model: EmbeddingModel,
    batches: Iterable[Batch],
    *,
    scales: Sequence[float] = (1.0,),
    half: bool = False,
    with_deviations: bool = False,
    progress: Progress | None = None,
) -> EmbeddingShard:
    """Embed batches of images in their order, skipping images that cannot be read.

    Args:
        scales: Factors of height and width; for several, see :meth:`EmbeddingModel.multi_scale`.
        half: Whether the backbone computes in 16 bits: float16 on CUDA, bfloat16 elsewhere.
        with_deviations: Whether to compute standard deviations of the feature maps too, at one scale only; see
            :meth:`EmbeddingModel.embed_with_deviations`.

    Raises:
        InputError: A tar file cannot be read, or embeddings are not finite.
        ConfigurationError: A batch does not fit into the memory of the device, or the model has no feature maps.
    """
    progress = progress or NoProgress()
    is_scaled = tuple(scales) != (1,)

    def embed(images: Images) -> tuple[Tensor, ...]:
        if with_deviations:
            embeddings, deviations = model.embed_with_deviations(images)
            return model.points(embeddings), deviations
        embeddings = model.multi_scale(images, scales) if is_scaled else model(images)
        return (model.points(embeddings),)

    rows, vectors = [torch.empty(0, dtype=torch.int64)], [torch.empty(0, model.dim)]
    deviations = []
    skipped = []
    for batch in batches:
        if len(batch):
            outputs = _outputs(model, embed, batch, half, is_scaled)
            vectors.append(outputs[0])
            if with_deviations:
                deviations.append(outputs[1])
            rows.append(batch.rows)
        skipped += batch.skipped
        progress.advance(len(batch) + len(batch.skipped), skipped=len(skipped))
    return EmbeddingShard(
        torch.cat(vectors), torch.cat(rows), skipped, torch.cat(deviations) if deviations else None
    )


def report_unreadable(embedded: EmbeddingShard, source: str | Path) -> None:
    """Log images that could not be read as a warning.

    Raises:
        InputError: No image could be read.
    """
    reasons = [image.reason for image in embedded.skipped]
    if not len(embedded.rows):
        raise InputError(
            f"{source}: none of the {len(reasons):,} images can be read:\n{indented_list(reasons)}"
        )
    if reasons:
        log.warning(
            "%s: %d images cannot be read:\n%s", source, len(reasons), indented_list(reasons)
        )


@dataclass(frozen=True, eq=False, repr=False)
class ImageEmbedder:
    """A model in evaluation mode with the transform of its images, as :func:`hgld.load_model` returns it.

    Args:
        network: The model from tensors to unit vectors, a :class:`torch.nn.Module`.
        image_settings: Size and normalisation of the images that it expects.
        source: Where it was loaded from, if it was.

    >>> from hgld.models import load_model
    >>> model = load_model("test_resnet", "none", size=32, resize=32)  # random weights
    >>> model
    ImageEmbedder(test_resnet, 96 dimensions, images of 32 x 32)
    >>> model.embed([np.zeros((40, 30, 3), np.uint8)]).shape
    (1, 96)
    """

    network: EmbeddingModel
    image_settings: ImageSettings
    source: ModelSource | None = None

    def __post_init__(self) -> None:
        self.network.eval()

    def __repr__(self) -> str:
        size = self.image_settings.size
        images = f"images of {size} x {size}"
        if self.image_settings.fit == "longest":
            images = f"images of at most {size} x {size}"
        return f"ImageEmbedder({self.settings.backbone}, {self.dim} dimensions, {images})"

    @property
    def settings(self) -> ModelSettings:
        """Settings of the network."""
        return self.network.settings

    @property
    def dim(self) -> int:
        """Number of dimensions d of the embeddings."""
        return self.network.dim

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return self.network.device

    @cached_property
    def preprocess(self) -> Callable[..., Tensor]:
        """Function from a PIL image of any mode to the input of the network, float32, shape (3, h, w).

        It applies the EXIF orientation, converts to RGB, resizes and crops as ``image_settings`` say, and normalises.
        Height and width are ``size``, unless ``fit`` is ``longest``.
        """
        return partial(_preprocess, evaluation_transform(self.image_settings))

    def to(self, device: str | torch.device) -> ImageEmbedder:
        """Move the network to a device, and return this model."""
        try:
            self.network.to(device)
        except (RuntimeError, AssertionError) as error:  # torch asserts that it was built with CUDA
            raise ConfigurationError(f'the device "{device}" cannot be used: {error}') from error
        return self

    @overload
    def embed(  # type: ignore[overload-overlap]  # a text is also a sequence of texts
        self,
        images: str | Path,
        *,
        root: str | Path | None = None,
        batch_size: int = 32,
        workers: int = 0,
        progress: Progress | None = None,
    ) -> Embeddings: ...

    @overload
    def embed(
        self,
        images: Sequence[AnyImage],
        *,
        root: None = None,
        batch_size: int = 32,
        workers: int = 0,
        progress: Progress | None = None,
    ) -> NDArray[np.float32]: ...

    def embed(
        self,
        images: str | Path | Sequence[AnyImage],
        *,
        root: str | Path | None = None,
        batch_size: int = 32,
        workers: int = 0,
        progress: Progress | None = None,
    ) -> Embeddings | NDArray[np.float32]:
        """Embed images as unit vectors.

        With the same batch size, device and number of threads, ``hgld embed-images`` writes the same vectors, bit by
        bit, if its shards hold whole batches, as they do by default.

        Args:
            images: A list of PIL images, paths of image files, and arrays of pixels (uint8, shape (h, w), (h, w, 3)
                or (h, w, 4)); or one path, of a folder of images or tar files, a tar file, a manifest, or an image.
            root: Folder that the paths of a manifest are relative to. Default: the folder of the manifest.
            batch_size: Number of images embedded at once.
            workers: Number of processes that read images; 0 reads them in this one.
            progress: Reporter of the number of images done.

        Returns:
            For a list, float32, shape (n, d), a row for each image. For a path, the embeddings with the ids of the
            images, and their landmark ids if the manifest has them; images that cannot be read are left out, and
            logged as a warning.

        Raises:
            InputError: An image of the list cannot be read, or no image below the path, or embeddings are not finite.
            ConfigurationError: A batch does not fit into the memory of the device.
        """
        network = self.network.eval().to(memory_format=MEMORY_FORMAT)
        dataset: ImageDataset | ImageList
        if isinstance(images, str | Path):
            folder = None if root is None else Path(root)
            dataset = open_images(
                Path(images), evaluation_transform(self.image_settings), root=folder
            )
        elif isinstance(images, Image.Image | np.ndarray | Tensor):
            raise ConfigurationError(
                f"`images` is one {type(images).__name__}; expected a list of images, or a path"
            )
        else:
            dataset = ImageList(images, evaluation_transform(self.image_settings))
        if progress:
            progress.start(len(dataset))
        batches = evaluation_batches(
            dataset, np.arange(len(dataset)), batch_size=batch_size, workers=workers
        )
        embedded = embed_batches(network, batches, progress=progress)
        if isinstance(dataset, ImageList):
            return embedded.vectors.numpy()
        report_unreadable(embedded, str(images))
        manifest = dataset.manifest.take(embedded.rows.numpy())
        return Embeddings(
            embedded.vectors, manifest.ids, manifest.landmark_ids(), Path(str(images))
        )


def _preprocess(transform: Transform, image: Image.Image, box: Box | None = None) -> Tensor:
    return transform(as_rgb_image(image), box)


def _outputs(
    model: EmbeddingModel,
    embed: Callable[[Images], Sequence[Tensor]],
    batch: Batch,
    half: bool,
    is_scaled: bool,
) -> Sequence[Tensor]:
    """Compute outputs of a model for a batch of images, checked, in main memory."""
    device = model.device
    half_dtype = torch.float16 if device.type == "cuda" else torch.bfloat16
    # Images that are scaled first are scaled in float32.
    images = batch.images_on(device, half_dtype if half and not is_scaled else torch.float32)
    try:
        with torch.inference_mode(), torch.autocast(device.type, half_dtype, enabled=half):
            outputs = embed(images)
    except torch.cuda.OutOfMemoryError as error:
        _, height, width = max(images, key=torch.numel).shape
        raise ConfigurationError(
            f"{len(images)} images of {width} x {height} do not fit into the memory of {device}; choose a smaller "
            "`batch_size`"
        ) from error
    if not all(output.isfinite().all() for output in outputs):
        remedy = "check its weights, or embed without `half`" if half else "check its weights"
        raise InputError(f"the model outputs numbers that are not finite; {remedy}")
    return [output.cpu() for output in outputs]
