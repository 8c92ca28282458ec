"""Search of settings: tune."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgld.cli.base import app, flag, option, out_folder
from hgld.cli.presets import Images, Manifest, complete_training, with_images
from hgld.cli.render import aligned, lines
from hgld.errors import counted
from hgld.progress import TerminalProgress

if TYPE_CHECKING:
    from hgld.tuning import SearchSummary


@app.command(rich_help_panel="Retrieval")
def tune(
    config: Annotated[
        str,
        typer.Argument(
            help="Preset (hgld presets lists all) or file of settings (YAML) of a training, or of a comparison.",
            autocompletion=complete_training,
        ),
    ],
    out: Annotated[Path, out_folder("Folder of the trials and of best.yaml.")],
    space: Annotated[
        list[str] | None,
        option(
            "Setting to search: numbers between two ends, loss.lambda=0..0.9; in their logarithm, "
            "optimiser.backbone.lr=log:1e-6..1e-3; or values, loss.name=happier,roadmap; repeatable.",
            metavar="KEY=VALUES",
            default="the space of each method of a comparison",
        ),
    ] = None,
    trials: Annotated[int, option("Number of trials of a method; the first has the settings as they are.")] = 20,
    overrides: Annotated[
        list[str] | None,
        option("Override a setting in all trials, e.g. epochs=2; repeatable.", "--set", metavar="KEY=VALUE"),
    ] = None,
    manifest: Manifest = None,
    images: Images = None,
    devices: Annotated[
        str | None,
        option(
            "Devices to train on side by side: cuda:0,cuda:1, or cpu,cpu for two trials that share the cores.",
            default="all GPUs, else cpu",
        ),
    ] = None,
    force: Annotated[bool, flag("--force", "Retrain trials whose settings or data changed.")] = False,
) -> None:
    """Search learning rates, weights of the loss or any other settings of a training, by random trials.

    Trials train with three quarters of the training classes, and are compared by H-AP (evaluation.best) on the
    others; the test images are not used. An interrupted search continues.

    Of a comparison, each method is searched with the same number of trials.

    Example: hgld tune happier --manifest grocery.parquet --space loss.lambda=0..0.9 -o runs/tune
    """
    from hgld.tuning import is_comparison, parse_dimension, tune, tune_methods

    with TerminalProgress("tune", "trials", interval_s=60) as progress:
        summary = (tune_methods if is_comparison(config) else tune)(
            config,
            out=out,
            space=[parse_dimension(each) for each in space or ()],
            overrides=with_images(overrides, manifest, images),
            trials=trials,
            devices=devices,
            force=force,
            progress=progress,
        )
    searches = summary if isinstance(summary, dict) else {"": summary}
    typer.echo("\n".join(f"{name}\n{format_search(each)}".strip() for name, each in searches.items()))


def format_search(summary: SearchSummary) -> str:
    """Return the trials, the best first, and the file of its settings."""
    from hgld.evaluation.results import shown_value

    metric, best = summary.metric, summary.trials[0]
    rows = [
        [
            each.name,
            "failed" if each.value != each.value else f"{shown_value(metric, each.value):.2f}",
            ", ".join(each.changes) or "unchanged",
        ]
        for each in summary.trials
    ]
    gain = shown_value(metric, best.value) - shown_value(metric, summary.unchanged.value)
    n_failed = sum(row[1] == "failed" for row in rows)
    return lines(
        aligned(["trial", metric, "settings"], rows),
        f"{metric} {gain:+.2f} from the unchanged settings to {best.name}, on held-out training classes",
        n_failed > 0 and f"{counted(n_failed, 'trial')} failed, see runs/TRIAL/seed*.log",
        str(summary.best),
    )
