"""What every loss of the registry does with its input: refusals, conversions, and gradients of degenerate batches."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from hgld.errors import InputError
from hgld.losses import LOSSES, CrossBatchMemory, LabelSpace, Loss, pair_levels
from hgld.losses.kernels.batches import checked_batch

LABELS = torch.tensor([[0, 0, 0], [1, 0, 0], [2, 1, 0], [3, 2, 1]]).repeat_interleave(3, 0)
SPACE = LabelSpace.from_labels(8, LABELS.numpy())
#: A loss of a single level is also tested as the sum over all levels, and those that can with SiMix.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in LOSSES},
    "hier": ("hier", {"n_proxies": 20, "n_neighbours": 5}),  # all 512 proxies take long
    **{f"{name} of all levels": (name, {"levels": "all"}) for name in LOSSES if "levels" in LOSSES[name].options},
    **{f"{name} with SiMix": (name, {"simix": True}) for name in LOSSES if "simix" in LOSSES[name].options},
}
every_loss = pytest.mark.parametrize("variant", LOSSES)
every_variant = pytest.mark.parametrize("variant", VARIANTS)


def build(variant: str, space: LabelSpace = SPACE) -> Loss:
    torch.manual_seed(0)
    name, options = VARIANTS[variant]
    return LOSSES[name](space, **options)


def unit_vectors(n: int = 12, seed: int = 0) -> torch.Tensor:
    return functional.normalize(torch.randn(n, 8, generator=torch.Generator().manual_seed(seed)))


def with_memory(loss: Loss) -> Loss:
    """Return the loss with a memory, or as it is if it compares with proxies only."""
    return loss if loss.reference_part() is None else CrossBatchMemory(loss, size=24, dim=8, n_levels=3)


def value(loss: Loss, *arguments: Any) -> torch.Tensor:
    torch.manual_seed(1)  # BlackBox-AP and SiMix draw random numbers
    result: torch.Tensor = loss(*arguments)
    return result


@every_loss
def test_embeddings_that_are_not_finite_unit_vectors_are_errors(variant: str) -> None:
    loss = build(variant)
    too_long, not_finite = unit_vectors(), unit_vectors()
    too_long[7] *= 5
    not_finite[3:5, 2] = torch.nan
    wrongs = [(not_finite, "are NaN or infinite in 2 of 12 rows, first in row 3")]
    if variant in ("hyperbolic_contrastive", "hier"):
        assert loss(too_long, LABELS).isfinite()
    else:
        wrongs.append((too_long, "are not of length 1 in 1 of 12 rows; row 7 has length 5. Losses compare cosines"))
    for wrong, message in wrongs:
        for each in (loss, with_memory(loss)):
            with pytest.raises(InputError, match=f"`embeddings` {message}"):
                each(wrong, LABELS)
        with pytest.raises(InputError, match=f"`reference_embeddings` {message}"):
            loss(unit_vectors(), LABELS, wrong, LABELS)


@pytest.mark.parametrize("length", [0.0, 0.98, 1.02, 1e20, torch.inf, -torch.inf])
def test_lengths_other_than_1_are_errors(length: float) -> None:
    embeddings = torch.eye(3)
    embeddings[1, 1] = length
    message = "not of length 1" if np.isfinite(length) else "NaN or infinite in 1 of 3 rows, first in row 1"
    with pytest.raises(InputError, match=message):
        checked_batch(embeddings, torch.arange(3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dim", [2, 64, 2048])
def test_embeddings_normalised_in_16_bits_are_unit_vectors(dtype: torch.dtype, dim: int) -> None:
    embeddings = functional.normalize(torch.randn(500, dim, generator=torch.Generator().manual_seed(0)).to(dtype))
    assert embeddings.dtype == dtype
    checked, *_ = checked_batch(embeddings, torch.zeros(500, dtype=torch.int64))
    assert torch.equal(checked, embeddings.float())


@every_loss
def test_labels_of_other_integers_give_the_same_value(variant: str) -> None:
    loss, embeddings, references = build(variant), unit_vectors(), unit_vectors(seed=1)
    other = build(variant, LabelSpace.from_labels(8, LABELS.numpy().astype(np.int32)))  # as of manifests
    expected = value(loss, embeddings, LABELS), value(loss, embeddings, LABELS, references, LABELS)
    for labels in (LABELS.int(), LABELS.numpy(), LABELS.numpy().astype(np.int32), LABELS.numpy().astype(np.uint8)):
        assert value(other, embeddings, labels) == expected[0]
        assert value(other, embeddings, labels, references, labels) == expected[1]


@every_loss
def test_labels_of_one_level_may_have_one_dimension(variant: str) -> None:
    classes = LABELS[:, 0]
    loss, embeddings = build(variant, LabelSpace.from_labels(8, classes[:, None].numpy())), unit_vectors()
    expected = value(loss, embeddings, classes[:, None], -embeddings, classes[:, None])
    assert value(loss, embeddings, classes, -embeddings, classes.numpy()) == expected


@pytest.mark.parametrize("dtype", ["int8", "int16", ">i4", "int64", "uint8", "uint32"])
def test_arrays_of_any_memory_layout_are_labels(dtype: str) -> None:
    array = LABELS.numpy().astype(dtype)
    read_only = array.copy()
    read_only.setflags(write=False)
    for labels in (array, read_only, np.ascontiguousarray(array[::-1])[::-1], np.asfortranarray(array)):
        _, checked, *_ = checked_batch(unit_vectors(), labels)
        assert torch.equal(checked, LABELS)


@every_loss
def test_unlabelled_images_are_errors(variant: str) -> None:
    labels = LABELS.clone()
    labels[5:7] = -1
    for each in (build(variant), with_memory(build(variant))):
        with pytest.raises(
            InputError, match="`labels` of 2 of 12 images are below 0, first in row 5; -1 stands for an"
        ):
            each(unit_vectors(), labels)
    with pytest.raises(InputError, match="`reference_labels` of 2 of 12 images are below 0"):
        build(variant)(unit_vectors(), LABELS, unit_vectors(), labels)


def test_pairs_of_unlabelled_items_have_level_0() -> None:
    labels = torch.tensor([[-1, -1], [3, 0]])
    assert pair_levels(labels, labels).tolist() == [[0, 0], [0, 2]]


def test_labels_with_the_coarsest_level_first_are_told_so() -> None:
    with pytest.raises(InputError, match="not nested: .* column 0 has the fewest classes: reverse the columns"):
        pair_levels(LABELS.flip(1), LABELS.flip(1))


@every_loss
def test_input_of_wrong_types_and_empty_input_are_errors(variant: str) -> None:
    loss, nothing = build(variant), (torch.empty(0, 8), LABELS[:0])
    with pytest.raises(InputError, match="`labels` are of torch.float32; expected integers"):
        loss(unit_vectors(), LABELS.float())
    with pytest.raises(InputError, match=r"expected \(B, d\) and \(B, L\)"):
        loss(unit_vectors(), LABELS[:5])
    with pytest.raises(InputError, match="`reference_labels` are a list; expected integers"):
        loss(unit_vectors(), LABELS, unit_vectors(), LABELS.tolist())
    with pytest.raises(InputError, match="`embeddings` are a ndarray; expected a tensor of floats"):
        loss(unit_vectors().numpy(), LABELS)
    with pytest.raises(InputError, match=r"`embeddings` have shape \(0, 8\) .* B and L at least 1"):
        loss(*nothing)
    with pytest.raises(InputError, match=r"`reference_embeddings` have shape \(0, 8\) .* N at least 1"):
        loss(unit_vectors(), LABELS, *nothing)


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        (LABELS.bool(), "of torch.bool"),
        (LABELS.numpy().astype(float), "of float64"),
        (LABELS.numpy().astype(str), "of <U21"),
        (LABELS.to(torch.complex64), "of torch.complex64"),
        (None, "a NoneType"),
    ],
)
def test_labels_that_are_not_integers_are_errors(labels: Any, found: str) -> None:
    with pytest.raises(InputError, match=f"`labels` are {found}; expected integers, .* numpy.unique"):
        checked_batch(unit_vectors(), labels)


@every_loss
def test_batches_without_positives_are_told(variant: str) -> None:
    loss, labels = build(variant), torch.arange(4)[:, None].expand(4, 3)
    if loss.reference_part() is None:  # proxies are the positives
        assert loss(unit_vectors(4), labels).isfinite()
        return
    for references in ((), (unit_vectors(4), labels + 4)):
        with pytest.raises(
            (InputError, UserWarning), match="(none of 4 queries|no query of a batch of 4) has a posi"
        ):
            loss(unit_vectors(4), labels, *references)


ONE = unit_vectors(1)
DEGENERATE_BATCHES: dict[str, tuple[torch.Tensor, torch.Tensor]] = {
    "identical": (ONE.repeat(12, 1), LABELS),
    "with one image three times": (unit_vectors()[[0, 0, 0, *range(3, 12)]], LABELS),
    "duplicated": (unit_vectors(6).repeat(2, 1), LABELS),
    "identical within classes": (unit_vectors(4).repeat_interleave(3, 0), LABELS),
    "antipodal": (torch.cat([ONE, -ONE]).repeat(6, 1), LABELS),
    "orthogonal": (torch.eye(8)[torch.arange(12) // 3], LABELS),
    "of one class": (unit_vectors(), torch.zeros_like(LABELS)),
    "of one class and identical": (ONE.repeat(12, 1), torch.zeros_like(LABELS)),
    "without positives": (unit_vectors(4), LABELS[::3]),
    "of one item": (ONE, LABELS[:1]),
}


@pytest.mark.filterwarnings("ignore:no query of a batch")
@every_variant
def test_gradients_of_degenerate_batches_are_finite(variant: str) -> None:
    loss = build(variant)
    for name, (embeddings, labels) in DEGENERATE_BATCHES.items():
        for references in ((), (-embeddings, labels)):
            x = embeddings.clone().requires_grad_()
            try:
                result = loss(x, labels, *references)
            except InputError as error:
                if name in ("without positives", "of one item") and "has a positive" in str(error):
                    continue
                raise
            assert result.isfinite(), name
            result.backward()
            assert all(each.grad is None or each.grad.isfinite().all() for each in (x, *loss.parameters())), name


@every_variant
def test_gradients_of_embeddings_at_and_opposite_to_their_proxies_are_finite(variant: str) -> None:
    loss = build(variant)
    for sign in (1, -1):
        x = torch.eye(8)[LABELS[:, 0]].requires_grad_()
        with torch.no_grad():
            for proxies in loss.parameters():
                if proxies.ndim == 2:  # others are boundaries and offsets of classes
                    proxies.copy_(sign * torch.eye(*proxies.shape))
        loss(x, LABELS).backward()
        for tensor in (x, *loss.parameters()):
            assert tensor.grad is not None
            assert tensor.grad.isfinite().all()
