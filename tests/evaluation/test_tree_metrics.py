"""Metrics on trees of ranked levels, against the numbers of an independent implementation."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.evaluation.helpers import metric_values

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
