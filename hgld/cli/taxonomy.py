"""``hgld taxonomy``: bring trees from elsewhere, propose one for labels that have none, check and export them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgld.cli.base import App, ClassesBeside, app, out_file, parse_names
from hgld.cli.options import options_of
from hgld.cli.render import aligned, lines, listed
from hgld.errors import counted

if TYPE_CHECKING:
    from hgld.labels.propose import ProposalSummary, ProposeConfig
    from hgld.labels.taxonomy_checks import TaxonomyReport
    from hgld.taxonomy.trees import ImportConfig, ImportSummary

taxonomy = App(no_args_is_help=True, rich_markup_mode="markdown")


@taxonomy.callback()
def about() -> None:
    """Make a taxonomy of a published tree or of labels, check it, and export it.

    Example: hgld taxonomy import tree.csv -o taxonomy.csv
    """


app.add_typer(taxonomy, name="taxonomy", rich_help_panel="Labels")


@taxonomy.command("import")
@options_of(
    "hgld.taxonomy.trees:import_taxonomy",
    "import_taxonomy",
    source={"kind": typer.Argument, "metavar": "FILE"},
)
@options_of("hgld.taxonomy.trees:ImportConfig", levels={"parser": parse_names, "metavar": "NAME,..."})
def import_(
    *,
    import_taxonomy: Callable[..., ImportSummary],
    out: Annotated[Path, out_file("Taxonomy to write.", ".csv")],
    config: ImportConfig,
) -> None:
    """Make a taxonomy of a tree, whose leaves become the groups.

    A leaf that is less deep than others repeats its name at the finer levels. A name that occurs below several
    parents is followed by that of the parent in parentheses.

    Example: hgld taxonomy import tree.csv -o taxonomy.csv
    """
    typer.echo(f"names of each level: {listed(import_taxonomy(config=config).names)}\n{out}")


@taxonomy.command()
@options_of(
    "hgld.taxonomy.trees:export_taxonomy",
    "export_taxonomy",
    kind={"name": "--to", "metavar": "FORM"},
)
def export(*, export_taxonomy: Callable[[], int], out: Annotated[Path, out_file("File to write.")]) -> None:
    """Write a taxonomy as SKOS, as paths, or as mappings to Wikidata.

    Example: hgld taxonomy export taxonomy.csv --to skos -o taxonomy.ttl
    """
    typer.echo(f"{counted(export_taxonomy(), 'group')}\n{out}")


@taxonomy.command()
@options_of(
    "hgld.labels.taxonomy_checks:check_taxonomy",
    "check_taxonomy",
    classes={"metavar": "FILE"},
    decisions={"metavar": "FILE"},
)
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


@taxonomy.command()
@options_of("hgld.labels.propose:propose_taxonomy", "propose_taxonomy")
@options_of("hgld.labels.propose:ProposeConfig")
def propose(
    *,
    out: Annotated[Path, out_file("Draft to write.", ".csv")],
    config: ProposeConfig,
    propose_taxonomy: Callable[..., ProposalSummary],
    classes: ClassesBeside = None,
) -> None:
    """Draft a taxonomy of labels from their superclasses on Wikidata and from what their names mean.

    The guideline of each group says what it was made of, with its most typical labels. Rename, merge and divide the
    groups before they are used.

    Example: hgld taxonomy propose clusters.parquet -o draft.csv --groups 60 --roots 8
    """
    summary = propose_taxonomy(config=config)
    sizes = f"{counted(summary.labels, 'label')} in {counted(summary.groups, 'group')}"
    typer.echo(f"{sizes} ({summary.by_class:,} after classes) below {counted(summary.roots, 'root')}\n{out}")
