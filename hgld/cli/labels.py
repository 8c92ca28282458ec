"""From scraped values to labels for review: labels, clean, embed, cluster, suggest; and ``hgld taxonomy``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgld.cli.application import FIRST_STEPS, App, app
from hgld.cli.options import field_options
from hgld.cli.output import (
    LANDMARKS,
    begin_project,
    figure_formats,
    print_figure,
    print_summary,
    remember,
)
from hgld.cli.render import aligned, listed
from hgld.cli.shared_options import (
    ClassesBeside,
    FigureFormat,
    Force,
    ImageLandmarks,
    Images,
    Taxonomy,
    out_file,
    parse_names,
    writable_file,
)
from hgld.errors import ConfigurationError, counted, indented_list
from hgld.figures.style import Nouns
from hgld.labels.settings import CleanConfig, ClusterConfig, EmbedConfig, PlainConfig
from hgld.progress import TerminalProgress
from hgld.taxonomy.settings import ImportConfig

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
_COLUMN = typer.Option(metavar="COLUMN")


@app.command(rich_help_panel=FIRST_STEPS)
@field_options(
    PlainConfig,
    label=_COLUMN,
    id=_COLUMN,
    split_column=_COLUMN,
    count=_COLUMN,
    item=_COLUMN,
    keep=typer.Option(metavar="LABEL,LABEL"),
)
def labels(
    *,
    source: Annotated[Path, typer.Argument(metavar="LIST")],
    out: Annotated[Path, out_file(".parquet")],
    config: PlainConfig,
    variants: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    entity: str | None = None,
    entities: str | None = None,
    force: Force = False,
) -> None:
    """Take labels from a list of your own, without a scrape, and unify their spellings.

    Labels that differ in case, spaces, hyphens, Unicode forms or as English plurals become one label. Labels that
    differ by accents, punctuation or a typing mistake are only proposed, in OUT.variants.csv: write yes into its
    column merged, and give the file as --variants. A no keeps labels apart, as --keep does.

    Example: hgld labels products.csv --label label --count count -o clean.parquet

    Args:
        source: CSV or Parquet file with a row per label.
        out: Clean table to write. X.variants.csv beside X.parquet lists the spellings that became another label
            (merged: yes), and the spellings that may be another label (merged: no), with the reason.
        variants: An edited copy of X.variants.csv: rows with yes are merged, and rows with no are kept apart.
        entity: Noun for an entry of the list, such as painting, which hgld.yaml keeps for further commands. Default:
            entity.
        entities: Plural of --entity. Default: the regular plural.
    """
    from hgld.labels.plain_labels import label_file
    from hgld.taxonomy.project import words_of_list

    words = words_of_list(out, entity, entities)
    is_new = not out.exists()
    summary = label_file(source, out, config, variants=variants, force=force)
    begin_project(out, words, is_new=is_new, counts=config.count is not None)
    print_summary(out, summary, partial(_format_labels, nouns=words, count_column=config.count))


def _format_labels(summary: PlainSummary, nouns: Nouns, count_column: str | None) -> str:
    """Return the numbers of rows and labels, the most frequent labels, and spelling variants."""
    from hgld.taxonomy.project import counted_words

    rows = counted(summary.rows, *nouns)
    if count_column is not None:
        things = counted(summary.things, *counted_words(nouns))
        rows += f" ({things} by the column {count_column})"
    n_labels = len(summary.labels)
    lines = [f"{rows}: {summary.spellings:,} spellings of {n_labels:,} labels; most frequent:"]
    width = max(len(f"{count:,}") for _, count in summary.labels)
    for label, count in summary.labels[:_MOST_LABELS]:
        lines.append(f"  {count:>{width},}  {label}")
    merged = [variant for variant in summary.variants if variant.merged]
    proposed = [variant for variant in summary.variants if not variant.merged]
    lines += _format_variants(f"{len(merged):,} variants of these", merged)
    lines += _format_variants(
        f"{len(proposed):,} that may be variants, and are labels of their own", proposed
    )
    return "\n".join(lines)


def _format_variants(title: str, variants: Sequence[Variant]) -> list[str]:
    if not variants:
        return [title]
    rows = [f"{variant.variant} → {variant.label} ({variant.why})" for variant in variants]
    return [f"{title}:", indented_list(rows, limit=_MOST_LABELS)]


@app.command(rich_help_panel="Labels")
def clean(
    *,
    scraped: list[Path],
    out: Annotated[Path, out_file(".parquet")],
    config: CleanConfig,
    removed: Annotated[Path | None, typer.Option(callback=writable_file(".parquet"))] = None,
    irrelevant: Path | None = None,
    classes: list[Path] | None = None,
    force: Force = False,
) -> None:
    """Keep one relevant label per landmark.

    Example: hgld clean scraped_train.parquet scraped_index.parquet -o clean.parquet

    Args:
        scraped: Scraped tables, such as one per split.
        out: Clean table to write.
        removed: Table of removed landmarks to write. Default: removed.parquet beside the output.
        irrelevant: CSV file (item,label,reason) of labels to exclude. Default: the file that hgld.yaml names, for
            GLDv2 annotations/irrelevant_labels.csv.
        classes: Tables of classes, for --keep-multiple most-specific. Default: X.classes.parquet beside X.parquet.
    """
    from hgld.labels.clean import clean_file
    from hgld.taxonomy.project import nouns_of

    summary = clean_file(
        scraped, out, config, removed=removed, irrelevant=irrelevant, classes=classes, force=force
    )
    nouns = nouns_of(scraped[0])
    print_summary(out, summary, partial(format_clean, nouns=nouns))


@app.command(rich_help_panel="Labels")
@field_options(EmbedConfig, encoder=typer.Option(metavar="NAME"), templates="--template")
def embed(
    *,
    clean: Path,
    out: Annotated[Path, out_file(".parquet")],
    config: EmbedConfig,
    force: bool = False,
) -> None:
    """Encode each unique label with a text encoder.

    Example: hgld embed clean.parquet -o label_embeddings.parquet --encoder minilm

    Args:
        clean: Clean table.
        out: Table of label embeddings to write, sorted by label_id.
        force: Encode all labels again.
    """
    from hgld.labels.embed import embed_file

    with TerminalProgress("embed", "labels") as progress:
        summary = embed_file(clean, out, config, force=force, progress=progress)
    print_summary(out, summary, format_embed)


def parse_sweep(text: str) -> range:
    """Return the numbers of clusters in ``4:40``, both ends included.

    Raises:
        ConfigurationError: The text is no such range, or begins below 2 (the silhouette needs two clusters).

    >>> parse_sweep("4:6")
    range(4, 7)
    """
    match = re.fullmatch(r"([0-9]{1,6}):([0-9]{1,6})", text)
    if match is not None:
        first = int(match[1])
        last = int(match[2])
        if 2 <= first <= last:
            return range(first, last + 1)
    raise ConfigurationError(f'`sweep` is "{text}"; expected first:last such as 4:40, from 2 on')


@app.command(rich_help_panel="Labels")
@field_options(ClusterConfig, n_clusters="-k", n_subclusters="--subclusters")
def cluster(
    *,
    embeddings: Path,
    out: Annotated[Path, out_file(".parquet")],
    config: ClusterConfig,
    force: Force = False,
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
        embeddings: Table of label embeddings.
        out: Table to write, sorted by cluster, sub-cluster and number of landmarks; a .png and a .html file are
            written beside it.
        sweep: Only print and plot (.sweep.png) inertia and silhouette for each k in this range.
        clean: Clean table with the label of each landmark; for --images. Default: clean.parquet beside EMBEDDINGS.
    """
    from hgld.labels.clusters import cluster_file, sweep_file
    from hgld.taxonomy.project import nouns_of

    if sweep is not None:
        picture = out.with_suffix(".sweep.png")
        with figure_formats(formats), TerminalProgress("sweep", "k") as progress:
            points = sweep_file(embeddings, picture, sweep, config.seed, progress=progress)
            typer.echo(format_sweep(points))
            print_figure(picture)
        return
    photographs = None
    if images is not None or image_landmarks:
        from hgld.review.photographs import open_photographs

        clean = clean or embeddings.with_name("clean.parquet")
        photographs = open_photographs(images, clean, image_landmarks or ())
    with figure_formats(formats):
        clusters = cluster_file(embeddings, out, config, photographs=photographs, force=force)
    nouns = nouns_of(embeddings)
    print_summary(out, clusters, partial(format_clusters, nouns=nouns))


@app.command(rich_help_panel="Labels")
def suggest(
    *,
    clusters: Path,
    out: Annotated[Path, out_file(".parquet")],
    embeddings: Path | None = None,
    vocabulary: Annotated[list[Path] | None, typer.Option(metavar="FILE")] = None,
    decisions: Annotated[list[Path] | None, typer.Option(metavar="FILE")] = None,
    answers: Annotated[Path | None, typer.Option("--from", metavar="FILE")] = None,
    force: Force = False,
    taxonomy: Taxonomy = None,
    classes: ClassesBeside = None,
    no_vocabulary: bool = False,
) -> None:
    """Suggest groups for every label, with a score and the reason.

    Suggestions are based on the names and guidelines of the groups, a vocabulary, the superclasses of a label (P279),
    and decisions on other labels. They are shown to annotators and never used as decisions.

    Example: hgld suggest clusters.parquet -o clusters.parquet --decisions annotations/decisions/final.csv

    Args:
        clusters: Clusters from hgld cluster; existing suggestions are replaced.
        out: Table to write, in the same order; may be CLUSTERS itself.
        embeddings: Label embeddings. Default: label_embeddings.parquet beside CLUSTERS.
        vocabulary: CSV file (term,group,items) of kinds of landmarks and their groups; may be repeated. Default:
            annotations/vocabulary.csv, if the taxonomy is H-GLDv2's.
        decisions: CSV file of decisions on other labels, as evidence; may be repeated, and the last decision counts.
        answers: CSV or Parquet table (label,group,score,model,prompt_hash) of answers of models, to suggest, too. The
            answers of each model are written to MODEL.machine.csv beside the output, for hgld agreement.
        no_vocabulary: Use no vocabulary.
    """
    from hgld.labels.suggest import suggest_file
    from hgld.taxonomy.project import nouns_of

    if no_vocabulary and vocabulary:
        raise ConfigurationError("--no-vocabulary excludes --vocabulary; omit one of the two")
    with TerminalProgress("suggest", "texts") as progress:
        summary = suggest_file(
            clusters,
            out,
            embeddings=embeddings,
            classes=classes,
            taxonomy=taxonomy,
            vocabulary=() if no_vocabulary else vocabulary,
            decisions=decisions or (),
            answers=answers,
            force=force,
            progress=progress,
        )
    remember(clusters, "taxonomy", taxonomy)
    nouns = nouns_of(clusters)
    print_summary(out, summary, partial(format_suggestions, nouns=nouns))


def format_clean(summary: CleanSummary, nouns: Nouns = LANDMARKS) -> str:
    """Return the landmarks removed and kept by split, and the most frequent labels."""
    lines = [_format_split(split, nouns) for split in summary.splits]
    lines.append(f"unique labels in total: {summary.unique_labels:,}")
    return "\n".join(lines)


def _format_split(summary: SplitSummary, nouns: Nouns) -> str:
    def share(count: int) -> str:
        return f"{count:,} ({count / summary.landmarks:.2%})"

    lines = [
        f"{summary.split}: {summary.landmarks:,} {nouns[1]}, {share(summary.labelled)} with a scraped label"
    ]
    for reason, count in summary.removed.items():
        lines.append(f"  removed, {reason}: {share(count)}")
    lines.append(
        f"  kept: {share(summary.kept)}, with {summary.unique_labels:,} unique labels; most frequent:"
    )
    for label, count in summary.most_frequent:
        lines.append(f"  {count:>9,}  {label}")
    return "\n".join(lines)


def format_embed(summary: EmbedSummary) -> str:
    """Return the numbers of labels and of texts encoded."""
    return (
        f"{summary.labels:,} labels embedded in {summary.dimension} dimensions with {summary.encoder}; "
        f"{summary.encoded:,} texts encoded in this run"
    )


def format_clusters(clusters: Sequence[ClusterRow], nouns: Nouns = LANDMARKS) -> str:
    """Return a table of the clusters."""
    n_labels = 0
    n_subclusters = 0
    rows = []
    for row in clusters:
        n_labels += row.labels
        n_subclusters += row.subclusters
        rows.append([row.cluster, row.subclusters, row.labels, row.landmarks, row.name])
    title = f"{n_labels:,} labels in {len(clusters)} clusters and {n_subclusters} sub-clusters"
    columns = ["cluster", "sub-clusters", "labels", nouns[1], "name"]
    return "\n".join([title, *aligned(columns, rows)])


def format_sweep(points: Sequence[SweepPoint]) -> str:
    """Return a table of inertia and silhouette by number of clusters."""
    rows = [[point.n_clusters, f"{point.inertia:.3f}", point.silhouette] for point in points]
    return "\n".join(aligned(["k", "inertia", "silhouette"], rows))


def format_suggestions(summary: SuggestSummary, nouns: Nouns = LANDMARKS) -> str:
    """Return the numbers of labels and landmarks, in all and with a likely group."""
    from hgld.labels.suggest import LIKELY_SCORE

    lines = [
        f"suggestions for {summary.labels:,} labels of {summary.landmarks:,} {nouns[1]}, "
        f"using {summary.decisions:,} decisions",
        f"score {LIKELY_SCORE} or more: {summary.likely_labels:,} labels of {summary.likely_landmarks:,} {nouns[1]}",
    ]
    for path, n_labels in summary.answers.items():
        lines.append(f"{path}: answers on {n_labels:,} labels, for hgld agreement")
    return "\n".join(lines)


taxonomy = App(no_args_is_help=True, rich_markup_mode="markdown")


@taxonomy.callback()
def about() -> None:
    """Make a taxonomy of a published tree, check it, and export it.

    Example: hgld taxonomy import tree.csv -o taxonomy.csv
    """


app.add_typer(taxonomy, name="taxonomy", rich_help_panel="Labels")


@taxonomy.command("import")
@field_options(ImportConfig, levels=typer.Option(parser=parse_names, metavar="NAME,..."))
def import_(
    *,
    source: Annotated[Path, typer.Argument(metavar="FILE")],
    out: Annotated[Path, out_file(".csv")],
    config: ImportConfig,
) -> None:
    r"""Make a taxonomy of a tree, whose leaves become the groups.

    A leaf that is less deep than other leaves repeats its name at the finer levels. A name that occurs below several
    parents is followed by the name of the parent in parentheses.

    Example: hgld taxonomy import tree.csv -o taxonomy.csv

    Args:
        source: Tree: a CSV file with the column path (A > B > C), and possibly items and guideline, or a column for
            each level; or a table of classes from hgld scrape. In a path, a > that is a word of a name is written \>.
        out: Taxonomy to write.
    """
    from hgld.taxonomy.trees import import_taxonomy

    names = import_taxonomy(source, out, config)
    remember(out, "taxonomy", out)
    typer.echo(f"names of each level: {listed(names)}\n{out}")


@taxonomy.command()
def export(*, taxonomy: Path, out: Annotated[Path, out_file(".csv")]) -> None:
    """Write a taxonomy as a table of paths, such as Food > Bread > Rye.

    Example: hgld taxonomy export taxonomy.csv -o tree.csv

    Args:
        taxonomy: CSV file of groups and the levels above them.
        out: CSV file to write, with the columns path, items and guideline.
    """
    from hgld.taxonomy.trees import export_taxonomy

    n_groups = export_taxonomy(taxonomy, out)
    typer.echo(f"{counted(n_groups, 'group')}\n{out}")


@taxonomy.command()
def check(
    *,
    taxonomy: Path,
    classes: Annotated[list[Path] | None, typer.Option(metavar="FILE")] = None,
    clusters: Path | None = None,
    decisions: Annotated[list[Path] | None, typer.Option(metavar="FILE")] = None,
) -> None:
    """List problems of a taxonomy: cycles, doubled and empty groups, missing guidelines, ambiguous classes.

    The exit code is 1 for cycles and doubled names.

    Example: hgld taxonomy check taxonomy.csv --classes scraped.classes.parquet

    Args:
        taxonomy: CSV file of groups and the levels above them.
        classes: Table of classes from hgld scrape, to find classes below two groups; may be repeated.
        clusters: Clusters from hgld suggest, to find groups without labels.
        decisions: CSV file of decisions, to find groups without labels; may be repeated.
    """
    from hgld.labels.taxonomy_check import check_taxonomy

    report = check_taxonomy(
        taxonomy, classes=classes or (), clusters=clusters, decisions=decisions or ()
    )
    typer.echo(_format_report(report))
    if any(finding.is_error for finding in report.findings):
        raise typer.Exit(1)


def _format_report(report: TaxonomyReport) -> str:
    n_errors = 0
    rows = []
    for finding in report.findings:
        severity = "warning"
        if finding.is_error:
            severity = "error"
            n_errors += 1
        rows.append([severity, finding.problem, finding.what])
    lines = []
    if rows:
        lines = aligned(["", "problem", "groups"], rows)
    errors = counted(n_errors, "error")
    warnings = counted(len(rows) - n_errors, "warning")
    lines.append(f"{counted(report.n_groups, 'group')}: {errors}, {warnings}")
    return "\n".join(lines)
