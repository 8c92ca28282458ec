"""The command ``search``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hgld.cli.base import GalleryLabels, LandmarkSplit, Levels, Pretrained, app, friendly_errors, writable_file
from hgld.cli.served_page import Host, OpenBrowser, Port, announced_page


@app.command(rich_help_panel="Retrieval")
def search(
    embeddings: Annotated[
        Path, typer.Option(help="Gallery to search in: embeddings from hgld embed-images, or of any model.")
    ],
    query: Annotated[
        Path | None,
        typer.Argument(
            help="Image to search with, a folder or tar file of images, or a manifest.", show_default=False
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Model of the embeddings: a run of hgld train, a checkpoint, or the name of an untrained model.",
            show_default="the one recorded by hgld embed-images",
        ),
    ] = None,
    pretrained: Pretrained = None,
    labels: GalleryLabels = None,
    hierarchy: Levels = None,
    split: LandmarkSplit = None,
    top: Annotated[int, typer.Option(min=1, help="Number of nearest images, all of which vote on the labels.")] = 10,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            callback=writable_file(".csv", ".parquet", ".json"),
            help="Answers to write: .csv, .parquet or .json.",
        ),
    ] = None,
    page: Annotated[
        Path | None, typer.Option(callback=writable_file(".html"), help="HTML page to write, with photographs.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    images: Annotated[
        Path | None,
        typer.Option(
            help="Photographs of the gallery: a manifest, the table from hgld index-images, or a folder.",
            show_default="the images that were embedded",
        ),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(
            help="Folder that the paths in --images are relative to.", show_default="the folder of --images"
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="Device: cpu, cuda or cuda:N.")] = "cpu",
    index: Annotated[
        Path | None,
        typer.Option(help="Index of the gallery from hgld export-embeddings.", show_default="exact search"),
    ] = None,
    reject: Annotated[
        Path | None,
        typer.Option(
            help='Detector from hgld reject fit --queries: answers "no such landmark" above its threshold, with the '
            "finest label that is still sure.",
            show_default="every answer is accepted",
        ),
    ] = None,
    serve: Annotated[
        bool,
        typer.Option("--serve", help="Serve a local page where pictures are dropped or pasted, until Ctrl-C."),
    ] = False,
    host: Host = "127.0.0.1",
    port: Port = 0,
    open_browser: OpenBrowser = True,
) -> None:
    """Search a gallery of embeddings with images: the nearest photographs, and the labels that they vote for.

    The number beside a label is its share of the votes, which count the more the more similar a photograph is: the
    weight of a cosine s is exp(s / 0.07). It is not a calibrated probability.

    Example: hgld search photo.jpg --embeddings embeddings.npy --page search.html
    """
    with friendly_errors(k="--top"):
        from hgld.cli.summaries.search import format_answers, format_index
        from hgld.errors import ConfigurationError
        from hgld.evaluation.ranking import RankingConfig
        from hgld.pages.server import ServerConfig
        from hgld.progress import TerminalProgress
        from hgld.rejection.detector_files import DESCRIPTION
        from hgld.search.answers import answers_to_json, write_answer_page, write_answers
        from hgld.search.faiss_index import open_index
        from hgld.search.gallery import gallery_photographs, read_gallery
        from hgld.search.query_model import load_query_model
        from hgld.search.rejection import open_rejector
        from hgld.search.searcher import Searcher
        from hgld.search.served_page import serve_search
        from hgld.tables import Provenance, input_digests

        if (query is None) != serve:
            found = "both `query` and --serve" if serve else "nothing"
            raise ConfigurationError(f"expected a `query`, an image or a folder, or --serve; found {found}")
        gallery = read_gallery(embeddings, labels, hierarchy, split)
        rejector = None if reject is None else open_rejector(reject, embeddings, gallery)
        if rejector is not None:
            rejector.check_votes(top)
        query_model = load_query_model(embeddings, gallery.dim, model, pretrained, device)
        neighbours = None if index is None else open_index(index, gallery)
        if neighbours is not None:
            typer.echo(format_index(neighbours.record), err=True)
        searcher = Searcher(gallery, index=neighbours, rejector=rejector, config=RankingConfig(device=device))
        if query is None:
            photographs = gallery_photographs(embeddings, images, root)
            with announced_page(open_browser, Path.home()) as on_address:
                address = ServerConfig(host, port)
                serve_search(searcher, query_model, photographs, embeddings, address, top=top, on_address=on_address)
            return
        with TerminalProgress("search", "images") as progress:
            vectors, ids = query_model.embed_path(query, progress=progress)
        answers = searcher.search(vectors, top, ids=ids)
        typer.echo(answers_to_json(answers) if json else format_answers(answers))
        if out is not None:
            detector = None if reject is None else reject / DESCRIPTION
            inputs = input_digests(embeddings=embeddings, labels=labels, hierarchy=hierarchy, reject=detector)
            write_answers(out, answers, Provenance("search", {"top": top, "split": split}, inputs))
            typer.echo(out, err=json)
        if page is not None:
            photographs = gallery_photographs(embeddings, images, root)
            write_answer_page(answers, page, gallery_photographs(query, query), photographs)
            typer.echo(page, err=json)
