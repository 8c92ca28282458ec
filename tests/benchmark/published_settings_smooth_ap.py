"""Settings of Smooth-AP: github.com/Andrew-Brown1/Smooth_AP, commit 59927ec, and the paper."""

from __future__ import annotations

from collections.abc import Mapping

from tests.benchmark.published_facts import AUGMENTATION, BALANCED, Facts, both_groups, facts, group, multi_step

_PLAIN = facts(
    "src/netlib.py, ResNet50",
    {
        "model.backbone": "resnet50.tv_in1k",
        "model.pooling": "average",
        "model.layer_norm": False,
        "model.dim": 512,
        "model.frozen_batch_norm": True,
        "mixed_precision": "off",
    },
)
_SMOOTH = _PLAIN | facts("src/datasets.py, transforms", AUGMENTATION)
_SMOOTH_LOSS = facts("src/main.py, sigmoid_temperature", {"loss.name": "smooth_ap", "loss.tau": 0.01})
_SMOOTH_SOP = (
    _SMOOTH
    | facts("paper, Sec. 5.3: as Cakir et al.", {"sampler.name": "hierarchical", "sampler.per_class": 4})
    | facts(
        "src/main.py, defaults; schedule: ROADMAP, Sec. B.2",
        both_groups(name="adam", lr=1e-5, weight_decay=4e-4, **multi_step(30, 70)) | {"epochs": 100},
    )
)
_SMOOTH_VEHICLE_ID = (
    _SMOOTH
    | facts("src/datasets.py, TrainDatasetsmoothap", BALANCED)
    | facts(
        "src/main.py, defaults; README.md, --fc_lr_mul 1 --bs 384",
        both_groups(name="adam", lr=1e-5, weight_decay=4e-4, **multi_step(200, 300))
        | {"epochs": 400, "batch_size": 384},
    )
)
_SMOOTH_INAT = (
    _SMOOTH
    | facts("src/datasets.py, TrainDatasetsmoothap", BALANCED)
    | facts(
        "src/main.py, settings of the data set; paper, Sec. 4 of the supplement: twice the rate for the last layer",
        group("backbone", name="adam", lr=1e-5, weight_decay=4e-4, **multi_step(40, 70))
        | group("head", name="adam", lr=2e-5, weight_decay=4e-4, **multi_step(40, 70))
        | {"epochs": 90, "batch_size": 224},
    )
)
_FACES = (
    facts(
        "paper, Sec. 5.3",
        both_groups(name="adam", lr=1e-5, weight_decay=4e-5)
        | {
            "batch_size": 224,
            "sampler.name": "class_balanced",
            "sampler.per_class": 4,
            "model.dim": 256,
            "image.size": 224,
        },
    )
    | facts("hujie-frank/SENet, named by VGGFace2's senet50_256", {"model.backbone": "legacy_seresnet50.in1k"})
    | facts(
        "ox-vgg/vgg_face2, standard_evaluation/pytorch_feature_extractor.py, short_size",
        {"image.resize": 224, "image.fit": "crop"},
    )
    | facts("models/senet50_256_pytorch/ReadMe.txt of VGGFace2", {"image.train_resize": 256})
)
_SUPPLEMENT = "paper, Sec. 4 of the supplement"
#: Facts of each preset of Smooth-AP's tables.
SMOOTH_AP: Mapping[str, Facts] = {
    "smooth_ap_sop/smooth_ap": _SMOOTH_SOP | _SMOOTH_LOSS | facts("paper, Table 2", {"batch_size": 384}),
    "smooth_ap_sop/smooth_ap_224": _SMOOTH_SOP | _SMOOTH_LOSS | facts("paper, Table 2", {"batch_size": 224}),
    "smooth_ap_vehicle_id/smooth_ap": _SMOOTH_VEHICLE_ID | _SMOOTH_LOSS,
    "smooth_ap_faces/smooth_ap": _FACES | _SMOOTH_LOSS,
    "smooth_ap_faces/triplet": _FACES | facts("paper, Table 4", {"loss.name": "triplet"}),
    "smooth_ap_faces/pairwise": _FACES | facts("paper, Table 4", {"loss.name": "contrastive"}),
    "smooth_ap_faces/softmax": facts(
        "Cao et al., FG 2018",
        both_groups(name="sgd", lr=0.1)
        | {"batch_size": 256, "loss.name": "cross_entropy", "image.train_resize": 256},
    ),
    "smooth_ap_inat/smooth_ap_224": _SMOOTH_INAT | _SMOOTH_LOSS,
    "smooth_ap_inat/smooth_ap": _SMOOTH_INAT | _SMOOTH_LOSS | facts("paper, Table 3", {"batch_size": 384}),
    "smooth_ap_inat/triplet": _SMOOTH_INAT
    | facts("paper, Table 3", {"loss.name": "triplet", "loss.mining": "semihard"}),
    "smooth_ap_inat/proxy_nca": _SMOOTH_INAT | facts("paper, Table 3", {"loss.name": "proxy_nca"}),
    "smooth_ap_inat/fast_ap": _SMOOTH_INAT | facts(_SUPPLEMENT, {"loss.name": "fast_ap", "loss.n_bins": 20}),
    "smooth_ap_inat/blackbox_ap": _SMOOTH_INAT
    | facts(_SUPPLEMENT, {"loss.name": "blackbox_ap", "loss.lambda": 4, "loss.margin": 0.02}),
}
