"""Comparisons of models: compare-models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgld.cli.base import FigureFormat, Force, app, friendly_errors, writable_folder
from hgld.cli.options import options_of
from hgld.cli.render import lines, wrapped_table

if TYPE_CHECKING:
    from hgld.benchmark.compared_models import ModelComparisonConfig
    from hgld.benchmark.model_reports import ModelResults


@app.command("compare-models", rich_help_panel="Retrieval")
@options_of("hgld.benchmark.compared_models:ModelComparisonConfig", treatments="--treatment", metrics="--metric")
def compare_models_command(
    *,
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]MODEL[?OPTION=VALUE&...]",
            help="Model as for hgld embed-images, or a file of embeddings. Options: pretrained, size, resize, fit, "
            "interpolation; and seen=yes|no, whether it was trained on images of the evaluated classes.",
        ),
    ],
    manifest: Annotated[Path, typer.Option(help="Table from hgld manifest.")],
    images: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder that the paths in the manifest start from.",
            show_default="the folder of --manifest",
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="FOLDER", callback=writable_folder, help="Folder of embeddings and results."
        ),
    ],
    config: ModelComparisonConfig,
    formats: FigureFormat = None,
    force: Force = False,
) -> None:
    """Compare models on the same images: a table with intervals, differences and ranks, figures, and a page.

    Every model embeds the images once; an interrupted comparison is resumed. A model that fails is reported, and the
    others are compared.

    Example: hgld compare-models efficientnet-lite0 efficientnet-lite1 --manifest manifest.parquet -o models/
    """
    with friendly_errors():
        from hgld.benchmark.compared_models import parse_model
        from hgld.benchmark.model_comparison import compare_models
        from hgld.progress import TerminalProgress

        entries = [parse_model(text) for text in models]
        with TerminalProgress("compare-models", "images") as progress:
            outcome, files = compare_models(
                entries, manifest, out, config, root=images, force=force, progress=progress
            )
        typer.echo(lines(format_model_results(outcome), [str(file) for file in files]))


def format_model_results(outcome: ModelResults, *, width: int = 80) -> str:
    """Return the means of all models, their ranks by the main metric, and the models that failed."""
    from hgld.benchmark.model_reports import main_metric, table_rows
    from hgld.evaluation.results import shown_value

    table, main = outcome.table, main_metric(list(outcome.results.values()))
    metrics = list(dict.fromkeys(table["metric"]))
    by_model = table_rows(table)
    order = table[table["metric"] == main].sort_values("rank", kind="stable")["name"].tolist()
    rows = []
    for name in order:
        of_main = by_model[main, name]
        cells = {metric: f"{shown_value(metric, by_model[metric, name].mean):.2f}" for metric in metrics}
        rows.append((name, {f"rank by {main}": f"{of_main.best_rank} to {of_main.worst_rank}", **cells}))
    failures = [f"failed: {each.name}: {each.failure}" for each in outcome.facts if each.failure]
    return lines(wrapped_table("mean in %", [f"rank by {main}", *metrics], rows, width=width), failures)
