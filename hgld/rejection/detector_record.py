"""What a fitted rejection score comes from, as its folder and its card state it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from hgld.io.settings import Settings


class DetectorModel(Settings):
    """The model that made the embeddings which a score was fitted on.

    Args:
        name: Name of the model, or of its file.
        weights_sha256: SHA-256 of its weights; see :func:`hgld.models.embedding_output.weights_digest`.
        settings: Other settings on which embeddings depend, such as the size of the images.
    """

    name: str
    weights_sha256: str
    settings: dict[str, Any] = Field(default_factory=dict)


class DetectorRecord(Settings):
    """What a fitted score comes from, and what it can be used for.

    Args:
        n_images: Number of images of the index.
        index_sha256: SHA-256 of the file of its embeddings; None if they were in memory.
        model: The model that made the embeddings; None if it is not known.
        level_names: Names of the L levels of the labels, finest first; empty without labels.
        provenance: Command, parameters and SHA-256 of the inputs.
    """

    n_images: int
    index_sha256: str | None = None
    model: DetectorModel | None = None
    level_names: tuple[str, ...] = ()
    provenance: dict[str, Any] = Field(default_factory=dict)
