"""Settings published with the TPAMI paper (github.com/elias-ramzi/SupRank, commit d3d0e3c), and known differences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.benchmark.published_facts import BALANCED, Fact, Facts, both_groups, facts, group

_CONFIG = "suprank/config"
_CROP: dict[str, Any] = {
    "image.crop_scale": [0.16, 1.0],
    "image.crop_ratio": [0.75, 1.33],
    "image.flip": True,
    "image.mean": [0.485, 0.456, 0.406],
    "image.std": [0.229, 0.224, 0.225],
}


def _images(size: int, resize: int, fit: str, train_resize: int | None = None) -> dict[str, Any]:
    sizes = {"image.size": size, "image.resize": resize, "image.fit": fit, "image.train_resize": train_resize}
    return sizes | _CROP


def _all_groups(**values: Any) -> dict[str, Any]:
    """Return the settings of an optimiser that the model and the proxies share."""
    return both_groups(**values) | group("proxies", **values)


def _model(name: str, backbone: str, **values: Any) -> dict[str, Fact]:
    values = {"pooling": "average", "layer_norm": True, "dim": 512, "frozen_batch_norm": True} | values
    settings = {f"model.{key}": value for key, value in values.items()}
    mixed = {"mixed_precision": "fp16"}  # with_autocast
    return facts(f"{_CONFIG}/model/{name}.yaml", {"model.backbone": backbone} | settings | mixed)


_DEFAULT = facts(f"{_CONFIG}/default.yaml", {"epochs": 100, "evaluation.every": 20, "clip_norm": None})
_WARM_UP = facts("README.md", {"warm_up_epochs": 5})
_RESNET = _model("resnet_ln", "resnet50.tv_in1k")
_GEM = _model("resnet_ln_gem", "resnet50.tv_in1k", pooling="gem")
_TRANSFORMER = {"pooling": "own", "layer_norm": False, "frozen_batch_norm": False}
_DEIT = _model("deit_small", "deit_small_patch16_224", **_TRANSFORMER, dim=None) | facts(
    "suprank/models/get_backbone.py", {"model.pretrained": "deit_small_distilled_patch16_224.fb_in1k"}
)
_VIT = _model("vit_base_512proj", "vit_base_patch16_224.augreg_in21k", **_TRANSFORMER, dim=512)

_FAST_PROXIES = group("proxies", name="adam", lr=10, weight_decay=0, schedule="cosine", end_lr=0.1)
_SOP = (
    _DEFAULT
    | _WARM_UP
    | _RESNET
    | facts(
        f"{_CONFIG}/dataset/sop.yaml",
        _images(224, 256, "squash", 256)
        | {
            "sampler.name": "hierarchical",
            "sampler.per_class": 4,
            "sampler.super_classes": 2,
            "sampler.batches_per_tuple": 5,
            "sampler.small_classes": "repeat",  # of the sampler of pytorch-metric-learning
            "batch_size": 256,
        },
    )
    | facts(
        f"{_CONFIG}/optimizer/sop.yaml",
        both_groups(name="adam", weight_decay=1e-4, schedule="cosine", end_lr=0)
        | {"optimiser.backbone.lr": 5e-5, "optimiser.head.lr": 1e-4},
    )
)
_SOP_HEAD = group("proxies", name="adam", lr=1e-4, weight_decay=1e-4, schedule="cosine", end_lr=0)
_INAT_HEAD = group("proxies", name="adam", lr=2e-5, weight_decay=4e-4, schedule="cosine", end_lr=1e-6)
_INAT = (
    _DEFAULT
    | _WARM_UP
    | _RESNET
    | facts(f"{_CONFIG}/dataset/inat_base.yaml", _images(224, 256, "crop") | BALANCED | {"batch_size": 256})
    | facts(
        f"{_CONFIG}/optimizer/inat.yaml",
        both_groups(name="adam", weight_decay=4e-4, schedule="cosine", end_lr=1e-6)
        | {"optimiser.backbone.lr": 1e-5, "optimiser.head.lr": 2e-5},
    )
)
_CUB = (
    _DEFAULT
    | facts("README.md, SOP and iNaturalist; no command for CUB", {"warm_up_epochs": 5})
    | facts(f"{_CONFIG}/dataset/cub_big.yaml", _images(256, 288, "crop") | BALANCED | {"batch_size": 256})
    | facts(
        f"{_CONFIG}/optimizer/cub.yaml",
        both_groups(name="adam", weight_decay=4e-4, schedule="cosine", end_lr=0)
        | {"optimiser.backbone.lr": 1e-6, "optimiser.head.lr": 2e-6},
    )
)
_CUB_HEAD = group("proxies", name="adam", lr=2e-6, weight_decay=4e-4, schedule="cosine", end_lr=0)
_SMALL_CUB = facts(f"{_CONFIG}/dataset/cub.yaml", _images(224, 256, "crop"))

_SUP = {"loss.tau": 0.01, "loss.rho": 100, "loss.delta": 0.05}
_CFG144 = _SUP | {"loss.variant": "cfg144"}  # offset 1.44, start 0.5
_CFGINAT = _SUP | {"loss.variant": "cfginat"}  # offset 1.0, start 0.0
_PROXIES = {"loss.decomposability": "proxies", "loss.eta": 0.05}
_PAIRS = {"loss.decomposability": "pairs", "loss.alpha": 0.9, "loss.beta": 0.6, "loss.reduction": "violating"}
_KS = {"loss.ks": [1, 2, 4, 8, 16], "loss.tau_star": 1}
_TRIPLET = {"loss.name": "triplet", "loss.margin": 0.05}
# without weights, the getter weighs the losses of L levels 1/L
_ALL_TRIPLETS = {"loss.mining": "all", "loss.include_query": True, "loss.levels": "mean"}

#: Losses without settings of their own for a data set: their file and their values.
_LOSSES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "fast_ap": ("fastap", {"loss.name": "fast_ap", "loss.n_bins": 10}),
    "softbin_ap": ("softbinap", {"loss.name": "softbin_ap", "loss.n_bins": 20}),
    "blackbox_ap": ("blackboxap", {"loss.name": "blackbox_ap", "loss.lambda": 4, "loss.margin": 0.02}),
    "smooth_ap": ("smoothap", {"loss.name": "smooth_ap", "loss.tau": 0.01}),
    "recall": ("smoothrecall", {"loss.name": "recall", "loss.tau": 0.01, "loss.simix": False} | _KS),
    "triplet": ("triplet_mining", _TRIPLET | {"loss.mining": "easy_positive", "loss.include_query": True}),
    "xbm": ("xbm", {"loss.name": "xbm_contrastive", "loss.margin": 0.5}),
}
_SOP_LOSSES: Mapping[str, tuple[str, dict[str, Any]]] = {
    **_LOSSES,
    "sup_ap": ("supap", {"loss.name": "sup_ap"} | _CFG144),
    "sup_recall": ("suprecall", {"loss.name": "sup_recall"} | _KS | _CFG144),
    "roadmap": ("ROADMAP_pp_SOP", {"loss.name": "roadmap", "loss.lambda": 0.1} | _CFG144 | _PROXIES | _FAST_PROXIES),
    "roadmap_pairs": ("ROADMAP_SOP", {"loss.name": "roadmap", "loss.lambda": 0.1} | _CFG144 | _PAIRS),
    # without weights, the getter weighs both terms 1/2
    "rod_recall": (
        "ROADRatk_pp_SOP",
        {"loss.name": "rod_recall", "loss.lambda": 0.5} | _KS | _CFG144 | _PROXIES | _FAST_PROXIES,
    ),
    "rod_recall_pairs": ("ROADRatk_SOP", {"loss.name": "rod_recall", "loss.lambda": 0.5} | _KS | _CFG144 | _PAIRS),
    "rod_ndcg": ("roadndcg_sop", {"loss.name": "rod_ndcg", "loss.lambda": 0.1} | _CFG144 | _PROXIES | _FAST_PROXIES),
    "happier": (
        "HAPPIER_SOP",
        {"loss.name": "happier", "loss.lambda": 0.1, "loss.alpha": 1} | _CFG144 | _PROXIES | _FAST_PROXIES,
    ),
    "happier_f": (
        "HAPPIER_5_SOP",  # alpha is the paper's, Sec. VII-C
        {"loss.name": "happier", "loss.lambda": 0.5, "loss.alpha": 5} | _CFG144 | _PROXIES | _FAST_PROXIES,
    ),
    "triplet_sum": ("triplet_double", _TRIPLET | _ALL_TRIPLETS),
    "norm_softmax": ("norm_softmax_sop", {"loss.name": "norm_softmax", "loss.eta": 0.05} | _FAST_PROXIES),
    "norm_softmax_sum": (
        "norm_softmax_sop_double",
        {"loss.name": "norm_softmax", "loss.eta": 0.05, "loss.levels": "mean"} | _FAST_PROXIES,
    ),
    "proxy_nca_pp": ("proxy_nca_pp", {"loss.name": "proxy_nca_pp", "loss.scale": 3} | _SOP_HEAD),
    "csl": ("csl_sop", {"loss.name": "csl", "loss.scale": 32} | _FAST_PROXIES | {"optimiser.proxies.end_lr": 0}),
}
_INAT_LOSSES: Mapping[str, tuple[str, dict[str, Any]]] = {
    **_LOSSES,
    "sup_ap": ("supap_inat", {"loss.name": "sup_ap"} | _CFGINAT),
    "sup_recall": ("suprecall_inat", {"loss.name": "sup_recall"} | _KS | _CFGINAT),
    "roadmap": (
        "ROADMAP_pp_inat",
        {"loss.name": "roadmap", "loss.lambda": 0.1} | _CFGINAT | _PROXIES | _FAST_PROXIES,
    ),
    "roadmap_pairs": ("ROADMAP_inat", {"loss.name": "roadmap", "loss.lambda": 0.1} | _CFGINAT | _PAIRS),
    "rod_recall": (
        "ROADRatk_pp_inat",
        {"loss.name": "rod_recall", "loss.lambda": 0.5} | _KS | _CFGINAT | _PROXIES | _FAST_PROXIES,
    ),
    "rod_recall_pairs": ("ROADRatk_inat", {"loss.name": "rod_recall", "loss.lambda": 0.5} | _KS | _CFGINAT | _PAIRS),
    "rod_ndcg": (
        "roadndcg_inat",
        {"loss.name": "rod_ndcg", "loss.lambda": 0.1} | _CFGINAT | _PROXIES | _FAST_PROXIES,
    ),
    "happier": (
        "HAPPIER_inat",
        {"loss.name": "happier", "loss.lambda": 0.1, "loss.alpha": 1} | _CFGINAT | _PROXIES | _FAST_PROXIES,
    ),
    "smooth_hap": ("smoothhap", {"loss.name": "smooth_hap", "loss.tau": 0.01}),
    "sup_hap": ("suphap_inat", {"loss.name": "sup_hap", "loss.relevance": "hierarchical"} | _CFGINAT),
    "triplet_sum": ("triplet_double", _TRIPLET | _ALL_TRIPLETS),
    "norm_softmax": ("norm_softmax", {"loss.name": "norm_softmax", "loss.eta": 0.05} | _INAT_HEAD),
    "norm_softmax_sum": (
        "norm_softmax_seven",
        {"loss.name": "norm_softmax", "loss.eta": 0.05, "loss.levels": "mean"} | _INAT_HEAD,
    ),
    "proxy_nca_pp": ("proxy_nca_pp", {"loss.name": "proxy_nca_pp", "loss.scale": 3} | _INAT_HEAD),
    "csl": ("csl_inat_base", {"loss.name": "csl", "loss.scale": 32} | _INAT_HEAD),
}


def _methods(folder: str, shared: Facts, losses: Mapping[str, tuple[str, dict[str, Any]]]) -> dict[str, Facts]:
    return {
        f"{folder}/{name}": {**shared, **facts(f"{_CONFIG}/loss/{file}.yaml", values)}
        for name, (file, values) in losses.items()
    }


def _memory(name: str, size: int | None) -> dict[str, Fact]:
    values = {"weight": 1.0, "reduction": "mean", "start_epoch": 5, "size": size, "unique": False}
    return facts(f"{_CONFIG}/memory/{name}.yaml", {f"memory.{key}": value for key, value in values.items()})


_FULL, _INAT_MEMORY = _memory("full_memory", None), _memory("inat_memory", 60_000)
_XBM_BATCH = facts("paper, Sec. VII-A3", {"batch_size": 128})
_ROADMAP = {"loss.name": "roadmap", "loss.lambda": 0.1} | _PROXIES


def _deit(data: str, lr: float) -> dict[str, Fact]:
    settings = _all_groups(name="adamw", lr=lr, weight_decay=5e-4, schedule="cosine", end_lr=0)
    # the only optimiser is that of the whole network, which is not frozen in a warm-up
    optimiser = facts(f"{_CONFIG}/optimizer/{data}_deit.yaml", settings | {"warm_up_epochs": 0})
    return {**_DEIT, **optimiser, **facts(f"{_CONFIG}/loss/ROADMAP_pp_deit.yaml", _ROADMAP | _CFG144)}


def _vit(data: str, lr: float, loss: str, variant: dict[str, Any]) -> dict[str, Fact]:
    settings = _all_groups(name="adamw", lr=2 * lr, weight_decay=5e-4, schedule="cosine", end_lr=1e-6)
    rates = settings | {"optimiser.backbone.lr": lr}
    optimiser = facts(f"{_CONFIG}/optimizer/{data}_vit_base_512proj.yaml", rates)
    return {**_VIT, **optimiser, **facts(f"{_CONFIG}/loss/{loss}.yaml", _ROADMAP | variant)}


_TABLE_IV: dict[str, Facts] = {
    "sop/roadmap_memory": {
        **_SOP,
        **_GEM,
        **_FULL,
        **facts(f"{_CONFIG}/loss/ROADMAP_pp_SOP.yaml", _SOP_LOSSES["roadmap"][1]),
    },
    "sop/roadmap_deit": {**_SOP, **_FULL, **_deit("sop", 1e-5)},
    "sop/roadmap_vit": {**_SOP, **_FULL, **_vit("inat", 1e-5, "ROADMAP_pp", _CFG144)},
    "inat/roadmap_memory": {
        **_INAT,
        **_GEM,
        **_INAT_MEMORY,
        **facts(f"{_CONFIG}/loss/ROADMAP_pp_inat.yaml", _INAT_LOSSES["roadmap"][1]),
    },
    "inat/roadmap_deit": {**_INAT, **_INAT_MEMORY, **_deit("inat", 1e-5)},
    "inat/roadmap_vit": {**_INAT, **_INAT_MEMORY, **_vit("inat", 1e-5, "ROADMAP_pp_inat_base", _CFGINAT)},
    "cub/roadmap_memory": {
        **_CUB,
        **_GEM,
        **_FULL,
        **facts(f"{_CONFIG}/loss/ROADMAP_pp.yaml", _ROADMAP | _CFG144 | _CUB_HEAD),
    },
    "cub/roadmap_deit": {**_CUB, **_FULL, **_SMALL_CUB, **_deit("cub", 1e-6)},
    "cub/roadmap_vit": {**_CUB, **_FULL, **_SMALL_CUB, **_vit("cub", 1e-6, "ROADMAP_pp", _CFG144)},
}
_CUB_METHODS = _methods(
    "cub",
    {**_CUB, **_RESNET},
    {
        "roadmap": ("ROADMAP_pp", _ROADMAP | _CFG144 | _CUB_HEAD),
        "norm_softmax": ("norm_softmax_cub", {"loss.eta": 0.05} | _FAST_PROXIES | {"optimiser.proxies.lr": 400}),
    },
)


def _dyml(name: str) -> dict[str, Facts]:
    """Return the facts of DyML; proxies have the optimiser of the head, see docs/reference/published_results.md."""
    product = name == "product"
    lr, head, end_lr = (0.01, 0.02, 1e-5) if product else (0.1, 0.1, 1e-6)
    sgd = {"name": "sgd", "momentum": 0.9, "weight_decay": 1e-4, "schedule": "cosine", "end_lr": end_lr}
    optimiser = _all_groups(**sgd, lr=head) | {"optimiser.backbone.lr": lr}
    model = "dyml_resnet34_product" if product else "dyml_resnet34"
    shared = (
        _DEFAULT
        | facts("README.md", {"epochs": 20 if product else 100, "warm_up_epochs": 5 if product else 0})
        | _model(model, "resnet34.tv_in1k", pretrained=product, frozen_batch_norm=product)
        | facts(f"{_CONFIG}/dataset/dyml_{name}.yaml", _images(224, 256, "crop") | BALANCED | {"batch_size": 256})
        | facts(f"{_CONFIG}/optimizer/{'dyml_product' if product else 'dyml'}.yaml", optimiser)
    )
    softmax = {"loss.name": "norm_softmax", "loss.eta": 0.05}
    half = name == "animal"
    happier = {"vehicle": "HAPPIER", "animal": "HAPPIER_5", "product": "HAPPIER_product"}[name]
    ndcg = {"vehicle": "roadndcg_dyml", "animal": "roadndcg_05", "product": "roadndcg_product"}[name]
    weights = {"loss.lambda": 0.5 if half else 0.1} | _CFG144 | _PROXIES
    return _methods(
        f"dyml_{name}",
        shared,
        {
            "triplet": _LOSSES["triplet"],
            "triplet_sum": ("triplet_triple", _TRIPLET | _ALL_TRIPLETS),
            "norm_softmax": ("norm_softmax_product", softmax),
            "norm_softmax_sum": ("norm_softmax_product_triple", softmax | {"loss.levels": "mean"}),
            "smooth_ap": _LOSSES["smooth_ap"],
            "roadmap_pairs": _SOP_LOSSES["roadmap_pairs"],
            "csl": ("csl_product" if product else "csl", {"loss.name": "csl", "loss.scale": 32}),
            "rod_ndcg": (ndcg, {"loss.name": "rod_ndcg"} | weights),
            "happier": (happier, {"loss.name": "happier", "loss.alpha": 1} | weights),
        },
    )


_GLDV2 = (
    _model(
        "resnet_101_LM",
        "resnet101.tv_in1k",
        pooling="gem",
        layer_norm=False,
        l2_norm=True,
        dim=2048,
        projection="whitening",
    )
    | facts(
        f"{_CONFIG}/dataset/gldv2_hier.yaml",
        _images(224, 224, "squash") | BALANCED | {"sampler.max_per_class": 8, "batch_size": 256},
    )
    | facts(
        f"{_CONFIG}/optimizer/gldv2.yaml",
        _all_groups(name="adam", lr=1e-4, weight_decay=1e-4, schedule="cosine", end_lr=0),
    )
    | facts("paper, Sec. VII-C3", {"steps": 55_000})
)
_GLDV2_METHODS = _methods(
    "h-gldv2",
    _GLDV2,
    {
        "softbin_ap": _LOSSES["softbin_ap"],
        "smooth_ap": _LOSSES["smooth_ap"],
        "recall": _LOSSES["recall"],
        "norm_softmax": ("norm_softmax_LM", {"loss.name": "norm_softmax", "loss.eta": 0.05}),
        "arcface": ("arcface_LM", {"loss.name": "arcface", "loss.scale": 30, "loss.margin": 0.3}),
        "csl": (
            "csl_gldv2_L3",
            {"loss.name": "csl", "loss.scale": 32}
            | group("proxies", name="adam", lr=10, weight_decay=0, schedule="cosine", end_lr=0),
        ),
        "roadmap": ("ROADMAP_pp_LM", _ROADMAP | _CFG144),
        "happier": ("HAPPIER_pp_LM", {"loss.name": "happier", "loss.lambda": 0.1} | _CFG144 | _PROXIES),
    },
)
#: Facts of each preset of the paper's tables.
SUPRANK: Mapping[str, Facts] = {
    **_methods("sop", _SOP, _SOP_LOSSES),
    "sop/xbm": {**_SOP, **_FULL, **_XBM_BATCH, **facts(f"{_CONFIG}/loss/xbm.yaml", _LOSSES["xbm"][1])},
    **_methods("inat", _INAT, _INAT_LOSSES),
    "inat/xbm": {**_INAT, **_FULL, **_XBM_BATCH, **facts(f"{_CONFIG}/loss/xbm.yaml", _LOSSES["xbm"][1])},
    **_TABLE_IV,
    **_CUB_METHODS,
    **_dyml("vehicle"),
    **_dyml("animal"),
    **_dyml("product"),
    **_GLDV2_METHODS,
}
#: Presets without published settings of their loss, and why.
UNPUBLISHED: Mapping[str, str] = {
    "sop/proxy_nca_pp_sum": "no file of the sum",
    "inat/proxy_nca_pp_sum": "no file of the sum",
    "inat/happier_f": "alpha 3 is the paper's, lambda that of HAPPIER",
    "inat/sup_weighted_ap": "no file of Property 1's relevance",
    "h-gldv2/happier_f": "alpha of H-GLDv2 is not published",
    "h-gldv2/rod_ndcg": "no table and no file",
    "h-gldv2/rod_recall": "no table and no file",
    "h-gldv2/untrained": "no table and no file",
}


class Difference(NamedTuple):
    """A setting that knowingly differs from the published one, and why."""

    value: Any
    reason: str


_SEMIHARD = {
    "loss.mining": Difference("semihard", "what the table names; the published wrapper mines the query itself"),
    "loss.include_query": Difference(False, "a query is no positive of its own"),
}
_PAPER_RATE = Difference(1e-5, "the paper's, Sec. VII-C3")
_MODEL_RATES = {"optimiser.backbone.lr": _PAPER_RATE, "optimiser.head.lr": _PAPER_RATE}
#: Settings that knowingly differ, by preset.
KNOWN_DIFFERENCES: Mapping[str, Mapping[str, Difference]] = {
    **{name: _SEMIHARD for name in SUPRANK if name.endswith("/triplet")},
    **dict.fromkeys(_GLDV2_METHODS, _MODEL_RATES | {"optimiser.proxies.lr": _PAPER_RATE}),
    "h-gldv2/csl": _MODEL_RATES,
}
