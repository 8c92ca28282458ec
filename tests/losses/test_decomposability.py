"""Decomposability losses, the losses that have them, and other weighted sums of losses."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from hgld.losses import (
    DecomposabilityLoss,
    Loss,
    ProxyLoss,
    SoftBinAP,
    SumOverLevels,
    SupAP,
    SupHAP,
    SupNDCG,
    SupRecall,
    TripletLoss,
    WeightedSum,
    happier,
    roadmap,
    rod_ndcg,
    rod_recall,
    suprank_step,
)
from hgld.losses.rank_losses import PairReduction
from tests.losses.batches import LABELS as CLASSES
from tests.losses.batches import unit_vectors
from tests.losses.golden import expect_close, read_golden, tensor

REFERENCES, REFERENCE_LABELS = unit_vectors(5, seed=2), torch.tensor([[0], [1], [1], [5], [6]])


def pair_loss(
    embeddings: torch.Tensor,
    references: torch.Tensor,
    reference_labels: torch.Tensor,
    reduction: PairReduction,
    *,
    exclude_query: bool = False,
) -> float:
    """Return L_DG by loops over Eq. 7, for queries with ``CLASSES``."""
    positive_terms, negative_terms, query_losses = [], [], []
    for i, query in enumerate(embeddings):
        terms: dict[bool, list[float]] = {True: [], False: []}
        for j, reference in enumerate(references):
            if exclude_query and i == j:
                continue
            score, positive = float(query @ reference), bool(CLASSES[i, 0] == reference_labels[j, 0])
            terms[positive].append(max(0.0, 0.9 - score if positive else score - 0.6))
        positive_terms += terms[True]
        negative_terms += terms[False]
        query_losses.append(sum(sum(losses) / max(1, len(losses)) for losses in terms.values()))
    if reduction == "query_mean":
        return sum(query_losses) / len(query_losses)
    return sum(sum(losses) / max(1, sum(loss > 0 for loss in losses)) for losses in (positive_terms, negative_terms))


@pytest.mark.parametrize("reduction", ["query_mean", "violating"])
@pytest.mark.parametrize("include_query", [True, False])
def test_pair_loss_agrees_with_loops(reduction: PairReduction, include_query: bool) -> None:
    x = functional.normalize(unit_vectors(8) + unit_vectors(4, seed=1)[CLASSES[:, 0]])
    loss = DecomposabilityLoss(reduction=reduction, include_query=include_query)
    within_batch = pair_loss(x, x, CLASSES, reduction, exclude_query=not include_query)
    assert loss(x, CLASSES).item() == pytest.approx(within_batch, abs=1e-12)
    against_references = pair_loss(x, REFERENCES, REFERENCE_LABELS, reduction)
    assert loss(x, CLASSES, REFERENCES, REFERENCE_LABELS).item() == pytest.approx(against_references, abs=1e-12)


@pytest.mark.parametrize("reduction", ["query_mean", "violating"])
def test_gradients_of_the_pair_loss_agree_with_finite_differences(reduction: PairReduction) -> None:
    loss = DecomposabilityLoss(reduction=reduction)
    x = unit_vectors(8).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: loss(x, CLASSES), x)
    assert torch.autograd.gradcheck(
        lambda x, references: loss(x, CLASSES, references, REFERENCE_LABELS), (x, REFERENCES.clone().requires_grad_())
    )


def test_proxy_loss_agrees_with_norm_softmax_of_pytorch_metric_learning() -> None:
    from pytorch_metric_learning.losses import NormalizedSoftmaxLoss

    loss, other = ProxyLoss(4, 6).double(), NormalizedSoftmaxLoss(4, 6, temperature=0.05)
    other.W.data = loss.proxies.data.T.clone()
    x = unit_vectors(8)
    assert loss(x, CLASSES).item() == pytest.approx(other(x, CLASSES[:, 0]).item(), abs=1e-12)


def test_proxies_are_uniform_at_first_and_ignore_references() -> None:
    torch.manual_seed(0)
    loss = ProxyLoss(100, 16)
    assert loss.proxies.abs().max() <= 0.25
    assert loss.proxies.std().item() == pytest.approx(0.5 / 12**0.5, rel=0.05)
    x = unit_vectors(8, 16)
    assert loss(x, CLASSES) == loss(x, CLASSES, unit_vectors(3, 16, seed=1), CLASSES[:3])
    assert loss.reference_part() is None


LABELS = torch.tensor([[0, 0, 0], [0, 0, 0], [1, 0, 0], [1, 0, 0], [2, 1, 0], [2, 1, 0], [3, 2, 1], [3, 2, 1]])
STEP = suprank_step("cfg144")
Make = Callable[[ProxyLoss], WeightedSum]


@pytest.mark.parametrize(
    ("make", "rank_loss", "name"),
    [
        (lambda p: roadmap(p, 0.3, step=STEP, include_query=False), SupAP(step=STEP, include_query=False), "sup_ap"),
        (lambda p: rod_recall(p, 0.3, ks=(2,), tau_star=0.5), SupRecall((2,), 0.5), "sup_recall"),
        (lambda p: happier(p, 0.3, alpha=3.0, step=STEP), SupHAP(3.0, step=STEP), "sup_hap"),
        (lambda p: rod_ndcg(p, 0.3, include_query=False), SupNDCG(include_query=False), "sup_ndcg"),
    ],
)
@pytest.mark.parametrize("decomposability", [ProxyLoss(4, 6).double(), DecomposabilityLoss()])
def test_decomposable_losses_are_weighted_sums(
    make: Callable[[Loss], WeightedSum], rank_loss: Loss, name: str, decomposability: Loss
) -> None:
    x = unit_vectors(8)
    loss = make(decomposability)
    rank_value, gap_value = rank_loss(x, LABELS), decomposability(x, LABELS)
    assert loss(x, LABELS).item() == pytest.approx(0.7 * rank_value.item() + 0.3 * gap_value.item(), abs=1e-12)
    assert loss.parts == {name: rank_value, "decomposability": gap_value}
    assert not any(part.requires_grad for part in loss.parts.values())


@pytest.mark.parametrize(
    ("key", "make"),
    [
        ("happier_cfg144_lambda0.1", lambda p: happier(p, 0.1, step=STEP)),
        ("happierF_cfg144_lambda0.5", lambda p: happier(p, 0.5, alpha=5.0, step=STEP)),
        ("roadmap_pp_cfg144_lambda0.1", lambda p: roadmap(p, 0.1, step=STEP)),
    ],
)
@pytest.mark.parametrize(("source", "dtype"), [("official_f64", torch.float64), ("official", torch.float32)])
def test_agreement_with_the_published_code(
    shared: Path, key: str, make: Make, source: str, dtype: torch.dtype
) -> None:
    golden = read_golden(shared)
    proxies = ProxyLoss(16, 32).to(dtype)
    proxies.proxies.data = tensor(golden["proxies"], dtype)
    x = tensor(golden["x"], dtype).requires_grad_()
    value = make(proxies)(x, tensor(golden["labels"]))
    grad_x, grad_proxies = torch.autograd.grad(value, (x, proxies.proxies))
    # in float64, too, the published code has relevances in float32
    atol = 1e-8 if dtype == torch.float64 else 1e-5
    expect_close(value, golden[f"{source}/{key}/value"], atol)
    expect_close(grad_x, golden[f"{source}/{key}/grad"], atol)
    expect_close(grad_proxies, golden[f"{source}/{key}/grad_proxies"], atol)


def test_parameters_and_state_of_a_sum_are_those_of_its_losses() -> None:
    loss = WeightedSum({"a": (1.0, ProxyLoss(4, 6)), "b": (2.0, ProxyLoss(3, 6))})
    assert sorted(loss.state_dict()) == ["losses.a.proxies", "losses.b.proxies"]
    assert len(list(loss.parameters())) == 2


def test_reference_part_of_a_sum() -> None:
    x, references = unit_vectors(8), unit_vectors(5, seed=1)
    batch = (x, LABELS, references, LABELS[:5])
    part = happier(ProxyLoss(4, 6).double(), 0.3).reference_part()
    assert part is not None
    assert part(*batch).item() == pytest.approx(0.7 * SupHAP()(*batch).item(), abs=1e-12)
    assert not list(part.parameters())
    assert WeightedSum({"a": (1.0, ProxyLoss(4, 6))}).reference_part() is None


def test_reference_part_of_a_sum_over_levels() -> None:
    x, references = unit_vectors(8), unit_vectors(5, seed=1)
    n_classes = (4, 3, 2)
    loss = SumOverLevels(lambda column: roadmap(ProxyLoss(n_classes[column], 6).double(), 0.3), 3)
    part = loss.reference_part()
    assert part is not None
    expected = sum(SupAP()(x, LABELS[:, [c]], references, LABELS[:5, [c]]).item() * 0.7 for c in range(3))
    assert part(x, LABELS, references, LABELS[:5]).item() == pytest.approx(expected, abs=1e-12)
    assert SumOverLevels(lambda column: ProxyLoss(n_classes[column], 6), 3).reference_part() is None


@pytest.mark.parametrize("make", [SoftBinAP, lambda: TripletLoss(0.3, "all"), SupAP])
def test_sum_and_mean_over_levels_add_the_losses_of_all_columns(make: Callable[[], Loss]) -> None:
    x, references = unit_vectors(8), unit_vectors(5, seed=1)
    loss = SumOverLevels(lambda column: make(), 3)
    for given in ((), (references, LABELS[:5])):
        columns = [
            make()(x, LABELS[:, [column]], *(() if not given else (references, LABELS[:5, [column]])))
            for column in range(3)
        ]
        assert loss(x, LABELS, *given).item() == pytest.approx(float(sum(columns)), abs=1e-12)
        assert loss.parts == {"level_3": columns[0], "level_2": columns[1], "level_1": columns[2]}
        mean = SumOverLevels(lambda column: make(), 3, mean=True)
        assert mean(x, LABELS, *given).item() == pytest.approx(float(sum(columns)) / 3, abs=1e-12)
        assert mean.parts == loss.parts
