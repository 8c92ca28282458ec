"""HMLC and MultiSupCon."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning.losses import SupConLoss

from hgld.losses import HMLC, MultiSupCon
from tests.losses.batches import LABELS, REFERENCE_LABELS, hierarchical_batch, unit_vectors
from tests.losses.golden import newer_cases, newer_losses, tensor
from tests.losses.test_label_sets import IMAGES, padded

#: Readings of the positives of a level, by their names in the golden file.
READINGS: dict[str, Any] = {"incl": "equal", "lca": "lca"}


def test_published_code_and_paper(shared: Path) -> None:
    golden = newer_losses(shared)
    labels = tensor(golden["labels"])
    for case, source, name in newer_cases(golden, "hmlc/"):
        options: list[Any] = name.split("_")
        x = tensor(golden["x"]).double().unsqueeze(1)
        if source == "paper":
            loss, own = HMLC(options[0], float(options[1][1:]), positives=READINGS[options[2]]), labels
        else:
            own = labels if options[4] == "4cols" else labels[:, 1:]  # of three columns the finest is never used
            n_views = int(options[3][1])
            loss = HMLC(options[0], float(options[2][1:]), options[1], variant="code", n_views=n_views)
            x = torch.stack([tensor(golden["x"]), tensor(golden["x_view2"])][:n_views], 1).double()
        views = [view.requires_grad_() for view in x.unbind(1)]
        value = loss(torch.cat(views), own.repeat(len(views), 1))
        gradient = torch.stack(torch.autograd.grad(value, views), 1)
        np.testing.assert_allclose(value.item(), golden[f"{case}/value"], rtol=1e-10, err_msg=case)
        expected = golden[f"{case}/grad"].reshape(gradient.shape)
        np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-10 * np.abs(expected).max(), err_msg=case)


def slow_hmlc(x: torch.Tensor, labels: list[list[int]], mode: str, tau: float, *, lca: bool) -> float:
    """Return the formulas of the docstring by loops over anchors and positives."""
    n, n_levels = len(labels), len(labels[0])
    scores = (x @ x.T / tau).tolist()
    total, finer = 0.0, -math.inf
    for column in range(n_levels):
        of_anchors, largest = [], 0.0
        for i in range(n):
            pairs = []
            for p in range(n):
                finer_too = column > 0 and labels[i][column - 1] == labels[p][column - 1]
                if p != i and labels[i][column] == labels[p][column] and not (lca and finer_too):
                    own = math.log(sum(math.exp(scores[i][a]) for a in range(n) if a != i)) - scores[i][p]
                    largest = max(largest, own)
                    pairs.append(max(own, finer) if mode != "hmc" else own)
            if pairs:
                of_anchors.append(sum(pairs) / len(pairs))
        weight = math.exp(1 / (column + 1)) if mode != "hce" else 1.0
        total += weight * sum(of_anchors) / max(1, len(of_anchors)) / n_levels
        finer = largest
    return total


@settings(max_examples=15)
@given(st.integers(0, 99), st.sampled_from(["hmc", "hce", "hmce"]), st.booleans(), st.integers(1, 3))
@pytest.mark.filterwarnings("ignore:no query of a batch")
def test_values_are_those_of_loops(seed: int, mode: Any, lca: bool, per_class: int) -> None:
    x, labels = hierarchical_batch(seed, per_class=per_class)
    value = HMLC(mode, 0.2, positives="lca" if lca else "equal")(x, labels)
    assert value.item() == pytest.approx(slow_hmlc(x, labels.tolist(), mode, 0.2, lca=lca), abs=1e-9)


@pytest.mark.parametrize("variant", ["paper", "code"])
@pytest.mark.parametrize("mode", ["hmc", "hmce"])
def test_gradients(variant: Any, mode: Any) -> None:
    x, labels = hierarchical_batch()
    loss = HMLC(mode, variant=variant)
    assert torch.autograd.gradcheck(lambda raw: loss.forward_batch(raw, labels), x.requires_grad_())


def test_references_that_are_the_batch_add_each_query_to_its_positives() -> None:
    x, labels = hierarchical_batch()
    x, labels = x[:4], torch.tensor([[0], [0], [1], [1]])
    logits = (x @ x.T).log_softmax(1)
    same = labels == labels.T
    expected = math.e * -(logits * same).sum(1).mean() / 2
    for variant, factor in (("paper", 1), ("code", 1 / 0.07 / 2)):
        value = HMLC("hmc", 1.0, variant=variant)(x, labels, x, labels)  # type: ignore[arg-type]
        assert value.item() == pytest.approx(expected.item() * factor)


def classes(image: list[list[int]]) -> set[tuple[int, int]]:
    return {(column, row[column]) for row in image for column in range(3) if row[column] >= 0}


def loops(
    queries: torch.Tensor, labels: Any, items: torch.Tensor, item_labels: Any, tau: float, threshold: float
) -> torch.Tensor:
    """Return the formula of the docstring, for the same images if queries and items are the same object."""
    values = []
    for i, query in enumerate(queries):
        others = [a for a in range(len(items)) if queries is not items or a != i]
        total = torch.stack([query @ items[a] / tau for a in others]).logsumexp(0)
        terms = []
        for p in others:
            own, other = classes(labels[i]), classes(item_labels[p])
            overlap = len(own & other) / len(own | other)
            if overlap >= threshold:
                terms.append(-overlap * (query @ items[p] / tau - total))
        if terms:
            values.append(torch.stack(terms).mean())
    return torch.stack(values).mean() if values else queries.sum() * 0


@settings(max_examples=15)
@given(IMAGES, IMAGES, st.sampled_from([0.05, 0.3, 1.0]), st.booleans())
@pytest.mark.filterwarnings("ignore:no query of a batch")
def test_values_and_gradients_of_label_sets_are_those_of_loops(
    images: list[list[int]], others: list[list[int]], threshold: float, alone: bool
) -> None:
    x, y = unit_vectors(len(images)).requires_grad_(), unit_vectors(len(others), seed=1)
    labels, other_labels = padded(images), padded(others)
    loss = MultiSupCon(0.2, threshold)
    value = loss(x, labels) if alone else loss(x, labels, y, other_labels)
    items, item_labels = (x, labels) if alone else (y, other_labels)
    expected = loops(x, labels.tolist(), items, item_labels.tolist(), 0.2, threshold)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(each, x)[0] for each in (value, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)


def test_single_labels_are_label_sets_of_one() -> None:
    x, labels = hierarchical_batch()
    torch.testing.assert_close(MultiSupCon()(x, labels), MultiSupCon()(x, labels.unsqueeze(1)), rtol=1e-12, atol=0)
    assert torch.autograd.gradcheck(lambda raw: MultiSupCon().forward_batch(raw, labels), x.requires_grad_())


def test_one_level_is_the_supervised_contrastive_loss() -> None:
    x, y = unit_vectors(len(LABELS)), unit_vectors(len(REFERENCE_LABELS), seed=1)
    oracle = SupConLoss(0.07)  # its mean leaves out anchors without positives too
    expected = oracle(x, LABELS[:, 0]), oracle(x, LABELS[:, 0], ref_emb=y, ref_labels=REFERENCE_LABELS[:, 0])
    values = MultiSupCon()(x, LABELS), MultiSupCon()(x, LABELS, y, REFERENCE_LABELS)
    torch.testing.assert_close(values, expected, rtol=1e-9, atol=0)
