"""Settings that the authors of ROADMAP published: github.com/elias-ramzi/ROADMAP, commit fed37d7, and their paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.benchmark.published_facts import BALANCED, Fact, Facts, both_groups, facts, group, multi_step

_CONFIG = "roadmap/config"
_RESNET = facts(
    f"{_CONFIG}/model/resnet.yaml and roadmap/models/net.py",
    {
        "model.backbone": "resnet50.tv_in1k",
        "model.pooling": "average",
        "model.layer_norm": False,  # norm_features
        "model.dim": 512,
        "model.frozen_batch_norm": True,
        "mixed_precision": "fp16",  # with_autocast, and the GradScaler of run.py
    },
)
_DEIT = facts(
    f"{_CONFIG}/model/deit.yaml",
    {
        "model.backbone": "deit_small_patch16_224",
        "model.pretrained": "deit_small_distilled_patch16_224.fb_in1k",
        "model.pooling": "own",
        "model.dim": None,
        "model.layer_norm": False,
        "model.frozen_batch_norm": False,
        "mixed_precision": "fp16",
    },
)
_EXPERIENCE = facts(f"{_CONFIG}/experience/default.yaml", {"warm_up_epochs": 0, "evaluation.every": 5})
_ROADMAP_LOSS = {
    "loss.name": "roadmap",
    "loss.decomposability": "pairs",
    "loss.alpha": 0.9,  # pos_margin
    "loss.beta": 0.6,  # neg_margin
    "loss.reduction": "violating",  # of ContrastiveLoss of pytorch-metric-learning
    "loss.tau": 0.01,
    "loss.rho": 100,
    "loss.delta": 0.05,
    "loss.include_query": True,
}
_LOSS = facts(f"{_CONFIG}/loss/roadmap.yaml", _ROADMAP_LOSS | {"loss.variant": "cfg144"})
_LOSS_INAT = facts(f"{_CONFIG}/loss/roadmap_inat.yaml", _ROADMAP_LOSS | {"loss.variant": "cfginat"})
_LAMBDA = facts("paper, Sec. 4, ROADMAP settings", {"loss.lambda": 0.5})
_SMALL_BATCH = facts("paper, Sec. 4.1", {"batch_size": 64})

_RRC = {"image.crop_scale": [0.16, 1.0], "image.crop_ratio": [0.75, 1.33], "image.flip": True}


def _crop(source: str, size: int, resize: int, fit: str, train_resize: int | None) -> dict[str, Fact]:
    values = {"image.size": size, "image.resize": resize, "image.fit": fit, "image.train_resize": train_resize}
    return facts(f"{_CONFIG}/transform/{source}.yaml", values | _RRC)


_SOP_SAMPLER = facts(
    f"{_CONFIG}/dataset/sop.yaml",
    {
        "sampler.name": "hierarchical",
        "sampler.per_class": 4,
        "sampler.super_classes": 2,
        "sampler.batches_per_tuple": 10,  # batches_per_super_pair
        "sampler.small_classes": "repeat",  # safe_random_choice of the sampler
    },
)
_SOP = (
    _RESNET
    | _EXPERIENCE
    | _SOP_SAMPLER
    | _SMALL_BATCH
    | _crop("sop", 224, 256, "squash", 256)
    | facts(
        f"{_CONFIG}/optimizer/sop.yaml",
        group("backbone", name="adam", lr=1e-5, weight_decay=1e-4, **multi_step(30, 70))
        | group("head", name="adam", lr=2e-5, weight_decay=1e-4, **multi_step(30, 70)),
    )
    | facts("README.md, SOP", {"epochs": 100})
)
_INAT = (
    _RESNET
    | _EXPERIENCE
    | _SMALL_BATCH
    | facts(f"{_CONFIG}/dataset/inaturalist.yaml", BALANCED)
    | _crop("inaturalist", 224, 256, "crop", None)
    | facts(
        f"{_CONFIG}/optimizer/inaturalist.yaml",
        group("backbone", name="adam", lr=1e-5, weight_decay=4e-4, **multi_step(30, 70))
        | group("head", name="adam", lr=2e-5, weight_decay=4e-4, **multi_step(30, 70)),
    )
    | facts("README.md, INaturalist", {"epochs": 90})
)
_CUB = (
    _RESNET
    | _EXPERIENCE
    | _SMALL_BATCH
    | facts(f"{_CONFIG}/dataset/cub.yaml", BALANCED)
    | _crop("cub", 224, 256, "crop", None)
    | facts(
        f"{_CONFIG}/optimizer/cub.yaml", both_groups(name="adam", lr=1e-6, weight_decay=4e-4, schedule="constant")
    )
    | facts("README.md, CUB-200-2011", {"epochs": 200})
)
_IN_SHOP = (
    _RESNET
    | _EXPERIENCE
    | facts(
        f"{_CONFIG}/dataset/inshop.yaml",
        {
            "sampler.name": "hierarchical",
            "sampler.per_class": 8,
            "sampler.super_classes": 2,
            "sampler.batches_per_tuple": 4,
            "sampler.small_classes": "repeat",
            "batch_size": 128,
            "data.queries": "query",
            "data.gallery": "gallery",
        },
    )
    | _crop("inshop_big", 256, 288, "squash", None)
    | facts(
        f"{_CONFIG}/optimizer/inshop.yaml",
        group("backbone", name="adam", lr=1e-5, weight_decay=1e-4, schedule="constant")
        | group("head", name="adam", lr=2e-5, weight_decay=1e-4, schedule="constant"),
    )
    | facts(f"{_CONFIG}/experience/default.yaml", {"epochs": 50})
)
_SFM = (
    _DEIT
    | facts(f"{_CONFIG}/experience/landmarks.yaml", {"warm_up_epochs": 0, "epochs": 50, "evaluation.every": 5})
    | facts(f"{_CONFIG}/dataset/sfm120k.yaml", BALANCED | {"batch_size": 128})
    | _crop("sfm120k", 224, 224, "squash", None)
    | facts(
        f"{_CONFIG}/optimizer/sfm120k_deit.yaml",
        both_groups(name="adamw", lr=1e-5, weight_decay=5e-4, schedule="constant"),
    )
)
_SOP_DEIT = facts(
    f"{_CONFIG}/optimizer/sop_deit.yaml",
    both_groups(name="adamw", lr=1e-5, weight_decay=5e-4, **multi_step(25, 50)),
) | facts("README.md, SOP with the transformer backbone", {"epochs": 75, "batch_size": 128})
_INAT_DEIT = facts(
    f"{_CONFIG}/optimizer/inaturalist_deit.yaml",
    both_groups(name="adamw", lr=1e-5, weight_decay=5e-4, **multi_step(30, 70)),
)
_CUB_DEIT = facts(
    f"{_CONFIG}/optimizer/cub_deit.yaml",
    both_groups(name="adamw", lr=1e-6, weight_decay=5e-4, schedule="constant"),
) | facts("README.md, CUB-200-2011", {"epochs": 150, "batch_size": 128})
_IN_SHOP_DEIT = facts(
    f"{_CONFIG}/optimizer/inshop_deit.yaml",
    both_groups(name="adamw", lr=1e-5, weight_decay=5e-4, schedule="constant"),
)


def _rank_losses(shared: Facts, variant: str, sup_ap: str) -> dict[str, dict[str, Fact]]:
    """Return the facts of the losses that the tables compare on one data set, by the names of their files."""
    losses: dict[str, tuple[str, dict[str, Any]]] = {
        "fast_ap": ("fastap", {"loss.name": "fast_ap", "loss.n_bins": 10}),
        "softbin_ap": ("softbinap", {"loss.name": "softbin_ap", "loss.n_bins": 20}),
        "blackbox_ap": ("blackboxap", {"loss.name": "blackbox_ap", "loss.lambda": 4, "loss.margin": 0.02}),
        "smooth_ap": ("smoothap", {"loss.name": "smooth_ap", "loss.tau": 0.01}),
        "sup_ap": (
            sup_ap,
            {"loss.name": "sup_ap", "loss.tau": 0.01, "loss.rho": 100, "loss.delta": 0.05, "loss.variant": variant},
        ),
    }
    methods = {
        name: dict(shared) | facts(f"{_CONFIG}/loss/{file}.yaml", values) for name, (file, values) in losses.items()
    }
    methods["blackbox_ap"] |= facts("paper, Sec. B.6", {"mixed_precision": "off"})
    return methods


_XBM = facts(f"{_CONFIG}/loss/pair_loss.yaml", {"loss.name": "xbm_contrastive", "loss.margin": 0.5})
_MEMORY = facts(
    f"{_CONFIG}/memory/sop.yaml and roadmap/engine/base_update.py",
    {"memory.unique": True, "memory.weight": 1.0, "memory.reduction": "sum", "memory.start_epoch": 1},
)
#: Facts of each preset of ROADMAP's tables.
ROADMAP: Mapping[str, Facts] = {
    **{f"roadmap_sop/{name}": values for name, values in _rank_losses(_SOP, "cfg144", "supap").items()},
    "roadmap_sop/roadmap": _SOP | _LOSS | _LAMBDA,
    "roadmap_sop/xbm": _SOP | _XBM | _MEMORY,  # size 59551: as many as there are training images
    "roadmap_sop/roadmap_large": _SOP
    | _LOSS
    | _LAMBDA
    | _crop("sop_big", 256, 288, "squash", 288)
    | facts("README.md, SOP", {"batch_size": 128}),
    "roadmap_sop/roadmap_2048": _SOP
    | _LOSS
    | _LAMBDA
    | facts("paper, Table 8", {"model.dim": 2048})
    | _crop("sop_big", 256, 288, "squash", 288)
    | facts("README.md, SOP", {"batch_size": 128}),
    "roadmap_sop/roadmap_deit": {**_SOP, **_LOSS, **_LAMBDA, **_DEIT, **_SOP_DEIT},
    **{f"roadmap_inat/{name}": values for name, values in _rank_losses(_INAT, "cfginat", "supap_inat").items()},
    "roadmap_inat/roadmap": _INAT | _LOSS_INAT | _LAMBDA,
    "roadmap_inat/xbm": _INAT
    | _XBM
    | _MEMORY
    | facts(f"{_CONFIG}/memory/inaturalist.yaml", {"memory.size": 60_000, "memory.unique": False}),
    "roadmap_inat/roadmap_large": _INAT | _LOSS_INAT | _LAMBDA | facts("README.md, INaturalist", {"batch_size": 384}),
    "roadmap_inat/roadmap_2048": _INAT
    | _LOSS_INAT
    | _LAMBDA
    | facts("README.md, INaturalist", {"batch_size": 384})
    | facts("paper, Table 8", {"model.dim": 2048}),
    "roadmap_inat/roadmap_deit": {**_INAT, **_LOSS_INAT, **_LAMBDA, **_DEIT, **_INAT_DEIT}
    | facts("paper, Tables 4 and 7: R@1 73.6 is that of 384", {"batch_size": 384}),
    **{f"roadmap_cub/{name}": values for name, values in _rank_losses(_CUB, "cfg144", "supap").items()},
    "roadmap_cub/roadmap": _CUB | _LOSS | _LAMBDA,
    "roadmap_cub/roadmap_large": _CUB
    | _LOSS
    | _LAMBDA
    | facts(f"{_CONFIG}/model/resnet_max_ln.yaml", {"model.pooling": "max", "model.layer_norm": True})
    | _crop("cub_big", 256, 288, "crop", None)
    | facts("README.md, CUB-200-2011", {"batch_size": 128}),
    "roadmap_cub/roadmap_2048": _CUB
    | _LOSS
    | _LAMBDA
    | facts(f"{_CONFIG}/model/resnet_max_ln.yaml", {"model.pooling": "max", "model.layer_norm": True})
    | _crop("cub_big", 256, 288, "crop", None)
    | facts("README.md, CUB-200-2011", {"batch_size": 128})
    | facts("paper, Table 8", {"model.dim": 2048}),
    "roadmap_cub/roadmap_deit": {**_CUB, **_LOSS, **_LAMBDA, **_DEIT, **_CUB_DEIT},
    "roadmap_in_shop/smooth_ap": _IN_SHOP
    | facts(f"{_CONFIG}/loss/smoothap.yaml", {"loss.name": "smooth_ap", "loss.tau": 0.01}),
    "roadmap_in_shop/roadmap": _IN_SHOP | _LOSS | _LAMBDA,
    "roadmap_in_shop/roadmap_deit": {**_IN_SHOP, **_LOSS, **_LAMBDA, **_DEIT, **_IN_SHOP_DEIT},
    "roadmap_sfm120k/roadmap": _SFM | _LOSS | _LAMBDA,
}

_TABLE_5 = facts("paper, Table 5", {"batch_size": 128})
#: Facts of every method of the comparisons with DeiT-S.
ROADMAP_DEIT: Mapping[str, Facts] = {
    "roadmap_sop_deit": _DEIT | _SOP_DEIT | _TABLE_5,
    "roadmap_inat_deit": _DEIT | _INAT_DEIT | _TABLE_5 | facts("README.md, INaturalist", {"epochs": 90}),
    "roadmap_cub_deit": _DEIT | _CUB_DEIT | _TABLE_5,
}
