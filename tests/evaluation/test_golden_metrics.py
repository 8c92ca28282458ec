"""The numbers of independent implementations, through `evaluate_retrieval` itself."""

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch

from hgld.compute.scoring import Precision
from hgld.evaluation import evaluate_retrieval
from hgld.evaluation.ranking import Ties
from hgld.evaluation.relevance import weighted_ap_relevance
from hgld.hierarchy.label_matrix import lowest_common_level
from tests.evaluation.helpers import metric_values

CASES = ["loo_L1_N200", "loo_L3_N600", "edge_no_positive_L3_N60"]
TOLERANCES: list[tuple[Precision, float]] = [("float64", 1e-9), ("float32", 1e-5)]
Arrays = dict[str, npt.NDArray[Any]]


@pytest.fixture(scope="module")
def golden(shared: Path) -> Arrays:
    with np.load(shared / "golden" / "metrics.npz") as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def legend(shared: Path) -> dict[str, Any]:
    return dict(json.loads((shared / "golden" / "metrics.json").read_text("utf-8")))


def names(key: str) -> tuple[str, dict[str, Any]]:
    """Our name of a golden array, and the options it needs."""
    if match := re.fullmatch(r"(AP|mAPatR|mAPat100|T?R\d+)_l(\d)", key):
        head = re.sub(r"R(\d)", r"R@\1", match[1].replace("Pat", "P@"))
        return f"{head}_l{match[2]}", {}
    if match := re.fullmatch(r"HAP_a(\d)(_selfcount)?", key):
        return f"H-AP{match[2] or ''}", {"relevance_alpha": float(match[1])}
    if key.startswith("HAP_wAP_"):
        return "H-AP", {"weights": key.removeprefix("HAP_wAP_")}
    return key, {}


def evaluated(golden: Arrays, case: str, keys: list[str], precision: Precision) -> pd.DataFrame:
    """Our values under the golden names: one evaluation per set of options."""
    embeddings, labels = golden[f"{case}/q"], golden[f"{case}/q_labels"]
    n_levels = labels.shape[1]
    columns: dict[str, pd.Series[float]] = {}
    metric_of_key = {key: names(key) for key in keys}
    for options in [dict(some) for some in {tuple(options.items()) for _, options in metric_of_key.values()}]:
        names_by_key = {key: name for key, (name, own) in metric_of_key.items() if own == options}
        if kind := options.pop("weights", None):
            weights = np.ones(n_levels) if kind == "uniform" else np.arange(1.0, n_levels + 1)
            options["relevance"] = partial(weighted_ap_relevance, weights=list(weights / weights.sum()))
        k = len(labels) - 1
        metrics = [name for name in names_by_key.values() if "@100" not in name or k >= 100]
        result = evaluate_retrieval(embeddings, labels, metrics=metrics, precision=precision, **options)
        columns |= {key: result.per_query[name] for key, name in names_by_key.items() if name in metrics}
    table: pd.DataFrame = pd.DataFrame(columns)
    return table


def arrays_of(golden: Arrays, case: str, source: str) -> list[str]:
    keys = [key.removeprefix(f"{case}/{source}/") for key in golden if key.startswith(f"{case}/{source}/")]
    assert len(keys) >= 13
    return keys


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("precision", "tolerance"), TOLERANCES)
def test_metrics_agree_with_the_papers_equations(
    golden: Arrays, case: str, precision: Precision, tolerance: float
) -> None:
    keys = arrays_of(golden, case, "paper")
    values = evaluated(golden, case, keys, precision)
    n_items = len(golden[f"{case}/q"])
    assert set(keys) - set(values) == ({key for key in keys if "100" in key} if n_items < 100 else set())
    for key in map(str, values):
        expected = golden[f"{case}/paper/{key}"].copy()
        if match := re.fullmatch(r"R\d+_l(\d)", key):  # a query without positives has no recall here, rather than 0
            expected[np.isnan(golden[f"{case}/paper/AP_l{match[1]}"])] = np.nan
        np.testing.assert_allclose(values[key], expected, rtol=0, atol=tolerance, equal_nan=True, err_msg=key)


@pytest.mark.parametrize("case", CASES)
def test_wap_agrees_with_property_1(golden: Arrays, case: str) -> None:
    embeddings, labels = golden[f"{case}/q"], golden[f"{case}/q_labels"]
    keys = [key for key in arrays_of(golden, case, "paper") if key.startswith("HAP_wAP_")]
    assert keys
    for key in keys:
        weights = None if key.endswith("uniform") else range(1, labels.shape[1] + 1)
        result = evaluate_retrieval(embeddings, labels, metrics=["wAP"], level_weights=weights, precision="float64")
        expected = golden[f"{case}/paper/{key}"]
        np.testing.assert_allclose(result.per_query["wAP"], expected, rtol=0, atol=1e-9, equal_nan=True)


def test_statistics_at_cutoffs_beyond_the_gallery(golden: Arrays) -> None:
    """From the golden order of 59 items: mAP@100, R@100 and TR@100, of which the evaluation above takes none."""
    case = "edge_no_positive_L3_N60"
    labels, order = golden[f"{case}/q_labels"], golden[f"{case}/order"]
    ranked = np.take_along_axis(lowest_common_level(labels, labels), order.astype(np.int64), axis=1)
    keys = [key for key in arrays_of(golden, case, "paper") if "100" in key]
    assert len(keys) == 9
    levels = torch.from_numpy(ranked.astype(np.uint8))
    values = metric_values(levels, 3, [names(key)[0] for key in keys], cutoffs=[100])
    for key in keys:
        actual = values[names(key)[0]]
        known = ~np.isnan(actual)
        assert known.sum() == (~np.isnan(golden[f"{case}/paper/AP_l{key[-1]}"])).sum()
        np.testing.assert_allclose(actual[known], golden[f"{case}/paper/{key}"][known], rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_metrics_agree_with_the_authors_code(golden: Arrays, legend: dict[str, Any], case: str) -> None:
    """Not without positives, nor where it counts items twice, since two levels have one relevance."""
    twice = legend["cases"][case]["queries_with_equal_level_relevances"] or {}
    keys = arrays_of(golden, case, "official")
    values = evaluated(golden, case, keys, "float32")
    for key in values:
        known = values[key].notna()
        more = golden[f"{case}/official/{key}"][known] - values[key][known]
        n_off = twice[key]["official_off_by_more_than_1e-5"] if key in twice else 0
        assert (more > 1e-5).sum() == n_off, key
        assert (more.abs() < 1e-5).sum() == len(more) - n_off, key


def test_a_query_without_positives_is_nan_and_counted(golden: Arrays) -> None:
    case = CASES[2]
    result = evaluate_retrieval(golden[f"{case}/q"], golden[f"{case}/q_labels"])
    without = np.isnan(golden[f"{case}/paper/AP_l1"])
    assert result.counts["without_positives_l1"] == without.sum() == 1
    assert (result.per_query["positives_l1"] == 0).tolist() == without.tolist()
    assert result.per_query.loc[without, list(result.metrics)].isna().all(axis=None)
    assert result.means["AP_l1"] == pytest.approx(np.nanmean(golden[f"{case}/paper/AP_l1"]), abs=1e-9)


#: By level, the labels of an item that has this level for a query with the labels [0, 0, 0].
LABELS = np.array([[3, 2, 1], [2, 1, 0], [1, 0, 0], [0, 0, 0]])


def mean(levels: list[int], scores: npt.ArrayLike, metric: str, **options: Any) -> float:
    """A metric of one query, whose gallery has these levels and scores."""
    gallery, labels = np.array(scores, float)[:, None], LABELS[levels]
    settings = {"metrics": [metric], "distance": "dot", **options}
    return evaluate_retrieval(np.ones((1, 1)), LABELS[3:], gallery, labels, **settings).means[metric]


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize(
    ("ties", "variant"),
    [("pessimistic", "sorted, worst item of a tie first"), ("optimistic", "sorted, best item of a tie first")],
)
def test_ties(legend: dict[str, Any], ties: Ties, variant: str, precision: Precision) -> None:
    example = legend["ties_example"]
    for key, expected in example[variant].items():
        if key != "rank":
            name, options = names(key)
            actual = mean(example["levels"], example["scores"], name, ties=ties, precision=precision, **options)
            assert actual == pytest.approx(expected, abs=1e-12), key


def test_the_rankings_of_figure_14(legend: dict[str, Any]) -> None:
    for example in legend["lada_worked_example"]["rankings_matching_AP_0.45_HAP_0.78_vs_0.67"]:
        for place in ("top", "bottom"):
            levels = example[place]
            scores = np.arange(len(levels), 0, -1.0)
            assert mean(levels, scores, "AP") == pytest.approx(example["AP"], abs=1e-12)
            actual = mean(levels, scores, "H-AP", relevance=[0, 1 / 3, 2 / 3, 1])
            assert actual == pytest.approx(example[f"H-AP_{place}"], abs=1e-12)


#: Trees whose classes have one depth: a level is the similarity of heights times L.
NAMES = ("balanced_3_levels", "flat")
#: Names of metrics by those of the independent implementation.
HEADS = {"AHP": "AHP{}_trapezoid", "AHP_mean": "AHP{}", "HP": "HP{}"}


@pytest.fixture(scope="module")
def cases(shared: Path) -> dict[str, dict[str, Any]]:
    read = json.loads((shared / "golden_beyond" / "hierarchy_metrics.json").read_text("utf-8"))["cases"]
    return {case["name"]: case for case in read}


@pytest.mark.parametrize("name", NAMES)
def test_hierarchical_precision(cases: dict[str, dict[str, Any]], name: str) -> None:
    case = cases[name]
    heights = np.array(case["matrices"]["lca_height"])
    code = {label: row for row, label in enumerate(case["matrices"]["order"])}
    labels = np.array([code[label] for label in case["item_label"]])
    apart = case["separate_gallery"]
    queries, gallery = (np.array([code[label] for label in apart[key]]) for key in ("query_label", "gallery_label"))
    order = np.array(case["ranking_with_query_first"])[:, 1:]
    n_compared = 0
    for ranked, per_query in (
        (heights[labels[:, None], labels[order]], case["hierarchical_precision"]["per_query"]),
        (heights[queries[:, None], gallery[np.array(apart["ranking"])]], apart["per_query"]),
    ):
        levels = torch.from_numpy((case["height"] - ranked).astype(np.uint8))
        known = (levels > 0).any(1).numpy()
        assert known.sum() > 4
        for key, expected in per_query.items():
            head, cutoff = key.partition(" ")[0].partition("@")[::2]
            if head not in HEADS or expected[0] is None:
                continue
            ours = HEADS[head].format("_WUP" if "WUP" in key else "") + (f"@{cutoff}" if cutoff else "")
            values = metric_values(levels, case["height"], [ours], cutoffs=[int(cutoff)] if cutoff else [])[ours]
            assert np.isnan(values[~known]).all()
            np.testing.assert_allclose(values[known], np.array(expected)[known], rtol=0, atol=1e-12, err_msg=key)
            n_compared += 1
    assert n_compared >= 20


@pytest.mark.parametrize("name", NAMES)
def test_severity_of_the_mistakes_of_a_classifier(cases: dict[str, dict[str, Any]], name: str) -> None:
    case = cases[name]
    expected, code = case["classification"], {label: row for row, label in enumerate(case["matrices"]["order"])}
    leaves = np.array([code[label] for label in case["leaves"]])
    order = np.argsort(-np.array(expected["class_scores"]), axis=1, kind="stable")
    heights = np.array(case["matrices"]["lca_height"])[leaves[expected["y"]][:, None], leaves[order]]
    levels = torch.from_numpy((case["height"] - heights).astype(np.uint8))
    at_k = [f"{metric}@{k}" for k in expected["ks"] for metric in ("avg_hdist", "min_hdist")]
    values = metric_values(levels, case["height"], ["mistake_severity", "hF", "WUP@1", *at_k], cutoffs=expected["ks"])
    assert np.nanmean(values["mistake_severity"]) == pytest.approx(expected["mistake_severity"], abs=1e-12)
    assert values["hF"].mean() == pytest.approx(expected["hF"]["leaf"]["without_root"]["hF_macro_mean_of_items"])
    assert values["WUP@1"].mean() == pytest.approx(expected["mean_wup_top1"], abs=1e-12)
    for metric in at_k:
        head, k = metric.split("@")
        assert values[metric].mean() == pytest.approx(expected[f"{head}@k"][k], abs=1e-12)
