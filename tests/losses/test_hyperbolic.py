"""Losses in hyperbolic space: published numbers, plain loops over their equations, and gradients."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld.losses import HIER, CrossBatchMemory, HyperbolicContrastive, hyperbolic_hier
from hgld.losses.hyperbolic import PoincareBall, reciprocal_neighbours
from tests.losses.batches import unit_vectors
from tests.losses.golden import Arrays, newer_cases, newer_losses, tensor

PAIRS = torch.arange(4).repeat_interleave(2)[:, None]


@pytest.fixture(scope="module")
def golden(shared: Path) -> Arrays:
    return newer_losses(shared)


def expect_close(actual: torch.Tensor, expected: Any, tolerance: float, case: str) -> None:
    """Compare relative to the largest absolute value."""
    atol = tolerance * np.abs(expected).max()
    np.testing.assert_allclose(actual.detach().numpy(), expected, rtol=0, atol=atol, err_msg=case)


def raw_vectors(n: int, dim: int = 4, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, dim, dtype=torch.float64, generator=generator)


def test_published_code_and_formulas_of_hyp(golden: Arrays) -> None:
    labels = tensor(golden["labels"])
    tolerances = {
        "exact": {torch.float64: 1e-10, torch.float32: 1e-5},
        "code_f64": {torch.float64: 1e-9},
        "code_f32": {torch.float32: 1e-4},
    }
    for case, source, name in newer_cases(golden, "hyp/"):
        curvature, clip = name[1:].split("_clip")
        if source == "code_f32" and clip == "None":
            continue  # near the boundary its own rounding is larger
        variant: Any = "exact" if source == "exact" else "code"
        loss = HyperbolicContrastive(float(curvature), None if clip == "None" else float(clip), variant=variant)
        for dtype, tolerance in tolerances[source].items():
            x = tensor(golden["raw"], dtype).requires_grad_()
            value = loss(x, labels)
            expect_close(value, golden[f"{case}/value"], tolerance, case)
            expect_close(torch.autograd.grad(value, x)[0], golden[f"{case}/grad"], tolerance, case)
    ball = PoincareBall()
    points = ball.points(tensor(golden["raw"]).double())
    expect_close(points, golden["hyp/ball_c0.1_clip2.3"], 1e-10, "points")
    expect_close(ball.distances(points, points), golden["hyp/dist_c0.1_clip2.3"], 1e-10, "distances")


@pytest.mark.parametrize("name", ["c0.1", "c1"])
def test_published_code_and_formulas_of_hier(golden: Arrays, name: str) -> None:
    case = {
        key.removeprefix(f"hier/{name}/"): value for key, value in golden.items() if key.startswith(f"hier/{name}/")
    }
    labels = tensor(golden["labels"])[:, 0]
    sources: list[tuple[Any, str, str, float]] = [("exact", "exact", "lcas", 1e-10)]
    sources.append(("code", "code_f64", "lcas_riemannian", 1e-9))
    for variant, source, gradient, tolerance in sources:
        loss = HIER(16, 16, curvature=float(name[1:]), variant=variant)
        loss.proxies.data = tensor(case["lcas"]).double()
        z, proxies = tensor(case["z"]).requires_grad_(), loss.proxy_points(torch.float64)
        values = [
            loss.triplet_loss(nodes, proxies, tensor(case[f"triplets_{of}"]), noise)
            for nodes, of in ((z, "samples"), (proxies, "proxies"))
            for noise in [(tensor(case[f"gumbel_{of}_ij"]).double(), tensor(case[f"gumbel_{of}_ijk"]).double())]
        ]
        grad_z, grad_proxies = torch.autograd.grad(values[0] + values[1], [z, loss.proxies])
        expect_close(values[0] + values[1], case[f"{source}/value"], tolerance, source)
        expect_close(grad_z, case[f"{source}/grad_z"], tolerance, source)
        expect_close(grad_proxies, case[f"{source}/grad_{gradient}"], tolerance, source)
        similarity = (-loss.ball.distances(z, z)).exp() + (labels[:, None] == labels)
        assert np.array_equal(reciprocal_neighbours(similarity, 8), case["reciprocal_samples"])


def slow_distance(x: torch.Tensor, y: torch.Tensor, c: float) -> torch.Tensor:
    """Return 2 / sqrt(c) artanh(sqrt(c) |(-x) (+) y|), with the Moebius addition."""
    xy, xx, yy = -(x * y).sum(), (x * x).sum(), (y * y).sum()
    numerator = (1 + 2 * c * xy + c * yy) * -x + (1 - c * xx) * y
    added = numerator / (1 + 2 * c * xy + c**2 * xx * yy)
    return 2 / math.sqrt(c) * torch.atanh(math.sqrt(c) * torch.linalg.vector_norm(added))


def slow_points(x: torch.Tensor, c: float, clip: float) -> list[torch.Tensor]:
    clipped = [row * min(1.0, clip / row.norm().item()) for row in x]
    return [math.tanh(math.sqrt(c) * row.norm().item()) / (math.sqrt(c) * row.norm().item()) * row for row in clipped]


@settings(max_examples=15)
@given(st.integers(0, 99), st.sampled_from([0.05, 0.3, 1.0]), st.sampled_from([0.5, 1.5, 3.0]))
def test_hyp_is_that_of_loops(seed: int, c: float, clip: float) -> None:
    """With three images of a class, and one of another."""
    x, labels = raw_vectors(6, seed=seed), [0, 0, 0, 1, 1, 2]
    points, terms = slow_points(x, c, clip), []
    for i in range(5):
        near = [
            math.exp(-slow_distance(points[i], point, c).item() / 0.2) if n != i else 0.0
            for n, point in enumerate(points)
        ]
        negatives = sum(value for value, label in zip(near, labels, strict=True) if label != labels[i])
        positives = [near[p] for p in range(6) if p != i and labels[p] == labels[i]]
        terms.append(sum(-math.log(value / (value + negatives)) for value in positives) / len(positives))
    value = HyperbolicContrastive(c, clip)(x, torch.tensor(labels))
    assert value.item() == pytest.approx(2 * sum(terms) / 5, rel=1e-9)


@settings(max_examples=10)
@given(st.integers(0, 99))
def test_hier_is_that_of_loops(seed: int) -> None:
    loss = HIER(4, 5, curvature=0.3).double()
    points = loss.ball.points(raw_vectors(6, seed=seed)).requires_grad_()
    proxies, m = loss.proxy_points(torch.float64), 7
    triplets = torch.from_numpy(np.random.default_rng(seed).integers(0, 6, (m, 3)))
    noise = raw_vectors(m, 5, seed), raw_vectors(m, 5, seed + 1)
    terms = []
    for row, nodes in enumerate(triplets.tolist()):
        distances = [[slow_distance(points[node], proxy, 0.3) for proxy in proxies] for node in nodes]
        choices = []
        for members, gumbel in zip((distances[:2], distances), noise, strict=True):
            logits = torch.stack([-max(each) / loss.tau for each in zip(*members, strict=True)]) + gumbel[row]
            soft = logits.softmax(0)
            choices.append(torch.eye(5)[soft.argmax()] + soft - soft.detach())
        if choices[0].argmax() != choices[1].argmax():
            near, far = ([(torch.stack(each) * choice).sum() for each in distances] for choice in choices)
            terms += [torch.relu(sign * (a - b) + 0.1) for a, b, sign in zip(near, far, (1, 1, -1), strict=True)]
    expected = torch.stack(terms).sum() / m if terms else 0 * points.sum()
    value = loss.triplet_loss(points, proxies, triplets, noise)
    assert value.item() == pytest.approx(expected.item(), abs=1e-9)
    parameters = [points, loss.proxies]
    gradients = torch.autograd.grad(value, parameters, retain_graph=True)
    for gradient, slow in zip(gradients, torch.autograd.grad(expected + 0 * proxies.sum(), parameters), strict=True):
        torch.testing.assert_close(gradient, slow, rtol=1e-7, atol=1e-9)


def test_drawn_triplets_have_neighbours_and_others() -> None:
    x, labels = raw_vectors(24, seed=3), torch.arange(24) // 4
    for variant, has_self in (("exact", False), ("code", True)):
        loss = HIER(4, 5, n_neighbours=6, n_triplets=200, variant=variant).double()  # type: ignore[arg-type]
        points = loss.ball.points(x)
        same = labels[:, None] == labels
        i, j, k = loss._triplets(points, same).unbind(1)
        neighbours = reciprocal_neighbours((-loss.ball.distances(points, points)).exp() + same, 6)
        assert neighbours[i, j].all()
        assert not neighbours[i, k].any()
        assert (i == k).any() == has_self
        assert torch.equal(torch.unique(i), (neighbours.sum(1) > 1).nonzero()[:, 0])


@pytest.mark.parametrize("variant", ["exact", "code"])
@pytest.mark.parametrize("curvature", [0.0, 0.1, 1.0])
def test_gradients(variant: Any, curvature: float) -> None:
    """Lengths are on both sides of the clip."""
    loss = HyperbolicContrastive(curvature, 1.5, variant=variant)
    assert torch.autograd.gradcheck(lambda x: loss(x, PAIRS), raw_vectors(8).requires_grad_())


def test_curvature_0_is_the_limit_and_unit_vectors_rank_as_cosines() -> None:
    x = unit_vectors(8)
    ball = PoincareBall(0.53)
    points = ball.points(x)
    order = ball.distances(points, points).argsort(1)
    assert torch.equal(order, (-x @ x.T).argsort(1))
    small = PoincareBall(1e-9, None)
    torch.testing.assert_close(
        small.distances(small.points(x), small.points(x)), 2 * torch.cdist(x, x), rtol=1e-6, atol=1e-9
    )


def test_a_factor_of_embeddings_is_one_of_curvature_and_temperature() -> None:
    x = unit_vectors(8)
    scaled = HyperbolicContrastive(0.1, None, 0.2)(2.3 * x, PAIRS)
    torch.testing.assert_close(HyperbolicContrastive(0.1 * 2.3**2, None, 0.2 / 2.3)(x, PAIRS), scaled)


def test_memory_and_label_sets() -> None:
    x = raw_vectors(8, seed=2)
    memory = CrossBatchMemory(HyperbolicContrastive(), size=8, dim=4, n_levels=1)
    value = memory(x, PAIRS)
    assert value.isfinite()
    sets = torch.stack([PAIRS, torch.full_like(PAIRS, -1)], 1)
    assert HyperbolicContrastive()(x, sets) == HyperbolicContrastive()(x, PAIRS)
    loss = hyperbolic_hier(4, n_proxies=6, n_neighbours=3).double()
    values = []
    for labels in (PAIRS, sets):
        torch.manual_seed(0)
        values.append(loss(x, labels))
    assert values[0] == values[1]
