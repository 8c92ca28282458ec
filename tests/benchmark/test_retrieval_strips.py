"""Retrieval strips of a comparison, from the files of its runs."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hgld.benchmark.comparison_figures import read_evaluated_images, write_strips
from hgld.benchmark.evaluations import SplitEvaluation
from hgld.benchmark.runs import BenchmarkSettings, EvaluatedRun, Run, read_benchmark, table_runs
from hgld.benchmark.statistics import MethodResults
from hgld.errors import ConfigurationError
from hgld.evaluation.evaluate import EvaluationConfig, evaluate_tasks
from hgld.tables.embeddings import write_embeddings
from tests.benchmark.comparisons import write_comparison, write_data
from tests.datasets.pictures import save_pictures

SPLIT = ("data.test=null", "data.queries=test", "data.gallery=train")


def evaluated(run: Run, ids: list[str], seed: int, metrics: tuple[str, ...] = ("H-AP",)) -> EvaluatedRun:
    """Return a run that embeds images as noise."""
    folder = run.folder / "evaluation"
    folder.mkdir(parents=True)
    vectors = np.random.default_rng(seed).normal(size=(len(ids), 5)).astype(np.float32)
    write_embeddings(folder / "embeddings.npy", torch.from_numpy(vectors), ids)
    task = read_evaluated_images(SplitEvaluation(), run).task
    (result,) = evaluate_tasks([task], EvaluationConfig(metrics=metrics))
    return EvaluatedRun(**vars(run), result=result)


def comparison(
    folder: Path, overrides: tuple[str, ...] = (), n_classes: int = 8, seeds: tuple[int, ...] = (0,)
) -> tuple[BenchmarkSettings, list[MethodResults]]:
    write_data(folder, n_classes)
    settings = read_benchmark(write_comparison(folder, seeds=seeds))
    ids = [f"{c}/{n}" for c in range(n_classes if overrides else n_classes // 2) for n in range(4)]
    methods = []
    for number, (name, runs) in enumerate(table_runs(settings, folder, overrides).items()):
        evaluated_runs = tuple(evaluated(run, ids, 2 * run.seed + number) for run in runs)
        methods.append(MethodResults(name, name.upper(), None, False, evaluated_runs))
    return settings, methods


@pytest.mark.filterwarnings("ignore:.*has a positive in the gallery")
@pytest.mark.parametrize("overrides", [(), SPLIT], ids=["for each other", "queries and gallery"])
def test_strips_show_the_top_results_of_both_methods(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    settings, methods = comparison(tmp_path, overrides, seeds=(3, 4))
    save_pictures(tmp_path, *(f"{c}/{n}" for c in range(8) for n in range(4)))
    page, picture = write_strips(settings, methods, tmp_path / "out")
    assert [page, picture] == [tmp_path / "out" / "strips.html", tmp_path / "out" / "strips.png"]
    html = page.read_text()
    assert "<h1>ROADMAP and HAPPIER, seed 3: largest differences</h1>" in html
    assert "Of 16 queries, HAPPIER has a higher H-AP" in html
    assert "not available" not in html
    query_landmarks = re.findall(r'alt="query \d: l(\d), r\d"', html)
    assert len(query_landmarks) == 2
    assert set(query_landmarks) <= set("0123")  # the landmarks of tests
    shown_levels = set(re.findall(r'alt="rank \d+, level \d: l(\d), r\d"', html))
    assert shown_levels <= (set("4567") if overrides else set("0123"))
    strips = re.findall(r'<ol class="items">.*?</ol>', html, re.DOTALL)
    assert [strip.count("<img") for strip in strips] == [10] * 4
    for query, pair in zip(
        re.findall(r'<p><span class="id">(.*?)<', html), zip(strips[::2], strips[1::2], strict=True), strict=True
    ):
        assert not any(f">{query}</span>" in strip for strip in pair)  # never found for itself


def test_ids_replace_missing_photographs(tmp_path: Path) -> None:
    settings, methods = comparison(tmp_path)
    page, _ = write_strips(settings, methods, tmp_path)
    assert "photographs are not available" in page.read_text()


def test_landmarks_are_named_by_their_categories(tmp_path: Path) -> None:
    settings, methods = comparison(tmp_path)
    write_data(tmp_path, landmark="16{}")
    lines = [f"16{c},http://commons.wikimedia.org/wiki/Category:Lake_{c},lake,lakes,natural" for c in range(1, 4)]
    head = "landmark_id,category,supercategory,hierarchical_label,natural_or_human_made"
    path = tmp_path / "train_label_to_hierarchical.csv"
    path.write_text("\n".join([head, *lines]) + "\n")  # without landmark 160
    assert settings.pictures is not None
    named = settings.model_copy(update={"pictures": settings.pictures.model_copy(update={"hierarchy": path})})
    page, _ = write_strips(named, methods, tmp_path)
    shown = set(re.findall(r"Lake \d|landmark 16\d", page.read_text()))
    assert shown == {"landmark 160", "Lake 1", "Lake 2", "Lake 3"}


def test_no_strips_without_two_methods_and_a_difference(tmp_path: Path) -> None:
    settings, methods = comparison(tmp_path)
    assert settings.pictures is not None
    none = settings.model_copy(update={"pictures": settings.pictures.model_copy(update={"n_queries": 0})})
    assert write_strips(none, methods, tmp_path) == []
    assert write_strips(settings.model_copy(update={"pictures": None}), methods, tmp_path) == []
    assert write_strips(settings, methods[:1], tmp_path) == []
    roadmap, _ = methods
    other_seed = replace(roadmap.runs[0], seed=9)
    other = MethodResults("happier", "HAPPIER", None, False, (other_seed,))
    assert write_strips(settings, [roadmap, other], tmp_path) == []
    same = MethodResults("happier", "HAPPIER", None, False, roadmap.runs)
    assert write_strips(settings, [roadmap, same], tmp_path) == []
    assert not (tmp_path / "strips.html").exists()


def test_runs_with_other_images_are_errors(tmp_path: Path) -> None:
    settings, (roadmap, happier) = comparison(tmp_path)
    (run,) = happier.runs
    fewer = run.result.part("fewer", np.arange(16) < 15)
    write_embeddings(
        run.folder / "evaluation" / "embeddings.npy", torch.eye(15), [f"{n // 4}/{n % 4}" for n in range(15)]
    )
    changed = MethodResults("happier", "HAPPIER", None, False, (replace(run, result=fewer),))
    with pytest.raises(ConfigurationError, match="ROADMAP and HAPPIER were not evaluated with the same images"):
        write_strips(settings, [roadmap, changed], tmp_path)
