"""Model that embeds queries, images or texts, like the images of a gallery."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from hgld.datasets.image_dataset import AnyImage, ImageList, open_images
from hgld.datasets.loading import ExampleDataset, evaluation_batches
from hgld.datasets.transforms import ImageSettings, evaluation_transform
from hgld.errors import ConfigurationError, HgldError
from hgld.labels.embed import embed_labels
from hgld.labels.encoders import load_encoder
from hgld.models.embedding_files import EmbeddingRecord, read_embedding_record, weights_digest
from hgld.models.embedding_model import MEMORY_FORMAT
from hgld.models.image_embedder import (
    EmbeddingShard,
    ImageEmbedder,
    embed_batches,
    report_unreadable,
)
from hgld.models.model_files import PYTHON
from hgld.models.model_loading import load_model
from hgld.models.model_settings import OPEN_CLIP, ModelSource
from hgld.progress import Progress


@dataclass(frozen=True, eq=False)
class QueryModel:
    """A model with the settings with which the embeddings of a gallery were computed.

    Args:
        embedder: The model, with its image size.
        scales: Factors of height and width at which images are embedded.
        half: Whether to compute in 16 bits.
        mean: float, shape (d,); subtracted from embeddings, which are then normalised again. None to
            leave embeddings as they are.
    """

    embedder: ImageEmbedder
    scales: Sequence[float] = (1.0,)
    half: bool = False
    mean: torch.Tensor | None = None

    def embed(self, images: Sequence[AnyImage]) -> torch.Tensor:
        """Embed a list of images as float32, shape (n, d), of length 1.

        Raises:
            InputError: An image cannot be read.
        """
        dataset = ImageList(images, evaluation_transform(self.embedder.image_settings))
        return self._embed(dataset, batch_size=1).vectors

    def embed_texts(self, texts: Sequence[str]) -> torch.Tensor:
        """Embed texts with the text tower of the model as float32, shape (n, d), of length 1.

        Raises:
            ConfigurationError: The model has no text tower; see :func:`text_encoder_of`.
        """
        device = str(self.embedder.network.device)
        encoder = load_encoder(text_encoder_of(self.embedder.source), device)
        vectors = embed_labels(texts, encoder, templates=("{}",))
        return self._centred(torch.from_numpy(vectors))

    def embed_path(
        self,
        path: Path,
        *,
        batch_size: int = 32,
        workers: int = 0,
        progress: Progress | None = None,
    ) -> tuple[torch.Tensor, list[str]]:
        """Embed one image, or all images of a folder, a tar file or a manifest.

        Unreadable images are omitted, and logged as a warning.

        Args:
            path: Image, folder, tar file or manifest.
            batch_size: Number of images embedded at once.
            workers: Number of processes that read images; 0 to read in the calling process.
            progress: Progress bar over the images.

        Returns:
            Embeddings, float32, shape (n, d), of length 1, and the ids of the images.

        Raises:
            InputError: There are no images, or none can be read.
        """
        dataset = open_images(path, evaluation_transform(self.embedder.image_settings))
        if progress:
            progress.start(len(dataset))
        embedded = self._embed(dataset, batch_size, workers, progress)
        report_unreadable(embedded, path)
        return embedded.vectors, dataset.manifest.ids[embedded.rows.numpy()].tolist()

    def _embed(
        self,
        dataset: ExampleDataset,
        batch_size: int,
        workers: int = 0,
        progress: Progress | None = None,
    ) -> EmbeddingShard:
        """Embed a dataset with the settings of the gallery."""
        batches = evaluation_batches(
            dataset, np.arange(len(dataset)), batch_size=batch_size, workers=workers
        )
        embedded = embed_batches(
            self.embedder.network, batches, scales=self.scales, half=self.half, progress=progress
        )
        return replace(embedded, vectors=self._centred(embedded.vectors))

    def _centred(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return vectors after subtraction of the mean, if there is one."""
        if self.mean is None:
            return vectors
        return torch.nn.functional.normalize(vectors - self.mean, dim=1)


def load_query_model(
    embeddings: Path,
    dim: int,
    model: str | None = None,
    pretrained: str | None = None,
    device: str = "cpu",
) -> QueryModel:
    """Load the model that made the embeddings of a gallery.

    Args:
        embeddings: File of the embeddings.
        dim: Dimension of the embeddings.
        model: Model, as for :func:`hgld.load_model`. Default: the model that ``hgld embed-images``
            recorded beside the embeddings. In both cases, its image size, scales and mean come from the
            record, if there is one.
        pretrained: Pretrained weights of ``model``, as for :func:`hgld.load_model`.
        device: Device of the model.

    Raises:
        ConfigurationError: No model is recorded, the recorded model is missing, or the model did not
            make the embeddings.
        InputError: The file of the model is unusable.
    """
    record = read_embedding_record(embeddings)
    embedder = _load(embeddings, record, model, pretrained)
    if embedder.dim != dim:
        raise ConfigurationError(
            f"`model` has {embedder.dim:,} dimensions, but {embeddings} has {dim:,}; name the model that made them"
        )
    query_model = QueryModel(embedder)
    if record is not None:
        if weights_digest(embedder.network) != record.provenance.inputs.get("weights"):
            raise ConfigurationError(
                f"`model` has other weights than the model that made {embeddings}; name that one, or embed the "
                "images again"
            )
        settings = record.provenance.parameters
        embedder = replace(embedder, image_settings=ImageSettings.model_validate(settings["image"]))
        mean = None if record.mean is None else torch.tensor(record.mean)
        query_model = QueryModel(embedder, tuple(settings["scales"]), settings["half"], mean)
    embedder.to(device).network.to(memory_format=MEMORY_FORMAT)
    return query_model


def _load(
    embeddings: Path, record: EmbeddingRecord | None, model: str | None, pretrained: str | None
) -> ImageEmbedder:
    """Load a model by its name, or the recorded model."""
    if model is not None:
        return load_model(model, pretrained)
    if record is None or record.sources.model is None:
        raise ConfigurationError(
            f"{embeddings}: it is not recorded beside it which model made these embeddings; give `model`"
        )
    source = record.sources.model
    if source.model.startswith(PYTHON):
        # The record may come from another machine, so its code is not run without a request.
        raise ConfigurationError(
            f"{embeddings}: made by the code of {source.model}; if you trust it, give it as `model`"
        )
    try:
        return load_model(source.model, source.pretrained)
    except HgldError as error:
        raise ConfigurationError(
            f"{embeddings}: made by {source.model}, which cannot be loaded: {error}; give its place now as `model`"
        ) from error


def text_encoder_of(source: ModelSource | None) -> str:
    """Return the name of the text encoder that belongs to a model of images."""
    name = "a model of unknown origin" if source is None else source.model
    if source is None or not name.startswith(OPEN_CLIP) or source.pretrained == "none":
        raise ConfigurationError(
            f"{name} has no text tower; texts are for images embedded by {OPEN_CLIP}MODEL/TAG"
        )
    if source.pretrained is None:
        return name
    return f"{name.partition('/')[0]}/{source.pretrained}"
