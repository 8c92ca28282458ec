"""From scraped values to labels for review: labels, clean, embed, cluster, suggest; and ``hgld taxonomy``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgld.cli.base import (
    App,
    ClassesBeside,
    FigureFormat,
    ImageLandmarks,
    Images,
    Taxonomy,
    app,
    out_file,
    parse_names,
    print_figure,
    run_stage,
    writable_file,
)
from hgld.cli.options_from_source import options_of
from hgld.cli.render import aligned, lines, listed
from hgld.errors import ConfigurationError, counted, indented_list
from hgld.progress import TerminalProgress

if TYPE_CHECKING:
    from hgld.figures.label_map import SweepPoint
    from hgld.labels.clean import CleanSummary, SplitSummary
    from hgld.labels.clusters import ClusterRow
    from hgld.labels.embed import EmbedSummary
    from hgld.labels.plain_labels import PlainSummary
    from hgld.labels.spellings import Variant
    from hgld.labels.suggest import SuggestSummary
    from hgld.labels.taxonomy_check import TaxonomyReport


_MOST_LABELS = 10


@app.command(rich_help_panel="Labels")
@options_of(
    "hgld.labels.plain_labels:label_file",
    "label_file",
    source={"kind": typer.Argument, "metavar": "LIST"},
    out=out_file(".parquet"),
    label="COLUMN",
    id="COLUMN",
    split_column="COLUMN",
    count="COLUMN",
    item="COLUMN",
    keep="LABEL,LABEL",
    variants="FILE",
)
def labels(*, label_file: partial[PlainSummary | None]) -> None:
    """Take labels from a list of one's own, without a scrape, and unify their spellings.

    Labels that differ in case, spaces, hyphens, Unicode forms or as English plurals become one. Those that differ by
    accents, punctuation or a typing mistake are only proposed, in OUT.variants.csv: write yes into its column merged,
    and give the file as --variants. A no keeps labels apart, as --keep does.

    Example: hgld labels products.csv --label label --count count -o clean.parquet
    """
    run_stage(label_file, _format_labels)


def _format_labels(summary: PlainSummary) -> str:
    width = max(len(f"{count:,}") for _, count in summary.labels)
    merged = [row for row in summary.variants if row.merged]
    proposed = [row for row in summary.variants if not row.merged]
    return lines(
        f"{summary.rows:,} rows for {summary.things:,} things: {summary.spellings:,} spellings of "
        f"{len(summary.labels):,} labels; most frequent:",
        [f"  {count:>{width},}  {label}" for label, count in summary.labels[:_MOST_LABELS]],
        _format_variants(f"{len(merged):,} variants of these", merged),
        _format_variants(f"{len(proposed):,} that may be variants, and are labels of their own", proposed),
    )


def _format_variants(title: str, variants: Sequence[Variant]) -> str:
    if not variants:
        return title
    rows = [f"{row.variant} → {row.label} ({row.why})" for row in variants]
    return f"{title}:\n{indented_list(rows, limit=_MOST_LABELS)}"


@app.command(rich_help_panel="Labels")
@options_of(
    "hgld.labels.clean:clean_file",
    "clean_file",
    out=out_file(".parquet"),
    removed={"callback": writable_file(".parquet")},
)
def clean(*, clean_file: partial[CleanSummary | None]) -> None:
    """Keep one relevant label per landmark.

    Example: hgld clean scraped_train.parquet scraped_index.parquet -o clean.parquet
    """
    run_stage(clean_file, format_clean)


@app.command(rich_help_panel="Labels")
@options_of(
    "hgld.labels.embed:embed_file",
    "embed_file",
    out=out_file(".parquet"),
    encoder="NAME",
    templates="--template",
    progress=None,
    load=None,
)
def embed(*, embed_file: partial[EmbedSummary | None]) -> None:
    """Encode each unique label with a text encoder.

    Example: hgld embed clean.parquet -o label_embeddings.parquet --encoder minilm
    """
    with TerminalProgress("embed", "labels") as progress:
        run_stage(embed_file, format_embed, progress=progress)


def parse_sweep(text: str) -> range:
    """Return the numbers of clusters in ``4:40``, both ends included.

    Raises:
        ConfigurationError: The text is no such range, or begins below 2 (the silhouette needs two clusters).

    >>> parse_sweep("4:6")
    range(4, 7)
    """
    match = re.fullmatch(r"([0-9]{1,6}):([0-9]{1,6})", text)
    first, last = map(int, match.groups()) if match else (0, 0)
    if not 2 <= first <= last:
        raise ConfigurationError(f'`sweep` is "{text}"; expected first:last such as 4:40, from 2 on')
    return range(first, last + 1)


@app.command(rich_help_panel="Labels")
@options_of(
    "hgld.labels.clusters:cluster_file",
    "cluster_file",
    out=out_file(".parquet"),
    n_clusters="-k",
    n_subclusters="--subclusters",
    photographs=None,
)
def cluster(
    *,
    cluster_file: partial[Sequence[ClusterRow] | None],
    sweep: Annotated[range | None, typer.Option(parser=parse_sweep, metavar="FIRST:LAST")] = None,
    images: Images = None,
    image_landmarks: ImageLandmarks = None,
    clean: Path | None = None,
    formats: FigureFormat = None,
) -> None:
    """Group labels into clusters and sub-clusters, and draw them.

    With --images, the .html file holds up to three small photographs of a label, 5 MB together.

    Example: hgld cluster label_embeddings.parquet -o clusters.parquet

    Args:
        sweep: Only print and plot (.sweep.png) inertia and silhouette for each k in this range.
        clean: Clean table with the label of each landmark; for --images. Default: clean.parquet beside EMBEDDINGS.
    """
    from hgld.labels.clusters import sweep_file

    given = cluster_file.keywords
    embeddings: Path = given["embeddings"]
    if sweep is not None:
        picture, seed = given["out"].with_suffix(".sweep.png"), given["config"].seed
        with TerminalProgress("sweep", "k") as progress:
            typer.echo(format_sweep(sweep_file(embeddings, picture, sweep, seed, progress=progress)))
        print_figure(picture)
        return
    photographs = None
    if images is not None or image_landmarks:
        from hgld.review.photographs import open_photographs

        clean = clean or embeddings.with_name("clean.parquet")
        photographs = open_photographs(images, clean, image_landmarks or ())
    run_stage(cluster_file, format_clusters, photographs=photographs)


@app.command(rich_help_panel="Labels")
@options_of(
    "hgld.labels.suggest:suggest_file",
    "suggest_file",
    out=out_file(".parquet"),
    vocabulary="FILE",
    decisions="FILE",
    answers={"name": "--from", "metavar": "FILE"},
    progress=None,
    load=None,
)
def suggest(
    *,
    suggest_file: partial[SuggestSummary | None],
    taxonomy: Taxonomy = None,
    classes: ClassesBeside = None,
    no_vocabulary: bool = False,
) -> None:
    """Suggest groups for every label, with a score and the reason.

    Suggestions are based on the names and guidelines of the groups, a vocabulary, the superclasses of a label (P279),
    and decisions on other labels. They are shown to annotators and never used as decisions.

    Example: hgld suggest clusters.parquet -o clusters.parquet --decisions annotations/decisions/final.csv

    Args:
        no_vocabulary: Use no vocabulary.
    """
    vocabulary: Sequence[Path] | None = suggest_file.keywords.get("vocabulary")
    if no_vocabulary and vocabulary:
        raise ConfigurationError("--no-vocabulary excludes --vocabulary; omit one of the two")
    if no_vocabulary:
        vocabulary = ()
    with TerminalProgress("suggest", "texts") as progress:
        run_stage(suggest_file, format_suggestions, vocabulary=vocabulary, progress=progress)


def format_clean(summary: CleanSummary) -> str:
    """Return the landmarks removed and kept by split, and the most frequent labels."""
    splits = [_format_split(split) for split in summary.splits]
    return "\n".join([*splits, f"unique labels in total: {summary.unique_labels:,}"])


def _format_split(summary: SplitSummary) -> str:
    def share(count: int) -> str:
        return f"{count:,} ({count / summary.landmarks:.2%})"

    return lines(
        f"{summary.split}: {summary.landmarks:,} landmarks, {share(summary.labelled)} with a scraped label",
        [f"  removed, {reason}: {share(count)}" for reason, count in summary.removed.items()],
        f"  kept: {share(summary.kept)}, with {summary.unique_labels:,} unique labels; most frequent:",
        [f"  {count:>9,}  {label}" for label, count in summary.most_frequent],
    )


def format_embed(summary: EmbedSummary) -> str:
    """Return the numbers of labels and of texts encoded."""
    return (
        f"{summary.labels:,} labels embedded in {summary.dimension} dimensions with {summary.encoder}; "
        f"{summary.encoded:,} texts encoded in this run"
    )


def format_clusters(clusters: Sequence[ClusterRow]) -> str:
    """Return a table of the clusters."""
    labels = sum(row.labels for row in clusters)
    subclusters = sum(row.subclusters for row in clusters)
    columns = ["cluster", "sub-clusters", "labels", "landmarks", "name"]
    rows = [[row.cluster, row.subclusters, row.labels, row.landmarks, row.name] for row in clusters]
    return lines(
        f"{labels:,} labels in {len(clusters)} clusters and {subclusters} sub-clusters", aligned(columns, rows)
    )


def format_sweep(points: Sequence[SweepPoint]) -> str:
    """Return a table of inertia and silhouette by number of clusters."""
    rows = [[point.n_clusters, f"{point.inertia:.3f}", point.silhouette] for point in points]
    return lines(aligned(["k", "inertia", "silhouette"], rows))


def format_suggestions(summary: SuggestSummary) -> str:
    """Return the numbers of labels and landmarks, and of those with a likely group."""
    from hgld.labels.suggest import LIKELY_SCORE

    return (
        f"suggestions for {summary.labels:,} labels of {summary.landmarks:,} landmarks, "
        f"using {summary.decisions:,} decisions\n"
        f"score {LIKELY_SCORE} or more: {summary.likely_labels:,} labels of {summary.likely_landmarks:,} landmarks"
        + "".join(f"\n{path}: answers on {n:,} labels, for hgld agreement" for path, n in summary.answers.items())
    )


taxonomy = App(no_args_is_help=True, rich_markup_mode="markdown")


@taxonomy.callback()
def about() -> None:
    """Make a taxonomy of a published tree, check it, and export it.

    Example: hgld taxonomy import tree.csv -o taxonomy.csv
    """


app.add_typer(taxonomy, name="taxonomy", rich_help_panel="Labels")


@taxonomy.command("import")
@options_of(
    "hgld.taxonomy.trees:import_taxonomy",
    "import_taxonomy",
    source={"kind": typer.Argument, "metavar": "FILE"},
    out=out_file(".csv"),
    levels={"parser": parse_names, "metavar": "NAME,..."},
)
def import_(*, import_taxonomy: partial[dict[str, int]]) -> None:
    """Make a taxonomy of a tree, whose leaves become the groups.

    A leaf that is less deep than others repeats its name at the finer levels. A name that occurs below several
    parents is followed by that of the parent in parentheses.

    Example: hgld taxonomy import tree.csv -o taxonomy.csv
    """
    run_stage(import_taxonomy, lambda names: f"names of each level: {listed(names)}")


@taxonomy.command()
@options_of("hgld.taxonomy.trees:export_taxonomy", "export_taxonomy", out=out_file(".csv"))
def export(*, export_taxonomy: partial[int]) -> None:
    """Write a taxonomy as a table of paths, such as Food > Bread > Rye.

    Example: hgld taxonomy export taxonomy.csv -o tree.csv
    """
    run_stage(export_taxonomy, lambda n_groups: counted(n_groups, "group"))


@taxonomy.command()
@options_of("hgld.labels.taxonomy_check:check_taxonomy", "check_taxonomy", classes="FILE", decisions="FILE")
def check(*, check_taxonomy: Callable[[], TaxonomyReport]) -> None:
    """List what is wrong with a taxonomy: cycles, doubled and empty groups, missing guidelines, ambiguous classes.

    The exit code is 1 for cycles and doubled names.

    Example: hgld taxonomy check taxonomy.csv --classes scraped.classes.parquet
    """
    report = check_taxonomy()
    typer.echo(_format_report(report))
    if any(finding.is_error for finding in report.findings):
        raise typer.Exit(1)


def _format_report(report: TaxonomyReport) -> str:
    rows = [["error" if each.is_error else "warning", each.problem, each.what] for each in report.findings]
    errors = sum(finding.is_error for finding in report.findings)
    return lines(
        aligned(["", "problem", "groups"], rows) if rows else None,
        f"{counted(report.n_groups, 'group')}: {counted(errors, 'error')}, {counted(len(rows) - errors, 'warning')}",
    )
