"""The embedding model: a backbone, pooling from features at positions to one vector per image, and a projection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from hgld.compute.scoring import at_least_float32
from hgld.datasets.loading import Images, map_images
from hgld.errors import ConfigurationError
from hgld.models.backbones import create_backbone
from hgld.models.lora import add_lora
from hgld.models.model_settings import ModelSettings

#: Convolutions are a quarter faster with channels last, also on CPUs.
MEMORY_FORMAT = torch.channels_last
#: Least value of features in :class:`GeM`.
_EPS = 1e-6


class AveragePooling(nn.Module):
    """The mean over positions."""

    def forward(self, features: Tensor) -> Tensor:
        """Pool features: float, shape (B, C, n) -> (B, C)."""
        return features.mean(-1)


class MaxPooling(nn.Module):
    """The maximum over positions."""

    def forward(self, features: Tensor) -> Tensor:
        """Pool features: float, shape (B, C, n) -> (B, C)."""
        return features.amax(-1)


class GeM(nn.Module):
    """The generalised mean over positions, (1/n sum x^p)^(1/p), of features clamped to at least 1e-6.

    From Radenovic et al., TPAMI 2018. Computed in float32, or float64 for float64 features, regardless of autocast:
    third powers overflow in 16 bits.

    Args:
        p: Exponent, or its initial value if it is learnt; 1 is the mean, infinity the maximum.
        learnt: Whether p is a parameter; otherwise it is a buffer.

    >>> GeM(p=2.0, learnt=False)(torch.tensor([[[1.0, 7.0]]]))
    tensor([[5.]])
    """

    p: Tensor

    def __init__(self, p: float = 3.0, *, learnt: bool = True) -> None:
        super().__init__()
        if learnt:
            self.p = nn.Parameter(torch.tensor(p))
        else:
            self.register_buffer("p", torch.tensor(p))

    def forward(self, features: Tensor) -> Tensor:
        """Pool features: float, shape (B, C, n) -> float32 or float64, shape (B, C)."""
        with torch.autocast(features.device.type, enabled=False):
            features = at_least_float32(features).clamp(min=_EPS)
            return generalised_mean(features, self.p)


def generalised_mean(values: Tensor, p: Tensor) -> Tensor:
    """Return the generalised mean of positive values over the last dimension, shape (..., n) -> (...)."""
    return values.pow(p).mean(-1).pow(1 / p)


class EmbeddingModel(nn.Module):
    """backbone -> pooling -> LayerNorm or L2 normalisation -> linear projection -> L2 normalisation, for cosines.

    Everything after the backbone is computed in float32, regardless of autocast.
    """

    def __init__(self, backbone: nn.Module, n_channels: int, settings: ModelSettings) -> None:
        super().__init__()
        self.settings = settings
        #: Number of dimensions of the embeddings, d.
        self.dim = settings.dim or n_channels
        self.backbone = backbone
        self.pooling: AveragePooling | MaxPooling | GeM | None = None
        if settings.pooling == "gem":
            self.pooling = GeM(settings.gem_p, learnt=settings.gem_learnt)
        elif settings.pooling == "average":
            self.pooling = AveragePooling()
        elif settings.pooling != "own":
            self.pooling = MaxPooling()
        self.layer_norm: nn.LayerNorm | None = None
        if settings.layer_norm:
            self.layer_norm = nn.LayerNorm(
                n_channels, elementwise_affine=settings.layer_norm_learnt
            )
        if self.dim > n_channels:
            raise ConfigurationError(
                f"`dim` is {self.dim:,}, but the features of {settings.backbone} have {n_channels:,} numbers; a "
                "projection cannot have more"
            )
        self.projection = nn.Linear(n_channels, self.dim) if settings.dim else None
        self._n_channels = n_channels
        self._frozen = False
        # A model of features without projection has no parameter with a device.
        self.register_buffer("_device_marker", torch.empty(0), persistent=False)
        # timm itself freezes some parameters, such as sinusoidal position embeddings.
        self._learnt_parameters = [
            parameter for parameter in backbone.parameters() if parameter.requires_grad
        ]

    def forward(self, images: Images) -> Tensor:
        """Compute embeddings.

        Args:
            images: float, shape (B, 3, h, w), normalised as the backbone expects; or a list of B images, shape
                (3, h, w), whose heights and widths differ, and images of equal shape are computed at once; or
                features, shape (B, C), if there is no backbone.

        Returns:
            float32, shape (B, d), unit vectors; of any length for another distance than cosine.

        Raises:
            ConfigurationError: The backbone does not support images of this size.
        """
        return self._projected(self.features(images))

    def points(self, embeddings: Tensor) -> Tensor:
        """Return what the distance of the model compares: points of the unit ball, ``tanh(sqrt(c) |x|) x / |x|``.

        For other distances than Poincaré's, these are the embeddings x themselves, shape (B, d).
        """
        if self.settings.distance != "poincare":
            return embeddings
        lengths = torch.linalg.vector_norm(embeddings, dim=1, keepdim=True)
        scaled = self.settings.curvature**0.5 * lengths.clamp(max=self.settings.clip)
        radii = scaled.tanh().clamp(max=1 - 1e-3)  # as far from the boundary as in the losses
        points: Tensor = functional.normalize(embeddings, dim=1) * radii
        return points

    def embed_with_deviations(self, images: Images) -> tuple[Tensor, Tensor]:
        """Compute embeddings, and the standard deviation of each feature map before pooling (HEAT, Sec. 5.2.2).

        Maps of a transformer are the grids of its patch tokens. Standard deviations divide by n - 1.

        Returns:
            Embeddings, float32, shape (B, d), as :meth:`forward` returns them, and deviations, float32, shape (B, c).

        Raises:
            ConfigurationError: The backbone has no feature maps, these have one position only, or it does not support
                images of this size.
        """
        if not isinstance(images, Tensor):

            def embed_as_one(batch: Tensor) -> Tensor:
                return torch.cat(self.embed_with_deviations(batch), dim=1)

            both = _by_shape(embed_as_one, images)
            return both[:, : self.dim], both[:, self.dim :]
        maps = self._run_backbone(self._feature_maps, images)
        output, n_channels = maps, self._n_channels
        if self.pooling is None:
            output = self.backbone.forward_head(maps)  # type: ignore[operator]
            n_channels = self.backbone.num_features  # type: ignore[assignment]
        embeddings = self._projected(self._pooled(output))
        positions = at_least_float32(self._positions(maps, n_channels))
        if positions.shape[2] < 2:
            raise ConfigurationError(
                f"the feature maps of {self.settings.backbone} have one position for images of {images.shape[3]} x "
                f"{images.shape[2]}, whose standard deviation is not defined; set a larger size of images"
            )
        return embeddings, positions.std(dim=2)

    def features(self, images: Images) -> Tensor:
        """Compute the input of the projection, float32, shape (B, C): pooled and maybe normalised features."""
        if not isinstance(images, Tensor):
            return _by_shape(self.features, images)
        return self._pooled(self._run_backbone(self.backbone, images))

    def multi_scale(self, images: Images, scales: Sequence[float]) -> Tensor:
        """Compute one embedding from several sizes of each image (Radenovic et al., 2018).

        The embeddings of the scaled images are averaged. Embeddings of GeM without projection, which are not
        negative, are combined by the generalised mean with GeM's p instead. The result is normalised, for cosines.

        Args:
            scales: Factors of height and width, such as (1, 2 ** -0.5, 2 ** 0.5).

        Returns:
            float32, shape (B, d), unit vectors.

        Raises:
            ConfigurationError: The backbone supports images of one size only.
        """
        if not isinstance(images, Tensor):
            return _by_shape(partial(self.multi_scale, scales=scales), images)
        embeddings = torch.stack([self(_scaled(images, scale)) for scale in scales], dim=-1)
        is_nonnegative = self.projection is None and not self.settings.layer_norm
        if isinstance(self.pooling, GeM) and is_nonnegative:
            return self._scaled_to_unit(generalised_mean(embeddings, self.pooling.p))
        return self._scaled_to_unit(embeddings.mean(-1))

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        assert isinstance(self._device_marker, Tensor)
        return self._device_marker.device

    def to_device(self, images: Images) -> Images:
        """Move images or features to the device of the model, in its memory format."""

        def move(images: Tensor) -> Tensor:
            memory_format = MEMORY_FORMAT if images.ndim == 4 else torch.preserve_format
            return images.to(self.device, non_blocking=True, memory_format=memory_format)

        return map_images(move, images)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Return all parameters in two groups: ``backbone``, and ``head`` for all others."""
        groups: dict[str, list[nn.Parameter]] = {"backbone": [], "head": []}
        for name, parameter in self.named_parameters():
            groups["backbone" if name.startswith("backbone.") else "head"].append(parameter)
        return groups

    def add_lora(self, rank: int, alpha: float) -> None:
        """Freeze the backbone, and train changes of low rank of its layers; see :func:`add_lora`."""
        self._learnt_parameters = add_lora(self.backbone, rank, alpha)

    def freeze_backbone(self, frozen: bool) -> None:
        """Freeze or unfreeze the parameters of the backbone and its batch-norm statistics."""
        for parameter in self._learnt_parameters:
            parameter.requires_grad_(not frozen)
        self._frozen = frozen
        self.train(self.training)

    def train(self, mode: bool = True) -> EmbeddingModel:
        """See :meth:`torch.nn.Module.train`; frozen parts stay in evaluation mode."""
        super().train(mode)
        if self._frozen:
            self.backbone.eval()
        for module in batch_norms(self):
            learnt = [parameter.requires_grad for parameter in module.parameters()]
            if learnt and not any(learnt):
                module.eval()
        if self.settings.frozen_batch_norm:
            for module in batch_norms(self.backbone):
                module.eval()
        return self

    def _run_backbone(self, backbone: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        """Run the backbone or a part; raise a ConfigurationError for sizes of images that it does not support."""
        try:
            return backbone(images)
        except AssertionError as error:  # timm asserts supported sizes
            raise ConfigurationError(
                f"{self.settings.backbone} takes no images of {images.shape[3]} x {images.shape[2]}: {error}; set "
                "the size of images that it was made for"
            ) from error

    def _feature_maps(self, images: Tensor) -> Tensor:
        """Run the backbone without its own pooling, if it has one."""
        if self.pooling is not None:
            return self.backbone(images)  # type: ignore[no-any-return]
        if not hasattr(self.backbone, "forward_features"):
            raise ConfigurationError(
                f"the backbone {self.settings.backbone} gives no feature maps, whose standard deviations are asked "
                "for; choose a timm model"
            )
        return self.backbone.forward_features(images)  # type: ignore[no-any-return, operator]

    def _pooled(self, features: Tensor) -> Tensor:
        """Pool the output of the backbone, and apply the norm before the projection."""
        if self.pooling is not None:
            features = self.pooling(self._positions(features, self._n_channels))
        features = at_least_float32(features)
        if self.layer_norm is not None:
            with torch.autocast(features.device.type, enabled=False):
                return self.layer_norm(features)  # type: ignore[no-any-return]
        if self.settings.l2_norm:
            return functional.normalize(features, dim=1)
        return features

    def _projected(self, features: Tensor) -> Tensor:
        """Apply the projection, if the model has one, and scale the result to length 1 if it is for cosines."""
        if self.projection is not None:
            with torch.autocast(features.device.type, enabled=False):
                features = self.projection(features)
        return self._scaled_to_unit(features)

    def _scaled_to_unit(self, embeddings: Tensor) -> Tensor:
        """Scale embeddings that are compared by cosines to length 1."""
        if self.settings.distance == "cosine":
            return functional.normalize(embeddings, dim=1)
        return embeddings

    def _positions(self, features: Tensor, n_channels: Any) -> Tensor:
        """Rearrange features of any timm layout to (B, C, n)."""
        if features.ndim == 3:
            return features[:, getattr(self.backbone, "num_prefix_tokens", 0) :].movedim(-1, 1)
        if features.shape[1] != n_channels:
            features = features.movedim(-1, 1)
        return features.flatten(2)


def build_model(settings: ModelSettings) -> EmbeddingModel:
    """Build a model with the weights of its backbone; other parameters are initialised by torch's generator.

    A PCA initialisation needs images; see :func:`hgld.models.pca_projection.initialise_projection`.
    """
    backbone, n_channels = create_backbone(settings)
    return EmbeddingModel(backbone, n_channels, settings)


def batch_norms(module: nn.Module) -> list[nn.Module]:
    """Return the layers of batch norm in a module."""
    return [
        layer for layer in module.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)
    ]


def _scaled(images: Tensor, scale: float) -> Tensor:
    if scale == 1:
        return images
    return functional.interpolate(images, scale_factor=scale, mode="bilinear", align_corners=False)


def _by_shape(function: Callable[[Tensor], Tensor], images: Sequence[Tensor]) -> Tensor:
    """Apply a function from (b, 3, h, w) to (b, C) to the images of each shape; the rows are in their order."""
    rows_by_shape: dict[torch.Size, list[int]] = {}
    for row, image in enumerate(images):
        rows_by_shape.setdefault(image.shape, []).append(row)
    outputs = []
    all_rows = []
    for rows in rows_by_shape.values():
        batch = torch.stack([images[row] for row in rows])
        outputs.append(function(batch.contiguous(memory_format=MEMORY_FORMAT)))
        all_rows += rows
    order = torch.tensor(all_rows).argsort()
    return torch.cat(outputs)[order.to(outputs[0].device)]
