"""Evaluations with distractors, against those of a gallery in one piece, where they are images of other classes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld.compute import scoring
from hgld.compute.part import Part
from hgld.compute.parted import PartedTensor
from hgld.evaluation.distractors import DistractorCounts
from hgld.evaluation.evaluate import EvaluationConfig, build_task, count_distractors, evaluate_tasks
from hgld.evaluation.ranking import RankingConfig, Ties
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import RetrievalTask, with_distractors
from hgld.ragged import RaggedIndices
from hgld.tables.embeddings import Embeddings

METRICS = ("H-AP", "NDCG", "ASI", "wAP", "mAP@R", "R@1", "hF", "mistake_severity")


def with_cutoffs(n_ranked: int, n_levels: int) -> tuple[str, ...]:
    k = min(3, n_ranked)
    by_level = [f"AP_l{level}" for level in range(1, n_levels + 1)]
    return (*METRICS, *by_level, f"mAP@{k}", f"NDCG@{k}", f"AHP@{k}", f"H-P@{k}", f"R@{n_ranked}")


class World:
    """A task without and with distractors, and the same gallery in one piece."""

    def __init__(self, seed: int, n: int, n_gallery: int, n_distractors: int, n_levels: int, coarse: bool) -> None:
        rng = np.random.default_rng(seed)

        def embedded(count: int) -> torch.Tensor:
            vectors = rng.integers(-1, 2, (count, 3)) if coarse else rng.normal(size=(count, 6))  # few cosines: ties
            return torch.from_numpy(vectors.astype(np.float32))

        finest = rng.integers(0, 6, n + n_gallery)
        labels = np.stack([finest // 2**level for level in range(n_levels)], axis=1)
        labels[n:][rng.random(n_gallery) < 0.2] = -1
        queries, gallery, distractors = embedded(n), embedded(n_gallery), embedded(n_distractors)
        junk = RaggedIndices.from_lists([rng.integers(0, n_gallery, rng.integers(0, 3)) for _ in range(n)])
        labels[n] = 0  # one is left to rank
        keep = junk.columns != 0
        junk = RaggedIndices.from_pairs(junk.rows()[keep], junk.columns[keep], n)
        task = build_task(queries, labels[:n], gallery, labels[n:], ignored=junk)
        cut = rng.integers(0, n_distractors + 1)
        parts = [part for part in (distractors[:cut], distractors[cut:]) if len(part)]
        self.task = with_distractors(task, Embeddings(PartedTensor(parts), None, None, Path("r1m")))
        others = np.repeat(np.arange(100, 100 + n_distractors)[:, None], n_levels, axis=1)
        whole = torch.cat([gallery, distractors])
        self.whole = build_task(queries, labels[:n], whole, np.concatenate([labels[n:], others]), ignored=junk)


def evaluated(task: RetrievalTask, config: EvaluationConfig) -> RetrievalResult:
    (result,) = evaluate_tasks([task], config)
    return result


def assert_same(result: RetrievalResult, expected: RetrievalResult) -> None:
    pd.testing.assert_frame_equal(result.per_query, expected.per_query, check_exact=True)
    assert result.counts["gallery"] == expected.counts["gallery"]


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**16),
    n=st.integers(1, 5),
    n_gallery=st.integers(1, 40),
    n_distractors=st.integers(1, 90),
    n_levels=st.integers(1, 3),
    coarse=st.booleans(),
    ties=st.sampled_from(["pessimistic", "optimistic"]),
    block_size=st.integers(1, 5),
    width=st.integers(1, 50),
    n_parts=st.integers(1, 5),
)
def test_counted_distractors_give_the_numbers_of_one_piece(
    seed: int,
    n: int,
    n_gallery: int,
    n_distractors: int,
    n_levels: int,
    coarse: bool,
    ties: Ties,
    block_size: int,
    width: int,
    n_parts: int,
) -> None:
    world = World(seed, n, n_gallery, n_distractors, n_levels, coarse)
    config = EvaluationConfig(
        with_cutoffs(n_distractors + 1, n_levels), ranking=RankingConfig(block_size=block_size, ties=ties)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hgld.evaluation.evaluate._LEAST_SHARE", 0)
        patch.setitem(scoring._WIDTH, "cpu", width)
        patch.setattr("hgld.evaluation.evaluate.warn_without_positives", lambda *arguments: None)
        expected = evaluated(world.whole, config)
        result = evaluated(world.task, config)
        assert result.settings["distractors"] == "counted before each positive"
        assert_same(result, expected)
        counts = [count_distractors([world.task], config, Part(part + 1, n_parts)) for part in range(n_parts)]
        total = {
            name: DistractorCounts(first.queries, np.sum([each[name].counts for each in counts], axis=0))
            for name, first in counts[0].items()
        }
        assert_same(evaluated(world.task, replace(config, distractor_counts=total)), expected)
        patch.setattr("hgld.evaluation.evaluate._positive_ranking", lambda *arguments: None)
        dense = evaluated(world.task, config)
        assert dense.settings["distractors"] == "sorted with all other images"
        assert_same(dense, expected)
