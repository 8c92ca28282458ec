"""The command ``export-embeddings``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hgld.cli.base import GalleryLabels, LandmarkSplit, Levels, app, friendly_errors, writable_file


@app.command(rich_help_panel="Retrieval")
def export_embeddings(
    embeddings: Annotated[Path, typer.Argument(help="Embeddings: .npy, .safetensors or .parquet.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            callback=writable_file(".faiss", ".parquet"),
            help="File to write: .faiss for an index, .parquet for a table with ids and labels.",
        ),
    ],
    labels: GalleryLabels = None,
    hierarchy: Levels = None,
    split: LandmarkSplit = None,
    index: Annotated[
        str,
        typer.Option(
            help="Kind of index: flat, ivf, hnsw, or what faiss's index_factory takes, such as IVF4096,PQ64."
        ),
    ] = "ivf",
    queries: Annotated[
        int, typer.Option(min=1, help="Number of images that are searched to measure the recall of an index.")
    ] = 1000,
    seed: Annotated[int, typer.Option(help="Seed that chooses these images, and those that train an index.")] = 0,
) -> None:
    """Write embeddings as a faiss index, or as a Parquet file for Hugging Face datasets.

    Of an index, the recall is measured against exact search: the share of the ten nearest images of some images of
    the gallery, without themselves, that it finds. Ids are written beside it. Indexes need the extra faiss.

    Example: hgld export-embeddings embeddings.npy -o embeddings.faiss --index hnsw
    """
    with friendly_errors(kind="--index"):
        from hgld.cli.summaries.search import format_index
        from hgld.errors import ConfigurationError
        from hgld.search.faiss_index import build_index
        from hgld.search.gallery import export_gallery, read_gallery
        from hgld.tables import Provenance, input_digests

        if out.exists() and out.samefile(embeddings):
            raise ConfigurationError(f"{out} would replace the embeddings; choose another `out`")
        gallery = read_gallery(embeddings, labels, hierarchy, split)
        if out.suffix == ".faiss":
            typer.echo(format_index(build_index(gallery, out, index, queries=queries, seed=seed)))
        else:
            inputs = input_digests(embeddings=embeddings, labels=labels, hierarchy=hierarchy)
            export_gallery(gallery, out, Provenance("export-embeddings", {"split": split}, inputs))
            levels = ", ".join(gallery.level_names) or "no labels"
            typer.echo(f"{len(gallery):,} embeddings of {gallery.dim:,} dimensions with {levels}")
        typer.echo(out)
