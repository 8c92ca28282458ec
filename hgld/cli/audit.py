"""``hgld audit``: copies of images in a data set, and labels that are probably wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from hgld.audit.settings import DuplicatesConfig, LabelErrorsConfig
from hgld.cli.base import App, app, out_file, writable_file, writable_folder
from hgld.cli.render import aligned
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
    """Find what is wrong with a data set.

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

    All images but one of each group of copies are marked to be left out, images of the training first, so that
    nothing of the test remains in it. Near views are listed, too. Edit the table where you decide otherwise.

    Example: hgld audit duplicates manifest.parquet --embeddings embeddings.npy -o copies.csv --page copies.html

    Args:
        manifest: Manifest of the images.
        out: Table to write, for hgld manifest leave-out: .csv or .parquet.
        images: Folder that the paths in MANIFEST are relative to. Default: the folder of MANIFEST.
        embeddings: Embeddings of the images, of any model, for more candidates. Default: thumbnails alone.
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
        found = find_duplicates(
            audited.manifest, audited.root, audited.vectors, config, progress=progress
        )
    typer.echo(_format_duplicates(found))
    if recall:
        typer.echo(
            _format_recall(
                measure_recall(audited.manifest, audited.root, audited.vectors, embed, config)
            )
        )
    _write_duplicates(audited, found, config, out, page)


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

    They are ranked, the most contradicted first. What looks wrong need not be wrong; a person decides.

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
    found = find_label_errors(audited.manifest, audited.vectors, config)
    typer.echo(_format_label_errors(found, audited.manifest.level_names))
    _write_label_errors(audited, found, vars(config) | {"split": split}, out, page)
    if queue is not None and hierarchy is not None:
        typer.echo(f"{_write_queue(audited, found, config, hierarchy, queue)}\n{queue}")


class _AuditedImages(NamedTuple):
    """Images to audit, with their embeddings."""

    manifest: Manifest
    root: Path
    #: Embeddings, float, shape (N, d); None without.
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

        images, folder = read_manifest(manifest, root), root or manifest.parent
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
        if np.array_equal(rows, np.arange(len(embedded))):  # they may stay in their file
            return cls(images, folder, embedded.vectors, digests)
        return cls(images, folder, embedded.vectors[rows], digests)


def _write_duplicates(
    images: _AuditedImages,
    found: Duplicates,
    config: DuplicatesConfig,
    out: Path,
    page: Path | None,
) -> None:
    """Write the table and maybe the page of copies, and print their names."""
    from hgld.audit.pages import write_duplicates_page

    _write_table(
        out, found.to_arrow(), "duplicates/2", "audit duplicates", images.digests, vars(config)
    )
    typer.echo(out)
    if page is not None:
        write_duplicates_page(found, page, images.root)
        typer.echo(page)


def _write_label_errors(
    images: _AuditedImages,
    found: list[LevelErrors],
    parameters: Mapping[str, Any],
    out: Path,
    page: Path | None,
) -> None:
    """Write the table and maybe the page of contradicted labels, and print their names."""
    from hgld.audit import label_errors_table
    from hgld.audit.pages import write_label_errors_page

    table = label_errors_table(images.manifest, found)
    _write_table(out, table, "label_errors/1", "audit labels", images.digests, parameters)
    typer.echo(out)
    if page is not None:
        write_label_errors_page(images.manifest, found, page, images.root)
        typer.echo(page)


def _write_queue(
    images: _AuditedImages,
    found: list[LevelErrors],
    config: LabelErrorsConfig,
    hierarchy: Path,
    queue: Path,
) -> str:
    """Write the queue of what to decide on again; return what is in it."""
    from hgld.audit.review_queue import write_review_queue

    n_labels, n_single = write_review_queue(
        images.manifest, found, images.vectors, hierarchy, queue, config
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


def _format_duplicates(found: Duplicates) -> str:
    from hgld.audit.settings import COPY, NEAR_VIEW
    from hgld.io.columns import preview

    copies, near_views = found.of(COPY), found.of(NEAR_VIEW)
    n_copies, n_near_views = int(found.excluded(COPY).sum()), int(found.excluded(NEAR_VIEW).sum())
    n_same = sum(int(group.same_pixels.sum()) for group in copies)
    lines = [
        f"{len(found.manifest):,} images",
        f"{counted(len(copies), 'group')} of copies: {n_copies:,} to leave out, {n_same:,} with the same pixels; "
        f"{_format_across(found, copies)}",
        f"{counted(len(near_views), 'group')} of near views: {n_near_views:,} besides the kept ones; "
        f"{_format_across(found, near_views)}",
    ]
    n_unreadable = len(found.unreadable)
    if n_unreadable:
        lines.append(
            f"{counted(n_unreadable, 'image')} could not be read: {preview([*found.unreadable])}"
        )
    return "\n".join(lines)


def _format_across(found: Duplicates, groups: Sequence[DuplicateGroup]) -> str:
    n_splits = sum(found.is_across_splits(group) for group in groups)
    n_labels = sum(found.is_across_labels(group) for group in groups)
    return f"{counted(n_splits, 'group')} across splits, {n_labels:,} across labels"


def _format_label_errors(found: Sequence[LevelErrors], level_names: Sequence[str]) -> str:
    texts = []
    for errors in found:
        judged = f"{len(errors.rows):,} {'classes' if errors.level else 'images'}"
        text = f"{level_names[errors.level]}: {errors.n_contradicted:,} of {judged} contradicted"
        largest = errors.highest_error_rate()
        if not isnan(largest):
            text += f"; at most {100 * largest:.1f} % of the labels are wrong (95 % confidence)"
        texts.append(text)
    return "\n".join(texts)


def _format_recall(shares: Mapping[str, float]) -> str:
    rows = [[name, f"{100 * share:.0f}%"] for name, share in shares.items()]
    return "\n".join(aligned(["altered copies", "found"], rows))
