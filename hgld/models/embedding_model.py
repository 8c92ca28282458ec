"""The model: from images to embeddings."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from hgld.compute.dtypes import at_least_float32
from hgld.errors import ConfigurationError
from hgld.models.backbones import create_backbone
from hgld.models.model_settings import ModelSettings
from hgld.models.pooling import Average, GeM, Max, generalised_mean

#: Convolutions take a quarter less time with channels last, on CPUs as well.
MEMORY_FORMAT = torch.channels_last


class EmbeddingModel(nn.Module):
    """backbone -> pooling -> LayerNorm or L2 normalisation -> linear projection -> L2 normalisation.

    What follows the backbone is done in float32, autocast or not.

    Args:
        backbone: see :func:`hgld.models.backbones.create_backbone`.
        n_channels: of the features of the backbone.
        settings: of what follows it.

    Raises:
        ConfigurationError: the projection would have more dimensions than the features.
    """

    def __init__(self, backbone: nn.Module, n_channels: int, settings: ModelSettings) -> None:
        super().__init__()
        self.settings = settings
        #: How many numbers an embedding has, d.
        self.dim = settings.dim or n_channels
        self.backbone = backbone
        self.pooling = _pooling(settings)
        self.projection = _projection(n_channels, settings)
        self._n_channels = n_channels
        self._frozen = False
        # A model of features without projection has no parameter that could tell the device.
        self.register_buffer("_anywhere", torch.empty(0), persistent=False)
        # timm fixes some itself, such as position embeddings of sines.
        self._learnt = [parameter for parameter in backbone.parameters() if parameter.requires_grad]

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The embeddings.

        Args:
            images: float, shape (B, 3, h, w), normalised as the backbone wants them; or (B, C), features, if there is
                no backbone.

        Returns:
            float32, shape (B, d), of length 1.

        Raises:
            ConfigurationError: the backbone takes no images of this size.
        """
        features = self.features(images)
        if self.projection is not None:
            with torch.autocast(images.device.type, enabled=False):
                features = self.projection(features)
        return functional.normalize(features, dim=1)

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """What is projected: pooled features after the norm that the settings name.

        Args:
            images: as in :meth:`forward`.

        Returns:
            float32, shape (B, C).
        """
        try:
            features = self.backbone(images)
        except AssertionError as error:  # how timm refuses sizes
            raise ConfigurationError(
                f"{self.settings.backbone} takes no images of {images.shape[3]} x {images.shape[2]}: {error}; set "
                "the size of images that it was made for"
            ) from error
        if self.pooling is not None:
            features = self.pooling(self._positions(features))
        features = at_least_float32(features)
        if self.settings.layer_norm:
            return functional.layer_norm(features, features.shape[1:])
        return functional.normalize(features, dim=1) if self.settings.l2_norm else features

    def multi_scale(self, images: torch.Tensor, scales: Sequence[float]) -> torch.Tensor:
        """Embeddings of images at several sizes in one, as in the evaluations on ROxford (Radenovic et al., 2018).

        The embeddings of the scaled images, each of length 1, are averaged. Those of GeM without projection, which
        have no negative numbers, are put together by the generalised mean with GeM's p instead. The result is
        normalised.

        Args:
            images: as in :meth:`forward`.
            scales: factors of height and width, such as (1, 2 ** -0.5, 2 ** 0.5).

        Returns:
            float32, shape (B, d), of length 1.

        Raises:
            ConfigurationError: the backbone takes images of one size only.
        """
        embeddings = torch.stack([self(_scaled(images, scale)) for scale in scales], dim=-1)
        if isinstance(self.pooling, GeM) and self.projection is None and not self.settings.layer_norm:
            return functional.normalize(generalised_mean(embeddings, self.pooling.p), dim=1)
        return functional.normalize(embeddings.mean(-1), dim=1)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        assert isinstance(self._anywhere, torch.Tensor)
        return self._anywhere.device

    def to_device(self, images: torch.Tensor) -> torch.Tensor:
        """Images, or features, where the model is, in the layout that it wants."""
        layout = MEMORY_FORMAT if images.ndim == 4 else torch.preserve_format
        return images.to(self.device, non_blocking=True, memory_format=layout)

    def groups(self) -> dict[str, list[nn.Parameter]]:
        """All parameters, each in one list: ``backbone``, and ``head`` for the p of GeM and the projection."""
        backbone = list(self.backbone.parameters())
        known = {id(parameter) for parameter in backbone}
        return {
            "backbone": backbone,
            "head": [parameter for parameter in self.parameters() if id(parameter) not in known],
        }

    def freeze_backbone(self, frozen: bool) -> None:
        """Keep the backbone as it is in training: its parameters, and the statistics of its batch-norm."""
        for parameter in self._learnt:
            parameter.requires_grad_(not frozen)
        self._frozen = frozen
        self.train(self.training)

    def train(self, mode: bool = True) -> EmbeddingModel:
        """See :meth:`torch.nn.Module.train`; what is frozen stays in the mode of evaluation."""
        super().train(mode)
        if self._frozen:
            self.backbone.eval()
        if self.settings.frozen_batch_norm:
            for module in self.backbone.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self

    def _positions(self, features: torch.Tensor) -> torch.Tensor:
        """Features with positions last, (B, C, n), from any layout that timm has."""
        if features.ndim == 3:
            return features[:, getattr(self.backbone, "num_prefix_tokens", 0) :].movedim(-1, 1)
        if features.shape[1] != self._n_channels:
            features = features.movedim(-1, 1)
        return features.flatten(2)


def build_model(settings: ModelSettings) -> EmbeddingModel:
    """The model of these settings, with the weights of its backbone; what has none is initialised by torch's seed.

    PCA needs images: see :func:`hgld.models.pca_projection.initialise_projection`.

    Raises:
        ConfigurationError: there is no such backbone, its weights cannot be had, or ``dim`` is larger than its
            features.
    """
    backbone, n_channels = create_backbone(settings)
    return EmbeddingModel(backbone, n_channels, settings)


def _pooling(settings: ModelSettings) -> Average | Max | GeM | None:
    if settings.pooling == "gem":
        return GeM(settings.gem_p, learnt=settings.gem_learnt)
    return {"own": None, "average": Average(), "max": Max()}[settings.pooling]


def _projection(n_channels: int, settings: ModelSettings) -> nn.Linear | None:
    if settings.dim is None:
        return None
    if settings.dim > n_channels:
        raise ConfigurationError(
            f"dim is {settings.dim:,}, but the features of {settings.backbone} have {n_channels:,} numbers; a "
            "projection has at most as many"
        )
    return nn.Linear(n_channels, settings.dim)


def _scaled(images: torch.Tensor, scale: float) -> torch.Tensor:
    if scale == 1:
        return images
    return functional.interpolate(images, scale_factor=scale, mode="bilinear", align_corners=False)
