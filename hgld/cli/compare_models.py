"""Comparisons of models: compare-models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgld.cli.base import FigureFormat, Force, app, option, out_folder
from hgld.cli.options import options_of
from hgld.cli.render import lines, wrapped_table

if TYPE_CHECKING:
    from hgld.benchmark.model_comparison_settings import ModelComparisonConfig
    from hgld.benchmark.model_reports import ModelResults
    from hgld.evaluation.settings import RerankSettings


@app.command(rich_help_panel="Retrieval")
@options_of(
    "hgld.benchmark.model_comparison_settings:ModelComparisonConfig",
    deferred=True,
    treatments="--treatment",
    metrics="--metric",
)
@options_of("hgld.evaluation.settings:RerankSettings", "reranking")
def compare_models(
    *,
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]MODEL[?OPTION=VALUE&...]",
            help="Model as for hgld embed-images, or a file of embeddings. Options: pretrained, size, resize, fit, "
            "interpolation; and seen=yes|no, whether it was trained on images of the evaluated classes.",
        ),
    ],
    manifest: Annotated[Path, option("Table from hgld manifest.")],
    images: Annotated[
        Path | None,
        option(
            "Folder that the paths in the manifest start from.", metavar="FOLDER", default="the folder of --manifest"
        ),
    ] = None,
    out: Annotated[Path, out_folder("Folder of embeddings and results.")],
    config: Callable[..., ModelComparisonConfig],
    reranking: RerankSettings,
    formats: FigureFormat = None,
    force: Force = False,
) -> None:
    """Compare models on the same images: a table with intervals, differences and ranks, figures, and a page.

    Every model embeds the images once; an interrupted comparison is resumed. A model that fails is reported, and the
    others are compared.

    Example: hgld compare-models efficientnet-lite0 efficientnet-lite1 --manifest manifest.parquet -o models/
    """
    from hgld.benchmark import model_comparison
    from hgld.benchmark.model_comparison_settings import parse_model
    from hgld.progress import TerminalProgress

    entries = [parse_model(text) for text in models]
    with TerminalProgress("compare-models", "images") as progress:
        outcome, files = model_comparison.compare_models(
            entries, manifest, out, config(reranking=reranking), root=images, force=force, progress=progress
        )
    typer.echo(lines(format_model_results(outcome), [str(file) for file in files]))


def format_model_results(outcome: ModelResults, *, width: int = 80) -> str:
    """Return the means of all models, their ranks by the main metric, and the models that failed."""
    from hgld.evaluation.results import shown_value

    main, metrics = outcome.main_metric, outcome.metrics
    rows = []
    for name in outcome.names:
        of_main = outcome.rows[main, name]
        cells = {metric: f"{shown_value(metric, outcome.rows[metric, name].mean):.2f}" for metric in metrics}
        rows.append((name, {f"rank by {main}": f"{of_main.best_rank} to {of_main.worst_rank}", **cells}))
    failures = [f"failed: {each.name}: {each.failure}" for each in outcome.facts if each.failure]
    return lines(wrapped_table("mean in %", [f"rank by {main}", *metrics], rows, width=width), failures)
