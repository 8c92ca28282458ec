"""Settings and counts in sentences."""

from __future__ import annotations

from hgld.evaluation.reports import setting_notes
from tests.evaluation.sample_results import result


def test_every_relevant_setting_has_a_sentence() -> None:
    notes = setting_notes(
        [result(means={"H-AP": 0.5, "NDCG": 0.5}, settings={"ties": "optimistic", "seen_from": "above"})]
    )
    assert notes == [
        "H-AP: relevance (l/L)^1 / |Omega^(l)|.",
        "NDCG: gain 2^l - 1.",
        "Ties: optimistic; among items with equal scores, the higher level ranks first.",
        "Score precision: float32.",
        "Scores: cosine similarity.",
        "Query counted in |Omega^(L)|: H-AP_selfcount only.",
        "Seen from: above.",
    ]


def test_settings_without_effect_on_the_metrics_are_omitted() -> None:
    notes = " ".join(setting_notes([result(means={"mAP@100": 0.5})]))
    assert "relevance" not in notes
    assert "gain" not in notes
    assert "Omega" not in notes
    assert "Ties" in notes


def test_sentences_true_of_some_results_name_them() -> None:
    parts = [result("a"), result("b"), result("c", settings={"normalize": False}, counts={"ignored_queries": 1129})]
    notes = setting_notes(parts)
    assert "a, b: Scores: cosine similarity." in notes
    assert "c: Scores: inner product, embeddings not normalised." in notes
    assert "c: Ignored queries: 1,129." in notes
    assert "Score precision: float32." in notes
