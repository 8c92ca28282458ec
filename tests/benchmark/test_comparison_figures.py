"""Figures of a comparison, from the files of its runs."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from hgld.benchmark import comparison_figures
from hgld.benchmark.comparison_figures import curve_colours, draw_comparison, draw_sweep, method_colours
from hgld.benchmark.runs import (
    BenchmarkSettings,
    EvaluatedRun,
    PictureSettings,
    Run,
    SweepPoint,
    SweepSettings,
    read_benchmark,
    table_runs,
)
from hgld.benchmark.statistics import MethodResults
from hgld.datasets.manifest import write_manifest
from hgld.evaluation import evaluate_retrieval
from hgld.evaluation.results import RetrievalResult
from hgld.figures.comparisons import ClassMeans, Panel, ScoreDensities
from hgld.tables import Provenance
from hgld.tables.embeddings import write_embeddings
from tests.benchmark.comparisons import write_comparison
from tests.datasets.pictures import manifest_of

#: Settings and results of a comparison.
Comparison = tuple[BenchmarkSettings, list[MethodResults]]
LANDMARKS = np.repeat(np.arange(12), 5)
LABELS = np.stack([LANDMARKS, LANDMARKS // 3, LANDMARKS // 6], axis=1)
#: By the method: H-AP of the evaluations after so many steps, for each seed.
HISTORY = {"happier": {0: {0: 0.5, 4: 0.6, 8: 0.7}, 1: {0: 0.5, 4: 0.8}}, "roadmap": {0: {0: 0.5}, 1: {0: 0.5}}}


def evaluated(run: Run) -> EvaluatedRun:
    """Return a run whose embeddings are noise around landmarks, which HAPPIER also groups by root."""
    rng = np.random.default_rng(run.seed)
    centres = rng.normal(size=(12, 8)) + 2 * (run.method == "happier") * rng.normal(size=(2, 8))[LABELS[::5, 2]]
    vectors = (centres[LANDMARKS] + rng.normal(size=(60, 8))).astype(np.float32)
    folder = run.folder / "evaluation"
    folder.mkdir(parents=True)
    write_embeddings(folder / "embeddings.npy", torch.from_numpy(vectors), [f"i{n}" for n in range(60)])
    rows: list[dict[str, Any]] = [{"kind": "step", "step": 1, "loss": 1.0}]
    rows += [{"kind": "test", "step": n, "H-AP": h_ap} for n, h_ap in HISTORY[run.method][run.seed].items()]
    (run.folder / "history.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return EvaluatedRun(**vars(run), result=evaluate_retrieval(vectors, LABELS))


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    levels = {"landmark": LABELS[:, 0], "group_of": LABELS[:, 1], "root": LABELS[:, 2]}
    names = {level: [f"{level}{code}" for code in codes] for level, codes in levels.items()}
    ids = [f"i{n}" for n in range(60)]
    write_manifest(tmp_path / "manifest.parquet", manifest_of(ids, names, split=["test"] * 60), Provenance("test"))
    settings = read_benchmark(write_comparison(tmp_path, seeds=(0, 1)))
    settings = settings.model_copy(update={"pictures": PictureSettings(baseline="roadmap", method="happier")})
    methods = [
        MethodResults(name, name.upper(), None, name == "roadmap", tuple(map(evaluated, runs)))
        for name, runs in table_runs(settings, tmp_path).items()
    ]
    return settings, methods


class Drawn:
    """Record the panels to be drawn by file name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.panels: dict[str, Sequence[Any]] = {}
        for name in ("draw_panels", "draw_scores", "draw_class_means"):
            monkeypatch.setattr(comparison_figures, name, self._keep)

    def _keep(self, path: Path, panels: Sequence[Any], *args: object, **options: object) -> None:
        self.panels[path.name] = panels


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    return Drawn(monkeypatch)


def test_all_figures_are_drawn(comparison: Comparison, tmp_path: Path) -> None:
    paths = draw_comparison(*comparison, tmp_path / "figures")
    assert [path.name for path in paths] == ["learning.png", "scores.png", "precision_recall.png", "class_means.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_figures_show_the_results(comparison: Comparison, drawn: Drawn, tmp_path: Path) -> None:
    settings, methods = comparison
    results = {method.title: method.runs[0].result for method in methods}
    draw_comparison(settings, methods, tmp_path)

    (learning,) = drawn.panels["learning.png"]  # of no other metric there are evaluations
    (line,) = learning.lines  # ROADMAP has one evaluation only
    assert (learning.title, line.title) == ("H-AP in %", "HAPPIER")
    assert line.x.tolist() == [0, 4, 8]
    np.testing.assert_allclose(line.y, np.array([[50, 60, 70], [50, 80, np.nan]]))

    curves: Sequence[Panel] = drawn.panels["precision_recall.png"]
    titles = ["same landmark", "same group of", "same root", "hierarchical"]
    assert [panel.title for panel in curves] == [*titles, "", "", "", ""]
    for upper, lower, metric in zip(curves[:4], curves[4:], ["AP_l3", "AP_l2", "AP_l1", "H-AP"], strict=True):
        (above,) = upper.lines
        of_baseline = 100 * results["ROADMAP"].means[metric]
        assert above.title == "ROADMAP"
        assert above.y.mean() == pytest.approx(of_baseline, abs=0.2)
        for below in lower.lines:
            difference = 100 * results[below.title].means[metric] - of_baseline
            assert below.y.mean() == pytest.approx(difference, abs=0.4)
        assert {line.title: line.style.dashed for line in lower.lines} == {"HAPPIER": False, "ROADMAP": True}

    scores: Sequence[ScoreDensities] = drawn.panels["scores.png"]
    assert {scored.title for scored in scores} == {"HAPPIER", "ROADMAP"}
    baseline, happier = drawn.panels["class_means.png"]
    assert isinstance(baseline, ClassMeans)
    assert baseline.title.startswith("ROADMAP\n")
    assert baseline.title.endswith("\namong the 5 nearest classes")
    assert happier.categories == [f"group_of{n // 3}" for n in sorted(range(12), key=lambda n: f"landmark{n}")]
    assert happier.roots == [f"root{n // 6}" for n in sorted(range(12), key=lambda n: f"landmark{n}")]
    *_, same_root = (int(text.split(" %")[0].split()[-1]) for text in happier.title.split(", "))
    assert same_root > 80  # by chance it is 5 in 11


def test_figures_of_missing_methods_are_omitted(comparison: Comparison, drawn: Drawn, tmp_path: Path) -> None:
    settings, methods = comparison
    assert draw_comparison(settings.model_copy(update={"pictures": None}), methods, tmp_path) == []
    (happier,) = (method for method in methods if method.name == "happier")
    alone = draw_comparison(settings, [happier], tmp_path)
    assert [path.name for path in alone] == ["learning.png", "scores.png"]
    assert settings.pictures is not None
    chosen = settings.pictures.model_copy(update={"curves": ("roadmap",)})
    only = draw_comparison(settings.model_copy(update={"pictures": chosen}), methods, tmp_path)
    assert [path.name for path in only] == ["scores.png", "precision_recall.png", "class_means.png"]


#: Colours of the methods of the sweeps below.
COLOURS = {"with": "#111111", "without": "#222222"}


def sweep(**changes: Any) -> SweepSettings:
    curves = {name: {"method": name} for name in ("with", "without")}
    settings = {"title": "Batches", "key": "batch_size", "label": "images", "values": [8, 16], "curves": curves}
    return SweepSettings.model_validate(settings | changes)


def point(
    comparison: Comparison, curve: str, value: float | str, *h_ap: float
) -> tuple[SweepPoint, tuple[EvaluatedRun, ...]]:
    """Return the runs of a curve at a value with the H-AP of the seeds 0, 1, ..."""
    runs = comparison[1][0].runs
    results = (RetrievalResult("made up", pd.DataFrame({"H-AP": [mean]}), ("H-AP",), {}, {}) for mean in h_ap)
    return SweepPoint(curve, value, runs), tuple(
        replace(run, result=result) for run, result in zip(runs, results, strict=False)
    )


def test_sweep_is_drawn_over_its_values(comparison: Comparison, drawn: Drawn, tmp_path: Path) -> None:
    points = [
        point(comparison, "with", 8, 0.6, 0.3),
        point(comparison, "with", 16, 0.5),  # of one seed yet
        point(comparison, "without", 8, 0.4, 0.4),
        point(comparison, "without", 16),
    ]
    assert draw_sweep(sweep(scale="log"), points, tmp_path / "a.png", COLOURS) == tmp_path / "a.png"
    (panel,) = drawn.panels["a.png"]
    assert (panel.title, panel.x_label, panel.scale) == ("H-AP in %", "images", "log")
    assert panel.ticks == {8: "8", 16: "16"}
    more, less = panel.lines
    assert [line.style.colour for line in panel.lines] == list(COLOURS.values())
    np.testing.assert_allclose(more.y, np.array([[60, 50], [30, np.nan]]))
    np.testing.assert_allclose(less.y, [[40, np.nan], [40, np.nan]])

    draw_sweep(sweep(relative_to="without"), points, tmp_path / "b.png", COLOURS)
    (panel,) = drawn.panels["b.png"]
    assert panel.title == "H-AP: difference from without in %"
    more, base = panel.lines
    assert more.x.tolist() == [8]
    np.testing.assert_allclose(more.y, [[50], [-25]])
    np.testing.assert_allclose(base.y, [[0], [0]])

    assert draw_sweep(sweep(), [point(comparison, "with", 8)], tmp_path / "c.png", COLOURS) is None


@pytest.mark.parametrize(
    ("values", "scale"), [(["query_mean", "violating"], "linear"), ([0, 0.1], "log"), (["8", 16], "log")]
)
def test_values_without_a_position_on_the_axis_are_spaced_equally(
    comparison: Comparison, drawn: Drawn, tmp_path: Path, values: list[float | str], scale: str
) -> None:
    points = [point(comparison, "with", value, 0.5) for value in values]
    draw_sweep(sweep(values=values, scale=scale), points, tmp_path / "a.png", COLOURS)
    (panel,) = drawn.panels["a.png"]
    assert panel.scale == "linear"
    assert panel.lines[0].x.tolist() == [0, 1]
    assert list(panel.ticks.values()) == [str(value) for value in sweep(values=values).values]


def test_a_method_has_one_colour_in_all_figures() -> None:
    curves = {"a": {"method": "roadmap"}, "b": {"method": "happier"}, "c": {"method": "roadmap"}}
    swept = sweep(curves=curves)
    colours = [method_colours(read_benchmark(name)) for name in ("washington", "grocery", "own_images")]
    for name in ("untrained", "smooth_ap", "csl", "happier", "roadmap"):
        assert len({of_methods[name] for of_methods in colours}) == 1
    drawn = ("untrained", "smooth_ap", "csl", "sup_ap", "roadmap_pairs", "happier")
    assert len({colours[0][name] for name in drawn}) == len(drawn)

    of_curves = curve_colours(swept, colours[0])
    assert (of_curves["a"], of_curves["b"]) == (colours[0]["roadmap"], colours[0]["happier"])
    assert of_curves["c"] not in (of_curves["a"], of_curves["b"])


def test_methods_that_are_drawn_differ_in_colour_where_there_are_enough() -> None:
    names = [f"method {n}" for n in range(30)]
    settings = read_benchmark("washington")
    method = settings.methods["happier"]
    pictures = PictureSettings(baseline=names[0], method=names[20], curves=(names[0], names[20], names[25]))
    changed = settings.model_copy(
        update={"methods": dict.fromkeys(names, method), "pictures": pictures, "sweeps": {}}
    )
    of_methods = method_colours(changed)
    assert of_methods.keys() == set(names)
    assert len({of_methods[name] for name in pictures.curves}) == 3
