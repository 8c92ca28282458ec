"""Evaluation of runs on ROxford and RParis, and on DyML: the numbers of ``hgld evaluate``."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from hgld.benchmark.cost_estimate import estimate_cost
from hgld.benchmark.evaluations import DymlEvaluation, RevisitedEvaluation, embedding_file
from hgld.benchmark.runs import read_benchmark, read_evaluated, table_runs
from hgld.datasets.manifest import write_manifest
from hgld.errors import ConfigurationError
from hgld.evaluation import EvaluationFiles, evaluate_files
from hgld.evaluation.results import RetrievalResult
from hgld.tables import Provenance
from tests.benchmark.comparisons import train_and_evaluate, untrained
from tests.benchmark.miniature_datasets import LANDMARKS, write_queries_and_gallery
from tests.benchmark.miniatures import MiniatureFolder, small_settings
from tests.child_processes import run_child, run_in_two_processes, single_thread_environment
from tests.datasets.pictures import manifest_of, save_pictures

SETTINGS = ("easy", "medium", "hard")


def write_revisited(root: Path) -> dict[str, str]:
    """Write three queries and a gallery with positives of all kinds for each; return the paths of the files."""
    queries, gallery = write_queries_and_gallery(root, "gnd.pkl")
    paths = [f"jpg/{image}.jpg" for image in (*queries, *gallery)]
    splits = ["query"] * len(queries) + ["gallery"] * len(gallery)
    levels = {"search_term": [path[4:].rpartition("_")[0] for path in paths]}
    write_manifest(root / "manifest.parquet", manifest_of(paths, levels, splits), Provenance("test"))
    return {"manifest": f"{root}/manifest.parquet", "root": str(root), "ground_truth": f"{root}/gnd.pkl"}


def write_comparison(folder: Path, **evaluation: object) -> Path:
    (folder / "untrained.yaml").write_text(yaml.safe_dump(untrained(folder / "training")))
    comparison = {
        "title": "Landmarks",
        "methods": {"untrained": {"title": "Untrained", "training": "untrained.yaml"}},
        "seeds": [0],
        "evaluation": {"name": "revisited"} | evaluation,
        "columns": ["roxford5k medium mAP"],
    }
    (folder / "comparison.yaml").write_text(yaml.safe_dump(comparison))
    return folder / "comparison.yaml"


def test_metrics_of_the_protocol_are_fixed(tmp_path: Path) -> None:
    path = write_comparison(tmp_path, datasets={"roxford5k": write_revisited(tmp_path / "roxford5k")})
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"metrics": ["AP"]}))
    with pytest.raises(ConfigurationError, match="evaluation revisited has metrics of its own; omit `metrics`"):
        read_benchmark(path)


def test_plan_names_missing_ground_truth(tmp_path: Path) -> None:
    files = write_revisited(tmp_path / "roxford5k")
    Path(files["ground_truth"]).unlink()
    settings = read_benchmark(write_comparison(tmp_path, datasets={"roxford5k": files}, scales=[1, 0.7071]))
    assert isinstance(settings.evaluation, RevisitedEvaluation)
    cost = estimate_cost(settings, table_runs(settings, tmp_path / "out")["untrained"])
    assert cost.missing == (f"{files['ground_truth']}: no such file",)


def test_settings_of_both_data_sets_are_evaluated(tmp_path: Path) -> None:
    datasets = {name: write_revisited(tmp_path / name) for name in ("roxford5k", "rparis6k")}
    settings = read_benchmark(write_comparison(tmp_path, datasets=datasets, scales=[1, 0.7071]))
    (run,) = table_runs(settings, tmp_path / "out")["untrained"]
    result = train_and_evaluate(settings, run).result

    embeddings = run.folder / "evaluation"
    for name, data in datasets.items():
        files = EvaluationFiles(
            query_embeddings=embeddings / f"{name}_query.npy",
            gallery_embeddings=embeddings / f"{name}_gallery.npy",
            ground_truth=Path(data["ground_truth"]),
        )
        for part in evaluate_files(files, "roxford").results:
            for metric, mean in part.means.items():
                assert result.means[f"{name} {part.name} {metric}"] == pytest.approx(mean)
    assert {name.partition(" ")[2].partition(" ")[0] for name in result.metrics} == set(SETTINGS)
    assert result.counts["queries"] == 2 * 3 * 3
    assert set(result.per_query["class"]) == set(LANDMARKS)

    (tmp_path / "roxford5k" / "gnd.pkl").write_bytes(b"")
    assert read_evaluated(settings, run) is None


def test_distractors_add_results(tmp_path: Path) -> None:
    datasets = {"roxford5k": write_revisited(tmp_path / "roxford5k")}
    save_pictures(tmp_path / "r1m", *(f"{n}.jpg" for n in range(30)))
    settings = read_benchmark(write_comparison(tmp_path, datasets=datasets, distractors=str(tmp_path / "r1m")))
    (run,) = table_runs(settings, tmp_path / "out")["untrained"]
    evaluated = train_and_evaluate(settings, run)
    means, with_distractors = evaluated.result.means, "roxford5k+distractors"
    for setting in SETTINGS:
        assert means[f"{with_distractors} {setting} mAP"] <= means[f"roxford5k {setting} mAP"]
    assert means[f"{with_distractors} easy mAP"] < means["roxford5k easy mAP"]


@pytest.mark.slow
def test_several_processes_embed_tables_of_images_in_parts(tmp_path: Path) -> None:
    datasets = {"roxford5k": write_revisited(tmp_path / "roxford5k")}
    # More than one shard of embeddings, so that each process has images of its own.
    save_pictures(tmp_path / "r1m", *(f"{n}.jpg" for n in range(1100)))
    path = write_comparison(tmp_path, datasets=datasets, distractors=str(tmp_path / "r1m"))
    command = ("-m", "hgld", "benchmark", str(path), "--device", "cpu", "-o")
    alone, together = tmp_path / "alone", tmp_path / "together"
    run_child([sys.executable, *command, alone], environment=single_thread_environment())
    printed, of_second = run_in_two_processes(*command, str(together))
    assert str(together) in printed
    assert of_second == ""
    for name in ("roxford5k_query", "roxford5k_gallery", "distractors"):
        for suffix in (".npy", ".ids.txt"):
            file = Path("runs/untrained/seed0/evaluation") / f"{name}{suffix}"
            assert (alone / file).read_bytes() == (together / file).read_bytes()
    assert not list(together.rglob(".*.parts"))
    assert (alone / "results.tex").read_bytes() == (together / "results.tex").read_bytes()


def test_pictures_are_refused(tmp_path: Path) -> None:
    path = write_comparison(tmp_path, datasets={"roxford5k": write_revisited(tmp_path / "roxford5k")})
    path.write_text(path.read_text() + "pictures: {baseline: untrained, method: untrained}\n")
    with pytest.raises(ConfigurationError, match="pictures are not drawn for the evaluation revisited; omit them"):
        read_benchmark(path)


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
