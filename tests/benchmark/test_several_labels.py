"""Comparisons on images with several labels each."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from hgld.benchmark.comparison_figures import EvaluatedImages
from hgld.benchmark.cost_estimate import estimate_cost
from hgld.benchmark.runs import read_benchmark, table_runs
from hgld.errors import InputError
from hgld.evaluation.retrieval_task import leave_one_out_task
from hgld.hierarchy import LabelSets
from tests.benchmark.comparisons import train_and_evaluate, write_comparison, write_data


def write_several_labels(folder: Path) -> None:
    """Give each image of :func:`write_data` the label of the class after the next as a second one."""
    write_data(folder)
    table = pq.read_table(folder / "manifest.parquet").drop_columns(["offset", "size"])
    for name, number in (("landmark", 8), ("root", 2)):
        second = [f"{text[0]}{(int(text[1:]) + 2) % number}" for text in table[name].to_pylist()]
        pairs = pa.array(list(map(list, zip(table[name].to_pylist(), second, strict=True))), pa.list_(pa.string()))
        table = table.set_column(table.column_names.index(name), name, pairs)
    pq.write_table(table.replace_schema_metadata(None), folder / "manifest.parquet")


def test_plan_and_evaluation_take_several_labels(tmp_path: Path) -> None:
    write_several_labels(tmp_path)
    settings = read_benchmark(write_comparison(tmp_path, happier={"memory": {"start_epoch": 1}}))
    (run,) = table_runs(settings, tmp_path / "out")["happier"]
    estimate_cost(settings, [run])
    evaluated = train_and_evaluate(settings, run)
    assert evaluated.result.per_query["class"].tolist() == [f"l{c}" for c in range(4) for _ in range(4)]
    assert 0 < evaluated.result.means["H-AP"] <= 1


def test_plan_refuses_losses_of_single_labels(tmp_path: Path) -> None:
    write_several_labels(tmp_path)
    settings = read_benchmark(write_comparison(tmp_path, happier={"loss": {"name": "triplet"}}))
    (run,) = table_runs(settings, tmp_path / "out")["happier"]
    with pytest.raises(InputError, match="images with one label each, and these may have several; choose"):
        estimate_cost(settings, [run])


def test_figures_take_the_first_of_several_labels() -> None:
    labels = LabelSets.from_lists([[[5, 1], [2, 0]], [[2, 0]]])
    images = EvaluatedImages(leave_one_out_task(torch.eye(2), labels), (("a",), ("b",)), photos=lambda _: None)  # type: ignore[arg-type,return-value]
    ((embeddings, matrix),) = images.embeddings_and_labels()
    assert torch.equal(embeddings, torch.eye(2))
    assert np.array_equal(matrix, [[5, 1], [2, 0]])
