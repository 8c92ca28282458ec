"""``hgld audit``: copies of images in a data set, and labels that are probably wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from hgld.audit.settings import DuplicatesConfig, LabelErrorsConfig
from hgld.cli.application import App, app
from hgld.cli.render import aligned
from hgld.cli.shared_options import out_file, writable_file, writable_folder
from hgld.errors import ConfigurationError, InputError, counted
from hgld.io.writable import require_other_file
from hgld.progress import TerminalProgress

if TYPE_CHECKING:
    import pyarrow as pa

    from hgld.audit import DuplicateGroup, Duplicates, LevelErrors
    from hgld.datasets.manifest import Manifest

audit = App(no_args_is_help=True, rich_markup_mode="markdown")


@audit.callback()
def about() -> None:
    """Find copies and wrong labels in a data set.

    Example: hgld audit duplicates manifest.parquet -o copies.csv
    """


app.add_typer(audit, name="audit", rich_help_panel="Retrieval")


@audit.command()
def duplicates(
    *,
    manifest: Path,
    out: Annotated[Path, out_file(".csv", ".parquet")],
    images: Path | None = None,
    embeddings: Path | None = None,
    config: DuplicatesConfig,
    page: Annotated[Path | None, typer.Option(callback=writable_file(".html"))] = None,
    recall: bool = False,
) -> None:
    """Find copies of images, also altered ones, and near views, such as the frames of a burst.

    One image of each group of copies is kept, and the other images are marked to be left out. Images of the training
    are left out before images of the test, so that the training holds no copy of a test image. Near views are listed,
    too. Edit the table where you decide otherwise.

    Example: hgld audit duplicates manifest.parquet --embeddings embeddings.npy -o copies.csv --page copies.html

    Args:
        manifest: Manifest of the images.
        out: Table to write, for hgld manifest leave-out: .csv or .parquet.
        images: Folder that the paths in MANIFEST are relative to. Default: the folder of MANIFEST.
        embeddings: Embeddings of the images, of any model, for more candidates. Default: thumbnails only.
        page: HTML page to write, with the images of each group side by side.
        recall: Measure how many altered copies of 100 images would be found; with --embeddings, by
            the model that hgld embed-images recorded, too.
    """
    from hgld.audit import find_duplicates, measure_recall
    from hgld.search.query_model import load_query_model

    require_other_file(out, filter(None, [manifest, embeddings]))
    audited = _AuditedImages.read(manifest, images, embeddings)
    embed = None
    if embeddings is not None and recall:
        embed = load_query_model(embeddings, audited.vectors.shape[1]).embed
    with TerminalProgress("audit", "images") as progress:
        duplicates = find_duplicates(
            audited.manifest, audited.root, audited.vectors, config, progress=progress
        )
    typer.echo(_format_duplicates(duplicates))
    if recall:
        shares = measure_recall(audited.manifest, audited.root, audited.vectors, embed, config)
        typer.echo(_format_recall(shares))
    _write_duplicates(audited, duplicates, config, out, page)


@audit.command()
def labels(
    *,
    manifest: Path,
    embeddings: Annotated[Path, typer.Option()],
    out: Annotated[Path, out_file(".csv", ".parquet")],
    images: Path | None = None,
    split: str | None = None,
    config: LabelErrorsConfig,
    page: Annotated[Path | None, typer.Option(callback=writable_file(".html"))] = None,
    queue: Annotated[Path | None, typer.Option(callback=writable_folder)] = None,
    hierarchy: Path | None = None,
) -> None:
    """Find labels that the nearest images contradict: of single images, and of all images of a class.

    The most contradicted labels come first. A contradicted label may be right; a person decides.

    Example: hgld audit labels manifest.parquet --embeddings embeddings.npy -o labels.csv --page labels.html

    Args:
        manifest: Manifest of the images.
        embeddings: Embeddings of the images, of a model that has not learnt these labels.
        out: Table to write: .csv or .parquet.
        images: Folder that the paths in MANIFEST are relative to. Default: the folder of MANIFEST.
        split: Split whose labels are judged, by the votes of its own images. Default: all images.
        page: HTML page to write, with photographs.
        queue: Folder to write, for hgld review: landmarks and labels to decide on again; needs --hierarchy.
        hierarchy: Hierarchy of the manifest, with the tables it was built from beside it.
    """
    from hgld.audit import find_label_errors

    if (queue is None) != (hierarchy is None):
        raise ConfigurationError("`queue` and `hierarchy` go together; one of them is not given")
    require_other_file(out, [manifest, embeddings])
    audited = _AuditedImages.read(manifest, images, embeddings, split)
    label_errors = find_label_errors(audited.manifest, audited.vectors, config)
    typer.echo(_format_label_errors(label_errors, audited.manifest.level_names))
    parameters = vars(config) | {"split": split}
    _write_label_errors(audited, label_errors, parameters, out, page)
    if queue is not None and hierarchy is not None:
        contents = _write_queue(audited, label_errors, config, hierarchy, queue)
        typer.echo(f"{contents}\n{queue}")


class _AuditedImages(NamedTuple):
    """Images to audit, with their embeddings."""

    manifest: Manifest
    root: Path
    #: Embeddings, float, shape (N, d); None if no embeddings are given.
    vectors: Any
    #: SHA-256 of the files, by role.
    digests: dict[str, str]

    @classmethod
    def read(
        cls, manifest: Path, root: Path | None, embeddings: Path | None, split: str | None = None
    ) -> _AuditedImages:
        """Read the images of a manifest, or of one of its splits, and their embeddings."""
        import numpy as np

        from hgld.datasets.manifest import read_manifest
        from hgld.tables import input_digests
        from hgld.tables.embeddings import read_embeddings, require_finite, rows_of

        folder = root or manifest.parent
        images = read_manifest(manifest, root)
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder")
        if split is not None:
            images = images.take(images.rows_of(split, manifest))
        if embeddings is None:
            return cls(images, folder, None, input_digests(manifest=manifest))
        embedded = read_embeddings(embeddings)
        digests = input_digests(manifest=manifest, embeddings=embeddings)
        rows = rows_of(embedded, images.ids, "images of the manifest")
        require_finite(embedded)
        if np.array_equal(rows, np.arange(len(embedded))):  # the embeddings may stay in their file
            return cls(images, folder, embedded.vectors, digests)
        return cls(images, folder, embedded.vectors[rows], digests)


def _write_duplicates(
    images: _AuditedImages,
    duplicates: Duplicates,
    config: DuplicatesConfig,
    out: Path,
    page: Path | None,
) -> None:
    """Write the table and maybe the page of copies, and print their names."""
    from hgld.audit.pages import write_duplicates_page

    _write_table(
        out, duplicates.to_arrow(), "duplicates/2", "audit duplicates", images.digests, vars(config)
    )
    typer.echo(out)
    if page is not None:
        write_duplicates_page(duplicates, page, images.root)
        typer.echo(page)


def _write_label_errors(
    images: _AuditedImages,
    label_errors: list[LevelErrors],
    parameters: Mapping[str, Any],
    out: Path,
    page: Path | None,
) -> None:
    """Write the table and maybe the page of contradicted labels, and print their names."""
    from hgld.audit import label_errors_table
    from hgld.audit.pages import write_label_errors_page

    table = label_errors_table(images.manifest, label_errors)
    _write_table(out, table, "label_errors/1", "audit labels", images.digests, parameters)
    typer.echo(out)
    if page is not None:
        write_label_errors_page(images.manifest, label_errors, page, images.root)
        typer.echo(page)


def _write_queue(
    images: _AuditedImages,
    label_errors: list[LevelErrors],
    config: LabelErrorsConfig,
    hierarchy: Path,
    queue: Path,
) -> str:
    """Write the queue of labels and landmarks to decide on again; return its contents in words."""
    from hgld.audit.review_queue import write_review_queue

    n_labels, n_single = write_review_queue(
        images.manifest, label_errors, images.vectors, hierarchy, queue, config
    )
    return f"to decide again: {counted(n_labels, 'label')}, {counted(n_single, 'single landmark')}"


def _write_table(
    out: Path,
    table: pa.Table,
    kind: str,
    command: str,
    inputs: Mapping[str, str],
    parameters: Mapping[str, Any],
) -> None:
    from hgld.tables import Provenance
    from hgld.tables.parquet import write_results

    write_results(out, table, kind, Provenance(command, parameters, inputs))


def _format_duplicates(duplicates: Duplicates) -> str:
    from hgld.audit.settings import COPY, NEAR_VIEW
    from hgld.io.columns import preview

    copies = duplicates.of(COPY)
    near_views = duplicates.of(NEAR_VIEW)
    n_copies = int(duplicates.excluded(COPY).sum())
    n_near_views = int(duplicates.excluded(NEAR_VIEW).sum())
    n_same = sum(int(group.same_pixels.sum()) for group in copies)
    lines = [
        f"{len(duplicates.manifest):,} images",
        f"{counted(len(copies), 'group')} of copies: {n_copies:,} to leave out, {n_same:,} with the same pixels; "
        f"{_format_across(duplicates, copies)}",
        f"{counted(len(near_views), 'group')} of near views: {n_near_views:,} besides the kept ones; "
        f"{_format_across(duplicates, near_views)}",
    ]
    if duplicates.unreadable:
        images = counted(len(duplicates.unreadable), "image")
        lines.append(f"{images} could not be read: {preview(list(duplicates.unreadable))}")
    return "\n".join(lines)


def _format_across(duplicates: Duplicates, groups: Sequence[DuplicateGroup]) -> str:
    n_splits = sum(duplicates.is_across_splits(group) for group in groups)
    n_labels = sum(duplicates.is_across_labels(group) for group in groups)
    return f"{counted(n_splits, 'group')} across splits, {n_labels:,} across labels"


def _format_label_errors(label_errors: Sequence[LevelErrors], level_names: Sequence[str]) -> str:
    lines = []
    for errors in label_errors:
        judged = "classes" if errors.level else "images"
        n_judged = len(errors.rows)
        line = f"{level_names[errors.level]}: {errors.n_contradicted:,} of {n_judged:,} {judged} contradicted"
        error_rate = errors.highest_error_rate()
        if not isnan(error_rate):
            line += f"; at most {100 * error_rate:.1f} % of the labels are wrong (95 % confidence)"
        lines.append(line)
    return "\n".join(lines)


def _format_recall(shares: Mapping[str, float]) -> str:
    rows = [[name, f"{100 * share:.0f}%"] for name, share in shares.items()]
    return "\n".join(aligned(["altered copies", "found"], rows))
