"""Settings and counts in sentences."""

from __future__ import annotations

from hgld.evaluation.setting_notes import setting_notes
from tests.evaluation.sample_results import result


def test_every_relevant_setting_has_a_sentence() -> None:
    said = setting_notes(
        [result(means={"H-AP": 0.5, "NDCG": 0.5}, settings={"ties": "optimistic", "seen_from": "above"})]
    )
    assert said == [
        "H-AP: relevance (l/L)^1 / |Omega^(l)|.",
        "NDCG: gain 2^l - 1.",
        "Ties: optimistic, of equal scores the item of higher level stands first.",
        "Precision of scores: float32.",
        "Scores: cosine similarity.",
        "Query counted in |Omega^(L)|: H-AP_selfcount only.",
        "Seen from: above.",
    ]


def test_settings_without_effect_on_the_metrics_are_omitted() -> None:
    said = " ".join(setting_notes([result(means={"mAP@100": 0.5})]))
    assert "relevance" not in said
    assert "gain" not in said
    assert "Omega" not in said
    assert "Ties" in said


def test_sentences_true_of_some_results_name_them() -> None:
    parts = [result("a"), result("b"), result("c", settings={"normalize": False}, counts={"ignored_queries": 1129})]
    said = setting_notes(parts)
    assert "a, b: Scores: cosine similarity." in said
    assert "c: Scores: inner product, embeddings not normalised." in said
    assert "c: Ignored queries: 1,129." in said
    assert "Precision of scores: float32." in said
