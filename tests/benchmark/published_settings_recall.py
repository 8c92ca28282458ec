"""Settings of the recall@k surrogate: github.com/yash0307/RecallatK_surrogate, commit ed05202, and the paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tests.benchmark.published_facts import AUGMENTATION, BALANCED, Fact, Facts, both_groups, facts, group, multi_step

_MAIN, _NETLIB, _DATASETS = "src/main.py", "src/netlib.py", "src/datasets.py"
_RECALL = (
    facts(f"{_DATASETS}, transforms", AUGMENTATION)
    | facts(f"{_DATASETS}, TrainDatasetrsk; paper, Sec. 4.2", BALANCED)
    | facts(_MAIN, {"evaluation.every": 5, "mixed_precision": "off", "warm_up_epochs": 0})
)
_GEM = facts(
    f"{_NETLIB}, ResNet50",
    {
        "model.backbone": "resnet50.tv_in1k",
        "model.pooling": "gem",
        "model.gem_p": 3,
        "model.gem_learnt": True,
        "model.layer_norm": True,
        "model.layer_norm_learnt": True,
        "model.frozen_batch_norm": True,
    },
)
_VIT = {
    16: facts(f"{_NETLIB}, ViTB16", {"model.backbone": "vit_base_patch16_224.augreg_in21k"}),
    32: facts(f"{_NETLIB}, ViTB32", {"model.backbone": "vit_base_patch32_224.augreg_in21k"}),
}
_VIT_HEAD = facts(
    f"{_NETLIB}, ViTB16 and ViTB32",
    {"model.pooling": "own", "model.layer_norm": True, "model.layer_norm_learnt": True},
)
_KS = [1, 2, 4, 8, 16]
_KS_SIMIX = [1, 2, 4, 8, 12, 16, 20, 24, 28, 32]
_RECALL_LOSS = facts(
    "src/losses.py, RecallatK; paper, Sec. 3 and 4.2",
    {
        "loss.name": "recall",
        "loss.tau": 0.01,  # sigmoid_temperature
        "loss.tau_star": 1,  # k_temperatures
        "loss.clip": True,
        "loss.include_query": False,
        "loss.rank_query": True,  # of the code; Eq. 6 of the paper leaves the query out
        "loss.ks": _KS,
        "loss.simix": False,
    },
)
_SIMIX = facts("paper, Sec. 4.2", {"loss.ks": _KS_SIMIX, "loss.simix": True})
_SAP = facts("paper, Sec. 4.3", {"loss.name": "smooth_ap", "loss.tau": 0.01, "batch_size": 384})


class _Training(NamedTuple):
    """Settings of a data set and an architecture in main.py."""

    epochs: int
    milestones: tuple[int, ...]
    lr: float
    chunk_size: int


#: Batch size and trainings with ResNet-50, ViT-B/32 and ViT-B/16.
_TRAININGS: Mapping[str, tuple[int, _Training, _Training, _Training]] = {
    "inat": (
        4000,
        _Training(90, (40, 70), 1e-4, 200),
        _Training(90, (10, 40, 70), 5e-5, 200),
        _Training(90, (10, 40, 70), 5e-5, 100),
    ),
    "sop": (
        4000,
        _Training(55, (25, 50), 2e-4, 200),
        _Training(55, (25, 50), 5e-5, 200),
        _Training(55, (25, 50), 5e-5, 100),
    ),
    "vehicle_id": (
        4000,
        _Training(90, (40, 70), 1e-4, 200),
        _Training(90, (40, 70), 1e-4, 200),
        _Training(90, (40, 70), 5e-5, 100),
    ),
    "cars196": (
        392,
        _Training(170, (80, 140), 1e-4, 98),
        _Training(50, (20, 30, 40), 3e-5, 98),
        _Training(50, (20, 30, 40), 1e-5, 98),
    ),
}


def _training(batch_size: int, training: _Training, name: str) -> dict[str, Fact]:
    values = {"epochs": training.epochs, "batch_size": batch_size, "chunk_size": training.chunk_size}
    # --fc_lr_mul 0 of the README: the same rate for all parameters
    optimiser = both_groups(name=name, lr=training.lr, weight_decay=4e-4, **multi_step(*training.milestones))
    return facts(f"{_MAIN}, settings of the data set", values | optimiser)


def _recall() -> dict[str, Facts]:
    presets: dict[str, Facts] = {}
    for data, (batch_size, resnet, *transformers) in _TRAININGS.items():
        folder = f"recall_{data}"
        shared = _RECALL | _GEM | _training(batch_size, resnet, "adam")
        for suffix, dim in (("", 512), ("_128", 128)):
            model = facts("paper, Sec. 4.2", {"model.dim": dim})
            presets[f"{folder}/recall{suffix}"] = shared | model | _RECALL_LOSS
            presets[f"{folder}/recall{suffix}_simix"] = shared | model | _RECALL_LOSS | _SIMIX
        model = facts("paper, Sec. 4.2", {"model.dim": 512})
        of_cars = facts("paper, Sec. 4.3, Cars196", {"batch_size": 392}) if data == "cars196" else {}
        presets[f"{folder}/smooth_ap"] = {**shared, **model, **_SAP, **of_cars}
        for patch, transformer in zip((32, 16), transformers, strict=True):
            vit = {**_RECALL, **_VIT[patch], **_VIT_HEAD, **model, **_training(batch_size, transformer, "adamw")}
            presets[f"{folder}/recall_vit{patch}"] = vit | _RECALL_LOSS
            presets[f"{folder}/smooth_ap_vit{patch}"] = vit | _SAP | of_cars
    text = "paper, Sec. 4.3"
    presets["recall_sop/recall_384"] = {**presets["recall_sop/recall"], **facts(text, {"batch_size": 384})}
    presets["recall_cars196/recall_simix_588"] = {
        **presets["recall_cars196/recall_simix"],
        **facts(text, {"batch_size": 588, "sampler.per_class": 6}),
    }
    presets["recall_cars196/smooth_ap_simix"] = {
        **presets["recall_cars196/smooth_ap"],
        **facts(text, {"loss.simix": True}),
    }
    return presets


def _landmarks() -> dict[str, Facts]:
    model = facts(
        "paper, Sec. 4.2, ROxford/RParis",
        {
            "model.backbone": "resnet101.tv_in1k",
            "model.pooling": "gem",
            "model.layer_norm": False,
            "model.dim": 2048,
            "model.projection": "whitening",
            "batch_size": 4096,
            "steps": 500,
        },
    )
    images = facts("paper, Sec. 4.3, ROxford/RParis", {"image.fit": "longest", "image.size": 1024})
    optimiser = facts(
        "github.com/filipradenovic/cnnimageretrieval-pytorch, README.md and cirtorch/examples/train.py",
        group("backbone", name="adam", lr=5e-7, weight_decay=1e-4),
    )
    shared = model | images | optimiser
    loss = _RECALL_LOSS | facts("paper, Sec. 4.2", {"loss.ks": [1, 2, 4]})
    return {
        "recall_landmarks/recall": shared | loss,
        "recall_landmarks/recall_simix": shared
        | loss
        | facts("paper, Sec. 4.2", {"loss.ks": [1, 2, 4, 8], "loss.simix": True}),
        "recall_landmarks/smooth_ap": shared | facts("paper, Table 3", {"loss.name": "smooth_ap", "loss.tau": 0.01}),
    }


#: Facts of each preset of the tables of the recall@k surrogate.
RECALL: Mapping[str, Facts] = _recall() | _landmarks()
