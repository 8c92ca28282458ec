"""DyML's protocol as the evaluation of a comparison: the numbers of ``hgld evaluate --protocol dyml``."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hgld.benchmark.evaluations import DymlEvaluation, embedding_file
from hgld.benchmark.runs import read_benchmark, table_runs
from hgld.evaluation import EvaluationFiles, evaluate_files
from hgld.evaluation.results import RetrievalResult
from tests.benchmark.comparisons import train_and_evaluate
from tests.benchmark.miniatures import MiniatureFolder, small_settings


def result(name: str, values: list[float]) -> RetrievalResult:
    queries = pd.Index([f"{n}.jpg" for n in range(len(values))], name="query")
    table = pd.DataFrame({"AP": values, "class": [name] * len(values)}, index=queries)
    return RetrievalResult(name, table, ("AP",), {"queries": len(values)}, {})


def test_levels_count_the_same_whatever_their_number_of_queries() -> None:
    levels = {"fine": [0.1], "middle": [0.2, 0.4, 0.6], "coarse": [1.0, 0.8]}
    evaluation = DymlEvaluation(name="dyml", root=Path("dyml_animal"))
    joined = evaluation.join([result(name, values) for name, values in levels.items()])
    means = {name: np.mean(values) for name, values in levels.items()}
    assert joined.means == pytest.approx(
        {"AP": np.mean(list(means.values()))} | {f"{name} AP": mean for name, mean in means.items()}
    )
    assert joined.counts["queries"] == len(joined.per_query) == 6


def test_queries_without_a_value_weigh_nothing() -> None:
    evaluation = DymlEvaluation(name="dyml", root=Path("dyml_animal"))
    joined = evaluation.join([result("fine", [0.2, 0.4, np.nan]), result("coarse", [0.5])])
    assert joined.means == pytest.approx({"AP": 0.4, "fine AP": 0.3, "coarse AP": 0.5})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dyml_animal", "dyml_product"])
def test_means_are_those_of_the_protocol(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    MiniatureFolder(tmp_path).add(name)
    settings = read_benchmark(name)
    (run, *_) = table_runs(settings, tmp_path / "out", small_settings(f"{name}/happier")[1::2])["happier"]
    evaluated = train_and_evaluate(settings, run)
    files = EvaluationFiles(embeddings=embedding_file(run.folder, "embeddings"), ground_truth=Path(name))
    expected = evaluate_files(files, "dyml").mean
    assert expected is not None
    assert set(settings.columns) == set(expected)
    for metric, mean in expected.items():
        assert evaluated.result.means[metric] == pytest.approx(mean)
