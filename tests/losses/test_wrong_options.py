"""Options out of range, and batches that do not fit a loss: errors that say what was expected."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import hgld.losses
from hgld.errors import ConfigurationError, InputError
from hgld.losses.kernels import steps
from tests.losses.batches import LABELS, hierarchical_batch, unit_vectors

#: All losses, with arguments of any type.
of: Any = hgld.losses
step: Any = steps
CLASSES = torch.tensor([[0, 0], [1, 0], [2, 1], [3, 1]])
X = unit_vectors(8)
NO_POSITIVE = unit_vectors(2), torch.tensor([[0], [1]]), unit_vectors(2), torch.tensor([[2], [3]])
WEIGHTED: dict[str, Any] = {"relevance": "weighted_ap"}


def memory(**changed: Any) -> Any:
    return of.CrossBatchMemory(**{"loss": of.SupAP(), "size": 6, "dim": 4, "n_levels": 2, **changed})


OPTIONS: list[tuple[Callable[[], object], str]] = [
    (lambda: of.ArcFace(4, 6, margin=28.6), "0 to pi / 2"),
    (lambda: of.BlackBoxAP(0), "`lambda_` is 0"),
    (lambda: of.BlackBoxAP(margin=-1), "`margin` -1"),
    (lambda: of.CSL(CLASSES, 6, (0.1,)), "a margin for each of 2 levels, finest first, and has 1; give `margins`"),
    (lambda: of.CSL(CLASSES, 6, scale=0), "`scale` is 0"),
    (lambda: of.CSL(torch.zeros(1, 5, dtype=torch.int64), 6), "each of 5 levels, .* has 0; give"),
    (lambda: of.ContrastiveLoss(2.0), "cosines, -1 to 1"),
    (lambda: of.CrossEntropy(4, 6, label_smoothing=1), "`label_smoothing` is 1; expected 0 to below 1"),
    (lambda: of.DecomposabilityLoss(alpha=1.5), "cosines, -1 to 1"),
    (lambda: of.DecomposabilityLoss(reduction="mean"), "choose query_mean or violating"),
    (lambda: of.FastAP(0), "`n_bins` is 0; expected at least 1"),
    (lambda: of.HIER(4, curvature=0.0), "`curvature` 0.0; expected 0 or more, and above 0"),
    (lambda: of.HIER(4, n_neighbours=0), "`n_neighbours` is 0; expected 1 or more"),
    (lambda: of.HMLC("hme"), '`mode` is "hme"; choose hmc, hce or hmce'),
    (lambda: of.HMLC(variant="exact"), '`variant` is "exact"; choose paper or code'),
    (lambda: of.HMLC(variant="code", positives="lca"), "choose the `variant` paper for lca"),
    (lambda: of.HMLC(n_views=0), "`n_views` is 0; expected at least 1"),
    (lambda: of.MultiSupCon(threshold=0.0), "`threshold` is 0.0; expected more than 0 and at most 1"),
    (lambda: of.HMLC(tau=0.0), "`tau` is 0.0; expected at least"),
    (lambda: of.HyperbolicContrastive(curvature=-1.0), "`curvature` is -1.0; expected 0 or more"),
    (lambda: of.HyperbolicContrastive(clip=0.0), "`clip` is 0.0; expected more than 0"),
    (lambda: of.HyperbolicContrastive(variant="paper"), '`variant` is "paper"; choose exact or code'),
    (lambda: of.LiftedStructureLoss(math.nan), "`margin` is not a number"),
    (lambda: of.MarginLoss(0), "`n_classes` is 0"),
    (lambda: of.MarginLoss(4, margin=0), "`margin` is 0; expected more than 0"),
    (lambda: of.MarginLoss(4, beta=3), "`beta` is 3; expected 0 to 2"),
    (lambda: of.MultiSimilarityLoss(beta=0), "`beta` 0; expected more than 0"),
    (lambda: of.ProxyGML(4, 6, share=0), "`proxies_per_class` is 12, `share` 0 and `proxy_weight` 0.3; expected"),
    (lambda: of.ProxyLoss(0, 8), "at least 1 of each"),
    (lambda: of.ProxyLoss(4, 8, eta=0), "`eta` is 0; expected at least 1e-08"),
    (lambda: of.ProxyNCA(4, 6, scale=0), "`scale` is 0"),
    (lambda: of.ProxyNCAPP(4, 6, scale=0), "`scale` is 0"),
    (lambda: of.SelectivelyContrastiveTriplet(tau=0), "`tau` is 0; expected at least 1e-08"),
    (lambda: of.SelectivelyContrastiveTriplet(weight=-1), "`weight` is -1; expected 0 or more"),
    (lambda: of.SmoothHAP(**WEIGHTED, alpha=-1.0), "`alpha` is -1.0"),
    (lambda: of.SmoothRecall((0, 1)), r"is \[0, 1\]; expected at least one k, each 1 or more"),
    (lambda: of.SoftBinAP(1), "`n_bins` is 1; expected at least 2"),
    (lambda: of.SumOverLevels(lambda column: of.SupAP(), 0), "is empty"),
    (lambda: of.SupAP(level=4)(*hierarchical_batch()), "`level` is 4; the labels have levels 1 .* to 3"),
    (lambda: of.SupHAP(-1.0), "`alpha` is -1.0"),
    (lambda: of.SupHAP(relevance="own"), '`relevance` is "own"; choose hierarchical, weighted_ap or algorithm1'),
    (lambda: of.SupHAP(level_weights=(1.0,)), "`level_weights` have no effect without the `relevance` weighted_ap"),
    (lambda: of.SupHAP(**WEIGHTED, level_weights=(1.0, 0.0, 1.0)), r"are \[1.0, 0.0, 1.0\]; expected positive"),
    (
        lambda: of.SupHAP(**WEIGHTED, level_weights=())(*hierarchical_batch()),
        "expected 3 positive ones, coarsest first",
    ),
    (
        lambda: of.SupHAP(**WEIGHTED, level_weights=(1, 1))(*hierarchical_batch()),
        "expected 3 positive ones, coarsest",
    ),
    (lambda: of.SupRecall(()), r"`ks` is \[\]"),
    (lambda: of.SupRecall(tau_star=0.0), "`tau_star` is 0.0; expected at least 1e-08"),
    (lambda: of.SupRecall(tau_star=math.inf), "`tau_star` is inf"),
    (lambda: of.TripletLoss(0), "`margin` is 0; expected more than 0"),
    (lambda: of.TripletLoss(mining="hard"), "choose semihard, easy_positive or all"),
    (lambda: of.WeightedSum({}), "is empty; name at least one"),
    (lambda: of.XBMContrastive(2.0), "a cosine, -1 to 1"),
    (lambda: of.happier(of.ProxyLoss(4, 6), 1.5), r"`lambda_` is 1.5; expected 0 \(the rank loss alone\) to 1"),
    (lambda: of.hyperbolic_hier(4, weight=-1.0), "`weight` is -1.0; expected 0 or more"),
    (lambda: memory(size=0), "`size` is 0, .* expected at least 1 of each"),
    (lambda: memory(memory_weight=0.0), "`memory_weight` is 0.0 .* above 0"),
    (lambda: memory(reduction="max"), '`reduction` is "max"; choose mean or sum'),
    (lambda: memory(start_step=-1), "`start_step` -1"),
    (lambda: memory(dtype="int8"), '`dtype` is "int8"; choose float32, float16 or bfloat16'),
    (lambda: memory(loss=of.ProxyLoss(3, 4)), "ProxyLoss compares with proxies only, .* use it without one"),
    (lambda: step.Sigmoid(0), "`tau` is 0; expected at least 1e-08"),
    (lambda: step.Sigmoid(1e-9), "`tau` is 1e-09; expected at least 1e-08: float32 scores are 6e-08 apart"),
    (lambda: step.SupRankStep(tau=math.inf), "`tau` is inf"),
    (lambda: step.SupRankStep(tau=-1.0), "`tau` is -1.0"),
    (lambda: step.SupRankStep(rho=-1.0), "`rho` is -1.0"),
    (lambda: step.SupRankStep(delta=math.nan), "`delta` nan"),
    (lambda: step.LeakyStep(leak=-1.0), "`leak` -1.0"),
    (lambda: step.suprank_step("eq5"), '`variant` is "eq5"; choose eq4, cfg144 or cfginat'),
]
BATCHES: list[tuple[Callable[[], object], str]] = [
    *[
        (lambda loss=loss: loss(*NO_POSITIVE), "none of 2 queries has a positive; batches .* two or more images of a")
        for loss in (of.BlackBoxAP(), of.FastAP(), of.SoftBinAP())
    ],
    (lambda: of.AtLevel(of.SupAP(), 3)(*hierarchical_batch()), "`labels` have 3 levels and no column 3"),
    (lambda: of.CSL(CLASSES[[1, 0]], 6), r"shape \(2, 2\); expected a row of labels per finest class"),
    (lambda: of.CSL(CLASSES, 6)(X, LABELS), "`labels` have 1 levels, but the loss was built for 2"),
    (lambda: of.CSL(CLASSES, 6)(X, LABELS.expand(-1, 2) * 3), "classes 0 to 9, but the loss was built for 0 to 3"),
    (lambda: of.HIER(4, 5)(X, LABELS), "`embeddings` have dimension 6, but the loss has proxies of dimension 4"),
    (lambda: of.HMLC(n_views=2)(*hierarchical_batch()), "a batch of 15 does not have 2 views of each image"),
    (lambda: of.MarginLoss(2)(X, LABELS), "classes 0 to 3, but the loss was built for 0 to 1"),
    (lambda: of.ProxyLoss(3, 6)(X, LABELS), "classes 0 to 3, but the loss was built for 0 to 2; number the"),
    (lambda: of.ProxyLoss(4, 5)(X, LABELS), "have dimension 6, but the loss has proxies of dimension 5"),
    (lambda: of.SumOverLevels(lambda column: of.SupAP(), 2)(*hierarchical_batch()), "have 3 levels, .* sum over 2"),
    (
        lambda: memory()(unit_vectors(8, 5), torch.zeros(8, 2, dtype=torch.int64)),
        "dimension 5 .* 2 levels, but the memory is for dimension 4 and 2 levels",
    ),
    (lambda: memory(n_levels=1)(unit_vectors(8, 4), LABELS, unit_vectors(8, 4), LABELS), "the memory provides"),
]


@pytest.mark.parametrize(("make", "message"), OPTIONS)
def test_options_out_of_range_are_errors(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()


@pytest.mark.parametrize(("call", "message"), BATCHES)
def test_batches_that_do_not_fit_are_errors(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
