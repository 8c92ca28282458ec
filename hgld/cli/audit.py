"""``hgld audit``: what is wrong with a data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from hgld.cli.base import App, app, flag, option, out_file, relative_to, writable_file, writable_folder
from hgld.cli.options import options_of
from hgld.cli.render import aligned, lines
from hgld.errors import ConfigurationError, counted
from hgld.progress import TerminalProgress

if TYPE_CHECKING:
    from hgld.audit import Duplicates, DuplicatesConfig, LabelErrorsConfig, LevelErrors
    from hgld.datasets.manifest import Manifest

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
    from hgld.search.faiss_index import open_index
    from hgld.search.gallery import read_gallery
    from hgld.search.query_model import load_query_model

    if embeddings is None and index is not None:
        raise ConfigurationError("`index` is that of `embeddings`, which are not given")
    images = AuditedImages.read(manifest, root, embeddings)
    neighbours, embed = None, None
    if embeddings is not None and index is not None:
        if images.reordered:
            raise ConfigurationError(
                f"{embeddings}: not the images of {manifest} in their order, as `index` requires"
            )
        neighbours = open_index(index, read_gallery(embeddings))
    if embeddings is not None and recall:
        embed = load_query_model(embeddings, images.vectors.shape[1]).embed
    with TerminalProgress("audit", "images") as progress:
        found = find_duplicates(
            images.manifest, images.root, images.vectors, config, index=neighbours, progress=progress
        )
    typer.echo(format_duplicates(found))
    if recall:
        typer.echo(format_recall(measure_recall(found, images.root, images.vectors, embed, config)))
    write_duplicates(images, found, config, out, page)


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
    from hgld.audit import find_label_errors

    if (queue is None) != (hierarchy is None):
        raise ConfigurationError("`queue` and `hierarchy` go together; one of them is not given")
    images = AuditedImages.read(manifest, root, embeddings)
    found = find_label_errors(images.manifest, images.vectors, config)
    typer.echo(format_label_errors(found, images.manifest.level_names))
    write_label_errors(images, found, config, out, page)
    if queue is not None and hierarchy is not None:
        typer.echo(write_queue(images, found, config, hierarchy, queue))
        typer.echo(queue)


class AuditedImages(NamedTuple):
    """Images to audit, with their embeddings."""

    manifest: Manifest
    root: Path
    #: Embeddings, float, shape (N, d); None without.
    vectors: Any
    #: Whether the embeddings were in another order than the manifest.
    reordered: bool
    #: SHA-256 of the files, by role.
    digests: dict[str, str]

    @classmethod
    def read(cls, manifest: Path, root: Path | None, embeddings: Path | None) -> AuditedImages:
        """Read a manifest and the embeddings of its images."""
        from hgld.datasets.manifest import read_manifest
        from hgld.io.remote import folder_of
        from hgld.tables import input_digests
        from hgld.tables.embeddings import read_embeddings, rows_of

        images, folder = read_manifest(manifest, root), root or folder_of(manifest)
        digests = input_digests(manifest=manifest, embeddings=embeddings)
        if embeddings is None:
            return cls(images, folder, None, False, digests)
        embedded = read_embeddings(embeddings)
        rows = rows_of(embedded, images.ids.tolist(), "images of the manifest")
        reordered = rows.tolist() != list(range(len(embedded)))
        return cls(images, folder, embedded.vectors[rows] if reordered else embedded.vectors, reordered, digests)


def write_duplicates(
    images: AuditedImages, found: Duplicates, config: DuplicatesConfig, out: Path, page: Path | None
) -> None:
    """Write the table and maybe the page of copies, and print their names."""
    from hgld.audit.pages import write_duplicates_page
    from hgld.tables import Provenance
    from hgld.tables.provenance import write_results

    made_of = Provenance("audit duplicates", vars(config), images.digests)
    write_results(out, found.to_arrow(), "duplicates/1", made_of)
    typer.echo(out)
    if page is not None:
        write_duplicates_page(found, page, images.root)
        typer.echo(page)


def write_label_errors(
    images: AuditedImages, found: list[LevelErrors], config: LabelErrorsConfig, out: Path, page: Path | None
) -> None:
    """Write the table and maybe the page of contradicted labels, and print their names."""
    from hgld.audit import label_errors_table
    from hgld.audit.pages import write_label_errors_page
    from hgld.tables import Provenance
    from hgld.tables.provenance import write_results

    made_of = Provenance("audit labels", vars(config), images.digests)
    write_results(out, label_errors_table(images.manifest, found), "label_errors/1", made_of)
    typer.echo(out)
    if page is not None:
        write_label_errors_page(found, images.manifest, page, images.root)
        typer.echo(page)


def write_queue(
    images: AuditedImages, found: list[LevelErrors], config: LabelErrorsConfig, hierarchy: Path, queue: Path
) -> str:
    """Write the queue of what to decide on again; return what is in it."""
    from hgld.audit.review_queue import write_review_queue

    n_labels, n_single = write_review_queue(found, images.manifest, images.vectors, hierarchy, queue, config)
    return f"to decide again: {counted(n_labels, 'label')}, {counted(n_single, 'single landmark')}"


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


def format_label_errors(found: Sequence[LevelErrors], level_names: Sequence[str]) -> str:
    """Format the number of contradicted labels of each level, and how many are wrong by estimate."""
    texts = []
    for errors in found:
        judged = f"{len(errors.rows):,} {'classes' if errors.level else 'images'}"
        rate, (low, high) = errors.error_rate()
        estimate = f"; estimate of wrong labels {100 * rate:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
        contradicted = f"{level_names[errors.level]}: {errors.n_contradicted:,} of {judged} contradicted"
        texts.append(contradicted if isnan(rate) else contradicted + estimate)
    return lines(*texts)


def format_recall(shares: Mapping[str, float]) -> str:
    """Format the share of altered copies that would be found."""
    rows = [[name, f"{100 * share:.0f}%"] for name, share in shares.items()]
    return "\n".join(aligned(["altered copies", "found"], rows))
