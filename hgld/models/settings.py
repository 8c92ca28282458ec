"""Settings of ``hgld embed-images``, in a module that is fast to import for help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hgld.errors import ConfigurationError, require, require_at_least


@dataclass(frozen=True)
class EmbedImagesConfig:
    """Settings of embedding images.

    Args:
        split: Split of the manifest to embed. Default: all images.
        scales: Factors of height and width, to embed each image at several scales: 1,0.7071,1.4142; see
            :meth:`EmbeddingModel.multi_scale`.
        half: Run the backbone in half precision: float16 on CUDA, bfloat16 elsewhere.
        center: Subtract the mean of all embeddings, which embeddings of an untrained backbone share, and normalise
            them again; not for queries and a gallery in separate files.
        with_std: Also write the standard deviations of the feature maps before pooling, for the
            rejection score heat: x.deviations.npy beside x.npy; only for a single scale.
        device: Device: cpu, cuda or cuda:N.
        batch_size: Number of images embedded at once.
        shard_size: Number of images per shard.
        workers: Number of processes that load images; 0 loads images in the calling process.
    """

    split: str | None = None
    scales: Sequence[float] = (1.0,)
    half: bool = False
    center: bool = False
    with_std: bool = False
    device: str = "cpu"
    batch_size: int = 32
    shard_size: int = 1024
    workers: int = 2

    def __post_init__(self) -> None:
        is_valid = len(self.scales) > 0 and min(self.scales) > 0
        require(is_valid, "at least one number, all above 0", scales=list(self.scales))
        if self.with_std and tuple(self.scales) != (1,):
            raise ConfigurationError(
                f"`with_std` is set and `scales` is {list(self.scales)}; standard deviations of feature maps are "
                "those of one scale, 1"
            )
        require_at_least(1, batch_size=self.batch_size, shard_size=self.shard_size)
        require_at_least(0, workers=self.workers)

    @property
    def device_type(self) -> str:
        """Type of the device, such as ``cuda``; raises a ConfigurationError if there is no such type."""
        import torch

        try:
            return torch.device(self.device).type
        except RuntimeError as error:
            raise ConfigurationError(
                f'the device "{self.device}" cannot be used: {error}'
            ) from error
