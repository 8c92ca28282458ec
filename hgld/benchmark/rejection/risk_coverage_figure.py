"""The figure of a comparison: how many accepted answers are wrong, over how many are accepted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hgld.benchmark.rejection.comparison_settings import RejectionSettings
from hgld.benchmark.rejection.score_parts import ScorePart
from hgld.figures.rejection import RiskCoverageCurve, draw_risk_coverage
from hgld.rejection.risk_coverage import risk_coverage

_COMPARED = ("known", "near", "far")


def draw_risks(settings: RejectionSettings, parts: Sequence[ScorePart], embedding: str, path: Path) -> None:
    """Draw risk over coverage of all scores on one kind of embeddings, for the queries of the first split.

    Args:
        settings: Settings of the comparison.
        parts: Scores of all splits.
        embedding: Name of the embeddings.
        path: Picture to write.
    """
    curves = []
    for part in parts:
        if part.embedding == embedding and part.split == settings.splits[0]:
            table = part.queries[part.queries["kind"].isin(_COMPARED)]
            right = table["right"].to_numpy(bool) & (table["kind"] == "known").to_numpy()
            curve = risk_coverage(table["score"].to_numpy(np.float64), right)
            title = settings.score_settings()[part.score].title or part.score
            curves.append(RiskCoverageCurve(title, curve.coverage, curve.risk, len(table), curve.area))
    if curves:
        title = f"{settings.embeddings[embedding].title}, split {settings.splits[0]}: known, near and far queries"
        draw_risk_coverage(path, curves, title=title)
