import torch
from hypothesis import given
from hypothesis import strategies as st

from hgld.compute.nearest_neighbours import RunningTopK, joined_top_k, merge_top_k


@given(st.integers(1, 8), st.integers(1, 9), st.integers(1, 5), st.integers(0, 1000))
def test_blocks_give_the_first_of_a_stable_sort(k: int, width: int, n_values: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    # Few different scores, so that most tie; the lowest is left out.
    scores = torch.randint(0, n_values + 1, (4, 17), generator=generator).float()
    scores[scores == 0] = -torch.inf
    best, positions = torch.full((4, k), -torch.inf), torch.full((4, k), -1)
    parts = [RunningTopK(4, k, torch.float32, torch.device("cpu")) for _ in range(2)]
    for start in range(0, 17, width):
        block = scores[:, start : start + width]
        best, positions = merge_top_k(best, positions, block, start)
        parts[start > 9].add(block, start)
    for row in range(4):
        kept = sorted((-score, column) for column, score in enumerate(scores[row].tolist()) if score > -torch.inf)[:k]
        n_missing = k - len(kept)
        assert positions[row].tolist() == [column for _, column in kept] + [-1] * n_missing
        assert best[row].tolist() == [-score for score, _ in kept] + [-torch.inf] * n_missing
    joined_scores, joined_positions = joined_top_k(parts)
    assert joined_positions.tolist() == positions.tolist()
    torch.testing.assert_close(
        torch.from_numpy(joined_scores), best.masked_fill(positions < 0, torch.nan), equal_nan=True
    )
