"""``hgld audit``: what is wrong with a data set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgld.cli.base import App, app, flag, option, out_file, relative_to, writable_file, writable_folder
from hgld.cli.options import options_of
from hgld.cli.render import aligned, lines
from hgld.errors import ConfigurationError, counted
from hgld.progress import TerminalProgress

if TYPE_CHECKING:
    from hgld.audit import Duplicates, DuplicatesConfig, LabelErrorsConfig

audit = App(no_args_is_help=True, rich_markup_mode="markdown")


@audit.callback()
def about() -> None:
    """Find what is wrong with a data set.

    Example: hgld audit duplicates manifest.parquet -o duplicates.csv
    """


app.add_typer(audit, name="audit", rich_help_panel="Retrieval")


@audit.command()
@options_of("hgld.audit.duplicates:DuplicatesConfig")
def duplicates(
    *,
    manifest: Annotated[Path, typer.Argument(help="Manifest of the images.")],
    out: Annotated[
        Path,
        out_file("Table to write, for hgld manifest leave-out: .csv or .parquet.", ".csv", ".parquet"),
    ],
    root: Annotated[Path | None, relative_to("MANIFEST")] = None,
    embeddings: Annotated[
        Path | None,
        option("Embeddings of the images, of any model; crops are hardly found without.", default="thumbnails"),
    ] = None,
    index: Annotated[
        Path | None,
        option("Index of these from hgld export-embeddings, for millions of images.", default="exact search"),
    ] = None,
    config: DuplicatesConfig,
    page: Annotated[
        Path | None, option("HTML page to write, with the copies side by side.", callback=writable_file(".html"))
    ] = None,
    recall: Annotated[
        bool, flag("--recall", "Measure how many altered copies of 100 images would be found, by the recorded model.")
    ] = False,
) -> None:
    """Find images that are copies of one another: the same, re-encoded, resized, cropped, mirrored or recoloured.

    All images but one of each group of copies are marked to be left out. Those of the training go first, so that
    nothing of the test remains in it. Edit the table where you decide otherwise.

    Example: hgld audit duplicates manifest.parquet --embeddings embeddings.npy -o duplicates.csv --page copies.html
    """
    from hgld.audit import find_duplicates, measure_recall
    from hgld.audit.pages import write_duplicates_page
    from hgld.datasets.manifest import read_manifest
    from hgld.search.faiss_index import open_index
    from hgld.search.gallery import read_gallery
    from hgld.search.query_model import load_query_model
    from hgld.tables import Provenance, input_digests
    from hgld.tables.embeddings import read_embeddings, rows_of
    from hgld.tables.provenance import write_results

    if embeddings is None and index is not None:
        raise ConfigurationError("`index` is that of `embeddings`, which are not given")
    images, folder = read_manifest(manifest, root), root or manifest.parent
    vectors, neighbours, embed = None, None, None
    if embeddings is not None:
        embedded = read_embeddings(embeddings)
        rows = rows_of(embedded, images.ids.tolist(), "images of the manifest")
        if index is not None and rows.tolist() != list(range(len(embedded))):
            raise ConfigurationError(
                f"{embeddings}: not the images of {manifest} in their order, as `index` requires"
            )
        vectors = embedded.vectors if index is not None else embedded.vectors[rows]
        neighbours = None if index is None else open_index(index, read_gallery(embeddings))
        if recall:
            embed = load_query_model(embeddings, embedded.dim).embed
    with TerminalProgress("audit", "images") as progress:
        found = find_duplicates(images, folder, vectors, config, index=neighbours, progress=progress)
    typer.echo(format_duplicates(found))
    if recall:
        typer.echo(format_recall(measure_recall(found, folder, vectors, embed, config)))
    made_of = Provenance("audit duplicates", vars(config), input_digests(manifest=manifest, embeddings=embeddings))
    write_results(out, found.to_arrow(), "duplicates/1", made_of)
    typer.echo(out)
    if page is not None:
        write_duplicates_page(found, page, folder)
        typer.echo(page)


@audit.command()
@options_of("hgld.audit.label_errors:LabelErrorsConfig")
def labels(
    *,
    manifest: Annotated[Path, typer.Argument(help="Manifest of the images.")],
    embeddings: Annotated[Path, option("Embeddings of the images, of a model that has not learnt these labels.")],
    out: Annotated[Path, out_file("Table to write: .csv or .parquet.", ".csv", ".parquet")],
    root: Annotated[Path | None, relative_to("MANIFEST")] = None,
    config: LabelErrorsConfig,
    page: Annotated[
        Path | None, option("HTML page to write, with photographs.", callback=writable_file(".html"))
    ] = None,
    queue: Annotated[
        Path | None,
        option(
            "Folder to write, for hgld review: landmarks and labels to decide on again; needs --hierarchy.",
            callback=writable_folder,
        ),
    ] = None,
    hierarchy: Annotated[
        Path | None, option("Hierarchy of the manifest, with the tables it was built from beside it.")
    ] = None,
) -> None:
    """Find labels that the nearest images contradict: of single images, and of all images of a class.

    They are ranked, the most contradicted first. What looks wrong need not be wrong; a person decides.

    Example: hgld audit labels manifest.parquet --embeddings embeddings.npy -o labels.csv --page labels.html
    """
    from hgld.audit import find_label_errors, label_errors_table
    from hgld.audit.pages import write_label_errors_page
    from hgld.audit.review_queue import write_review_queue
    from hgld.datasets.manifest import read_manifest
    from hgld.tables import Provenance, input_digests
    from hgld.tables.embeddings import read_embeddings, rows_of
    from hgld.tables.provenance import write_results

    if (queue is None) != (hierarchy is None):
        raise ConfigurationError("`queue` and `hierarchy` go together; one of them is not given")
    images, embedded = read_manifest(manifest, root), read_embeddings(embeddings)
    vectors = embedded.vectors[rows_of(embedded, images.ids.tolist(), "images of the manifest")]
    found = find_label_errors(images, vectors, config)
    for errors in found:
        judged = f"{len(errors.rows):,} {'classes' if errors.level else 'images'}"
        typer.echo(f"{images.level_names[errors.level]}: {errors.n_contradicted:,} of {judged} contradicted")
    made_of = Provenance("audit labels", vars(config), input_digests(manifest=manifest, embeddings=embeddings))
    write_results(out, label_errors_table(images, found), "label_errors/1", made_of)
    typer.echo(out)
    if page is not None:
        write_label_errors_page(found, images, page, root or manifest.parent)
        typer.echo(page)
    if queue is not None and hierarchy is not None:
        n_labels, n_single = write_review_queue(found, images, vectors, hierarchy, queue, config)
        typer.echo(f"to decide again: {counted(n_labels, 'label')}, {counted(n_single, 'single landmark')}")
        typer.echo(queue)


def format_duplicates(found: Duplicates) -> str:
    """Format the numbers of groups and pairs of copies."""
    from hgld.io.columns import preview

    n_images, n_left_out = int((found.groups >= 0).sum()), int(found.left_out.sum())
    return lines(
        f"{len(found.manifest):,} images, {n_images:,} of them in {counted(found.n_groups, 'group')} of copies",
        f"{counted(len(found.pairs), 'pair')}: {found.same_pixels.sum():,} of the same pixels, "
        f"{found.across_splits.sum():,} across splits, {found.across_labels.sum():,} across labels",
        f"to leave out: {counted(n_left_out, 'image')}",
        len(found.unreadable) > 0
        and f"{counted(len(found.unreadable), 'image')} could not be read: {preview([*found.unreadable])}",
    )


def format_recall(shares: Mapping[str, float]) -> str:
    """Format the share of altered copies that would be found."""
    rows = [[name, f"{100 * share:.0f}%"] for name, share in shares.items()]
    return "\n".join(aligned(["altered copies", "found"], rows))
