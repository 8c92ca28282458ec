"""``hgld taxonomy``: bring trees from elsewhere, propose one for labels that have none, check and export them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgld.cli.base import App, ClassesBeside, app, option, out_file
from hgld.cli.options import options_of
from hgld.cli.render import aligned, lines, listed
from hgld.errors import counted

if TYPE_CHECKING:
    from hgld.labels.propose import ProposeConfig
    from hgld.labels.taxonomy_checks import TaxonomyReport
    from hgld.taxonomy.imports import ImportConfig

taxonomy = App(no_args_is_help=True, rich_markup_mode="markdown")


@taxonomy.callback()
def about() -> None:
    """Make a taxonomy of a published tree or of labels, check it, and export it.

    Example: hgld taxonomy import tree.csv -o taxonomy.csv
    """


app.add_typer(taxonomy, name="taxonomy", rich_help_panel="Labels")

TaxonomyFile = Annotated[
    Path, typer.Argument(metavar="TAXONOMY", help="CSV file of groups and the levels above them.")
]


def parse_names(text: str) -> tuple[str, ...]:
    """Return the names in a text, which are separated by commas.

    >>> parse_names("leaf, shelf")
    ('leaf', 'shelf')
    """
    return tuple(name.strip() for name in text.split(","))


@taxonomy.command("import")
@options_of("hgld.taxonomy.imports:ImportConfig", levels={"parser": parse_names, "metavar": "NAME,..."})
def import_(
    *,
    file: Annotated[
        Path,
        typer.Argument(
            help="Tree: a CSV file with the column path (A > B > C) or a column for each level; SKOS (.ttl, .rdf, "
            ".jsonld); or a table of classes from hgld scrape."
        ),
    ],
    out: Annotated[Path, out_file("Taxonomy to write.", ".csv")],
    config: ImportConfig,
) -> None:
    """Make a taxonomy of a tree, whose leaves become the groups.

    A leaf that is less deep than others repeats its name at the finer levels. A name that occurs below several
    parents is followed by that of the parent in parentheses.

    Example: hgld taxonomy import tree.csv -o taxonomy.csv
    """
    from hgld.taxonomy.imports import import_taxonomy

    typer.echo(f"names of each level: {listed(import_taxonomy(file, out, config).names)}\n{out}")


@taxonomy.command()
def export(
    taxonomy: TaxonomyFile,
    to: Annotated[
        str, option("Form: skos (Turtle), csv (paths), or sssom (mappings of groups to Wikidata).", metavar="FORM")
    ],
    out: Annotated[Path, out_file("File to write.")],
    namespace: Annotated[
        str, option("Beginning of the addresses of groups in SKOS and SSSOM.")
    ] = "http://example.org/taxonomy/",
) -> None:
    """Write a taxonomy as SKOS, as paths, or as mappings to Wikidata.

    Example: hgld taxonomy export taxonomy.csv --to skos -o taxonomy.ttl
    """
    from hgld.taxonomy.exports import export_taxonomy

    typer.echo(f"{counted(export_taxonomy(taxonomy, out, to, namespace), 'group')}\n{out}")


@taxonomy.command()
def check(
    taxonomy: TaxonomyFile,
    classes: Annotated[
        list[Path] | None,
        option(
            "Table of classes from hgld scrape, to find classes below two groups; may be repeated.", metavar="FILE"
        ),
    ] = None,
    clusters: Annotated[Path | None, option("Clusters from hgld suggest, to find groups without labels.")] = None,
    decisions: Annotated[
        list[Path] | None,
        option("CSV file of decisions, to find groups without labels; may be repeated.", metavar="FILE"),
    ] = None,
) -> None:
    """List what is wrong with a taxonomy: cycles, doubled and empty groups, missing guidelines, ambiguous classes.

    The exit code is 1 for cycles and doubled names.

    Example: hgld taxonomy check taxonomy.csv --classes scraped.classes.parquet
    """
    from hgld.labels.taxonomy_checks import check_taxonomy

    report = check_taxonomy(taxonomy, classes=classes or (), clusters=clusters, decisions=decisions or ())
    typer.echo(format_report(report))
    if any(finding.is_error for finding in report.findings):
        raise typer.Exit(1)


def format_report(report: TaxonomyReport) -> str:
    """Return a table of the findings, and their number."""
    rows = [["error" if each.is_error else "warning", each.problem, each.what] for each in report.findings]
    errors = sum(finding.is_error for finding in report.findings)
    return lines(
        aligned(["", "problem", "groups"], rows) if rows else None,
        f"{counted(report.n_groups, 'group')}: {counted(errors, 'error')}, {counted(len(rows) - errors, 'warning')}",
    )


@taxonomy.command()
@options_of("hgld.labels.propose:ProposeConfig")
def propose(
    *,
    clusters: Annotated[Path, typer.Argument(help="Clusters from hgld cluster.")],
    out: Annotated[Path, out_file("Draft to write.", ".csv")],
    config: ProposeConfig,
    embeddings: Annotated[
        Path | None, option("Label embeddings.", default="label_embeddings.parquet beside CLUSTERS, if it exists")
    ] = None,
    classes: ClassesBeside = None,
) -> None:
    """Draft a taxonomy of labels from their superclasses on Wikidata and from what their names mean.

    The guideline of each group says what it was made of, with its most typical labels. Rename, merge and divide the
    groups before they are used.

    Example: hgld taxonomy propose clusters.parquet -o draft.csv --groups 60 --roots 8
    """
    from hgld.labels.propose import propose_taxonomy

    summary = propose_taxonomy(clusters, out, config, embeddings=embeddings, classes=classes)
    sizes = f"{counted(summary.labels, 'label')} in {counted(summary.groups, 'group')}"
    typer.echo(f"{sizes} ({summary.by_class:,} after classes) below {counted(summary.roots, 'root')}\n{out}")
