from collections import deque
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from hgld.errors import InputError
from hgld.losses import (
    ContrastiveLoss,
    CrossBatchMemory,
    DecomposabilityLoss,
    Loss,
    MarginLoss,
    ProxyLoss,
    SoftBinAP,
    SupAP,
    SupHAP,
    TripletLoss,
    XBMContrastive,
    happier,
)
from hgld.losses.cross_batch_memory import Reduction

LABELS = torch.tensor([[0, 0], [0, 0], [1, 0], [1, 0], [2, 1], [2, 1]])


def batch(seed: int, dim: int = 4) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return functional.normalize(torch.randn(6, dim, generator=generator))


class RecordingLoss(Loss):
    """Records the references it is called with."""

    seen: list[float]

    def forward_batch(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_labels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if reference_embeddings is not None and reference_labels is not None:
            assert torch.equal(reference_embeddings[:, 0].long(), reference_labels[:, 0])
            self.seen = reference_embeddings[:, 0].tolist()
        return embeddings.sum()


@given(sizes=st.lists(st.integers(1, 9), max_size=12), size=st.integers(1, 7))
def test_memory_is_a_queue(sizes: list[int], size: int) -> None:
    loss = RecordingLoss()
    memory = CrossBatchMemory(loss, size, dim=1, n_levels=1)
    expected: deque[float] = deque(maxlen=size)
    n = 0
    for length in sizes:
        numbers = torch.arange(n, n + length)[:, None]
        n += length
        memory.forward_batch(numbers.float(), numbers)
        expected.extend(numbers[:, 0].tolist())
        assert sorted(loss.seen) == list(expected)
        assert len(memory.content()[0]) == len(expected)


@pytest.mark.parametrize("loss", [SupHAP(), DecomposabilityLoss(), XBMContrastive(), SoftBinAP(), TripletLoss()])
def test_memory_of_all_batches_equals_references_of_all_batches(loss: Loss) -> None:
    memory = CrossBatchMemory(loss, size=18, dim=4, n_levels=2, memory_weight=0.5, reduction="sum")
    earlier = [batch(0), batch(1)]
    for x in earlier:
        memory(x, LABELS)
    x = batch(2).requires_grad_()
    value = memory(x, LABELS)
    (gradient,) = torch.autograd.grad(value, x)

    y = x.detach().clone().requires_grad_()
    references = torch.cat([*earlier, y.detach()]), LABELS.repeat(3, 1)
    expected = loss(y, LABELS) + 0.5 * loss(y, LABELS, *references)
    (expected_gradient,) = torch.autograd.grad(expected, y)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient, expected_gradient)
    assert expected_gradient.any()


def test_first_steps_only_fill_the_memory() -> None:
    memory = CrossBatchMemory(SupAP(), size=100, dim=4, n_levels=2, start_step=2)
    for seed in range(2):
        assert memory(batch(seed), LABELS) == SupAP()(batch(seed), LABELS)
        assert set(memory.parts) == {"batch"}
    references = torch.cat([batch(seed) for seed in range(3)]), LABELS.repeat(3, 1)
    expected = SupAP()(batch(2), LABELS), SupAP()(batch(2), LABELS, *references)
    torch.testing.assert_close(memory(batch(2), LABELS), sum(expected) / 2)
    assert memory.parts == {"batch": expected[0], "memory": expected[1]}


@pytest.mark.parametrize(("reduction", "divisor"), [("mean", 2), ("sum", 1)])
def test_proxies_count_once(reduction: Reduction, divisor: int) -> None:
    proxies = ProxyLoss(3, 4)
    memory = CrossBatchMemory(happier(proxies, 0.3), size=6, dim=4, n_levels=2, reduction=reduction)
    x = batch(0)
    rank_loss = SupHAP()(x, LABELS) + SupHAP()(x, LABELS, x, LABELS)
    torch.testing.assert_close(memory(x, LABELS), 0.7 * rank_loss / divisor + 0.3 * proxies(x, LABELS))
    torch.testing.assert_close(memory.parts["batch"], happier(proxies, 0.3)(x, LABELS).detach())
    assert set(memory.parts) == {"batch", "memory", "batch.sup_hap", "batch.decomposability", "memory.sup_hap"}
    assert list(dict(memory.named_parameters())) == ["loss.losses.decomposability.proxies"]


def published_total(
    terms: list[tuple[Loss, float, bool]],
    x: torch.Tensor,
    memory: tuple[torch.Tensor, torch.Tensor] | None,
    factor: float,
) -> torch.Tensor:
    """Return the objective as suprank/engine/base_training_loop.py combines it, with ``factor_true_loss`` 1.

    Args:
        terms: Loss, weight, and whether it takes reference embeddings.
        x: The batch.
        memory: Stored embeddings and labels, the batch among them; None before the memory is active.
        factor: Weight of the loss against the memory.
    """
    total = torch.zeros(())
    for loss, weight, takes_references in terms:
        value = loss(x, LABELS)
        if memory is not None and takes_references:
            value = (1.0 * value + factor * loss(x, LABELS, *memory)) / (1.0 + factor)
        total = total + weight * value
    return total


@given(st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=9), max_size=8))
def test_unique_memory_is_the_published_dictionary(batches: list[list[int]]) -> None:
    """roadmap/engine/memory.py: a dictionary from the path of an image to its newest embedding."""
    loss = RecordingLoss()
    memory = CrossBatchMemory(loss, size=7, dim=1, n_levels=1, unique=True)
    expected: dict[int, int] = {}
    n = 0
    for indices in batches:
        numbers = torch.arange(n, n + len(indices))[:, None]
        n += len(indices)
        expected.update(zip(indices, numbers[:, 0].tolist(), strict=True))
        memory._indices = torch.tensor(indices)  # numbers are not unit vectors, which forward requires
        memory.forward_batch(numbers.float(), numbers)
        assert loss.seen == [expected[index] for index in sorted(expected)]


def test_unique_memory_needs_indices_of_its_places() -> None:
    memory = CrossBatchMemory(SupAP(), size=8, dim=4, n_levels=2, unique=True)
    memory(batch(0), LABELS, indices=torch.arange(6))
    references = torch.cat([batch(0)[:4], batch(1)]), torch.cat([LABELS[:4], LABELS])
    value = memory(batch(1), LABELS, indices=torch.tensor([4, 5, 7, 6, 4, 5]))  # two images are repeated
    keep = [0, 1, 2, 3, 8, 9, 7, 6]
    expected = SupAP()(batch(1), LABELS, references[0][keep], references[1][keep])
    torch.testing.assert_close(memory.parts["memory"], expected)
    torch.testing.assert_close(value, (SupAP()(batch(1), LABELS) + expected) / 2)
    for wrong, message in (
        (None, "needs `indices`, the numbers of the images"),
        (torch.arange(3, 9), "are 3 to 8; expected one for each of 6 embeddings, 0 to 7"),
        (torch.arange(5), r"have shape \(5,\)"),
    ):
        with pytest.raises(InputError, match=message):
            memory(batch(2), LABELS, indices=wrong)


@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_objective_and_gradient_are_those_of_the_published_loop(factor: float) -> None:
    proxies = ProxyLoss(3, 4)
    memory = CrossBatchMemory(happier(proxies, 0.1), 24, dim=4, n_levels=2, memory_weight=factor, start_step=2)
    terms = [(SupHAP(), 0.9, True), (proxies, 0.1, False)]
    stored: list[torch.Tensor] = []
    for seed in range(4):
        x = batch(seed).requires_grad_()
        value = memory(x, LABELS)
        gradients = torch.autograd.grad(value, [x, proxies.proxies])
        stored.append(x.detach())
        content = (torch.cat(stored), LABELS.repeat(len(stored), 1)) if seed >= 2 else None
        y = x.detach().clone().requires_grad_()
        expected = published_total(terms, y, content, factor)
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(gradients, torch.autograd.grad(expected, [y, proxies.proxies]))


def test_memory_continues_from_its_state(tmp_path: Path) -> None:
    def new() -> CrossBatchMemory:
        return CrossBatchMemory(SupHAP(), size=10, dim=4, n_levels=2, start_step=1)

    whole, first, second = new(), new(), new()
    expected = [whole(batch(seed), LABELS) for seed in range(5)]
    for seed in range(3):
        first(batch(seed), LABELS)
    torch.save(first.state_dict(), tmp_path / "memory.pt")
    second.load_state_dict(torch.load(tmp_path / "memory.pt", weights_only=True))
    assert [second(batch(seed), LABELS) for seed in (3, 4)] == expected[3:]


def test_evaluation_does_not_change_the_memory() -> None:
    memory = CrossBatchMemory(SupAP(), size=100, dim=4, n_levels=2)
    assert memory.eval()(batch(0), LABELS) == SupAP()(batch(0), LABELS)  # nothing to compare with yet
    memory.train()(batch(0), LABELS)
    before = {name: value.clone() for name, value in memory.state_dict().items()}
    memory.eval()(batch(1), LABELS)
    torch.testing.assert_close(memory.parts["memory"], SupAP()(batch(1), LABELS, batch(0), LABELS))
    torch.testing.assert_close(memory.state_dict(), before)


def test_memory_is_stored_in_float32_and_without_a_graph() -> None:
    memory = CrossBatchMemory(SupAP(), size=6, dim=4, n_levels=2)
    for x in (batch(0).half(), batch(0).double()):
        x.requires_grad_()
        value = memory(x, LABELS)
        assert value.dtype == (torch.float64 if x.dtype == torch.float64 else torch.float32)
        value.backward()
        assert memory.embeddings.dtype == torch.float32
        assert not memory.embeddings.requires_grad


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "loss", [SupHAP(), DecomposabilityLoss(), XBMContrastive(), SoftBinAP(), TripletLoss(), MarginLoss(3)], ids=str
)
def test_memory_of_16_bits_has_the_loss_of_its_content(loss: Loss, dtype: Any) -> None:
    memory = CrossBatchMemory(loss, size=12, dim=4, n_levels=2, dtype=dtype)
    memory(batch(0), LABELS)
    queries = batch(1).requires_grad_()
    torch.manual_seed(0)
    memory(queries, LABELS)
    references, labels = memory.content()
    assert references.dtype == getattr(torch, dtype)
    torch.manual_seed(0)
    loss(queries, LABELS)  # draws what the first term of the memory's loss drew
    torch.testing.assert_close(memory.parts["memory"], loss(queries, LABELS, references.float(), labels).detach())


@pytest.mark.parametrize("loss", [ContrastiveLoss, XBMContrastive])
def test_pairs_of_a_query_with_itself_do_not_count_by_rounding(loss: type[Loss]) -> None:
    values = {}
    for dtype in (torch.float64, torch.float32):
        memory = CrossBatchMemory(loss(), size=48, dim=8, n_levels=1).to(dtype)
        losses = []
        for seed in range(12):
            generator = torch.Generator().manual_seed(seed)
            embeddings = functional.normalize(torch.randn(8, 8, generator=generator, dtype=torch.float64))
            labels = torch.randint(0, 3, (8, 1), generator=generator)
            losses.append(float(memory(embeddings.to(dtype), labels)))
        values[dtype] = losses
    assert values[torch.float32] == pytest.approx(values[torch.float64], rel=1e-6)
