"""The figure of a comparison: how well each score tells known from near and from far queries."""

from __future__ import annotations

from pathlib import Path

from hgld.benchmark.rejection.comparison_settings import ALL_UNKNOWN, RejectionSettings
from hgld.benchmark.rejection.rejection_values import RejectionValues
from hgld.figures.rejection import Estimate, MetricPanel, draw_detection
from hgld.rejection.detection_metrics import DETECTION_METRICS

_PANELS = (("gap", False), ("auroc", False), ("fpr95_known", True))
_NO_VALUE = float("nan")


def draw_near_far(settings: RejectionSettings, values: RejectionValues, embedding: str, path: Path) -> None:
    """Draw GAP, AUROC and FPR95 of all scores on one kind of embeddings, apart for each set of unknown queries.

    Args:
        settings: Settings of the comparison.
        values: Its values.
        embedding: Name of the embeddings.
        path: Picture to write.
    """
    scores = settings.score_settings()
    computed = [score for score in scores if _estimate(values, embedding, score, "gap") is not None]
    if not computed:
        return
    unknown = list(dict.fromkeys(values.values["unknown"]))
    panels = []
    for metric, lower_is_better in _PANELS:
        names = unknown if metric == "gap" else [name for name in unknown if name != ALL_UNKNOWN]
        series = {
            name: [_estimate(values, embedding, score, metric, name) or Estimate(_NO_VALUE) for score in computed]
            for name in names
        }
        panels.append(MetricPanel(DETECTION_METRICS.get(metric, metric.upper()), series, lower_is_better))
    draw_detection(path, [scores[score].title or score for score in computed], panels)


def _estimate(
    values: RejectionValues, embedding: str, score: str, metric: str, unknown: str | None = None
) -> Estimate | None:
    row = values.mean((embedding, score, unknown or str(values.values["unknown"].iloc[0]), metric))
    return None if row is None else Estimate(float(row["value"]), (float(row["low"]), float(row["high"])))
