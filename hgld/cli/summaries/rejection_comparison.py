"""Format the output of ``hgld reject compare``."""

from __future__ import annotations

from hgld.benchmark.rejection import RejectionPlan, RejectionSummary
from hgld.benchmark.rejection.settings import ALL_UNKNOWN
from hgld.cli.render import aligned
from hgld.errors import indented_list


def format_rejection(summary: RejectionSummary) -> str:
    """Return the means of GAP and AUROC of each score, what failed, and the files written."""
    lines = []
    values, scores = summary.values, summary.settings.score_settings()
    unknown = values.unknown()
    columns = [(unknown[-1], "gap"), *((name, "auroc") for name in unknown if name != ALL_UNKNOWN)]
    for name, embedding in summary.settings.embeddings.items():
        rows = []
        for score in scores:
            means = [values.mean((name, score, *column)) for column in columns]
            if all(mean is None for mean in means):
                continue
            cells = ["–" if mean is None else f"{100 * mean['value']:.1f}" for mean in means]
            rows.append([summary.settings.score_title(score), *cells])
        header = [f"{embedding.title}, %", *(f"{metric.upper()} {name}" for name, metric in columns)]
        lines += [*aligned(header, rows), ""]
    lines.append(f"{summary.n_parts:,} scores, {summary.n_parts - summary.n_new - len(summary.failed):,} done before")
    if summary.failed:
        reasons = list(map(str, summary.failed))
        lines.append(f"{len(summary.failed):,} not computed:\n{indented_list(reasons)}")
    return "\n".join([*lines, *map(str, summary.files)])


def format_plan(plan: RejectionPlan) -> str:
    """Return the sets of images of each split, what is to do, and the files that are missing."""
    names = list(next(iter(plan.sizes.values())))
    rows = [[str(split), *(f"{sizes[name]:,}" for name in names)] for split, sizes in plan.sizes.items()]
    lines = [
        plan.title,
        "",
        *aligned(["split", *names], rows),
        "",
        f"{plan.n_parts:,} scores ({len(plan.scores)} of {plan.n_embeddings} embeddings on {len(plan.sizes)} "
        f"splits), {plan.n_finished:,} of them done",
        f"up to {plan.n_pairs:,} comparisons of a query and an image of the index",
    ]
    if plan.missing:
        lines += ["", "Missing files:", indented_list(plan.missing)]
    return "\n".join(lines)
