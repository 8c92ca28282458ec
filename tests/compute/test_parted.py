from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.compute.parted import PartedTensor


def parts(lengths: list[int], seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(length, 4, generator=generator) for length in lengths]


@given(lengths=st.lists(st.integers(1, 4), min_size=1, max_size=5), data=st.data())
def test_rows_and_columns_are_those_of_the_joined_tensor(lengths: list[int], data: st.DataObject) -> None:
    joined = torch.cat(parts(lengths))
    parted = PartedTensor(parts(lengths))
    assert (parted.shape, parted.dtype, len(parted), parted.nbytes) == (
        joined.shape,
        joined.dtype,
        *(len(joined), joined.nbytes),
    )
    start, stop = data.draw(st.tuples(st.integers(0, len(joined)), st.integers(0, len(joined))))
    chosen = data.draw(st.lists(st.integers(-len(joined), len(joined) - 1), max_size=6))
    indices: list[Any] = [
        slice(start, stop),
        slice(None, None, 2),
        torch.tensor(chosen, dtype=torch.int64),
        joined[:, 0] > 0,
    ]
    indices += [0, -1, (slice(start, stop), 1), (slice(None), slice(1, 3)), (slice(None), [2, 0])]
    for index in indices:
        taken = parted[index]
        assert type(taken) is torch.Tensor
        assert torch.equal(taken, joined[index])
    for outside in (len(joined), -len(joined) - 1):
        with pytest.raises(IndexError, match=f"{outside} is out of bounds"):
            parted[torch.tensor([outside])]
    assert torch.equal(PartedTensor([parted, parted]).whole(), torch.cat([joined, joined]))


@pytest.mark.parametrize(
    "operation",
    [
        torch.clone,
        lambda tensor: tensor.detach().cpu().contiguous(),
        torch.Tensor.double,
        lambda tensor: tensor @ tensor.T,
        lambda tensor: torch.cat([tensor, tensor]),
        lambda tensor: torch.from_numpy(np.asarray(tensor)),
        lambda tensor: tensor.abs().amax(dim=1),
    ],
)
def test_any_other_operation_is_that_of_the_joined_tensor(operation: Any) -> None:
    assert torch.equal(operation(PartedTensor(parts([3, 1, 5]))), operation(torch.cat(parts([3, 1, 5]))))


def test_parts_of_several_types_are_converted_to_the_widest() -> None:
    first, second = parts([2, 3])
    parted = PartedTensor([first.half(), second])
    assert parted.dtype == parted[:1].dtype == parted[torch.tensor([0])].dtype == torch.float32
    assert torch.equal(parted.whole(), torch.cat([first.half().float(), second]))


def test_a_search_reads_blocks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    gallery = parts([3000, 1, 2500, 700])
    expected = nearest_neighbours(gallery[0][:5], torch.cat(gallery), 7)

    def refuse(*arguments: object) -> None:
        raise AssertionError("all rows are read")

    monkeypatch.setattr(PartedTensor, "whole", refuse)
    found = nearest_neighbours(gallery[0][:5], PartedTensor(gallery), 7)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
