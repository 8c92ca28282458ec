"""Search in galleries of embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hgld.cli.application import FIRST_STEPS, app
from hgld.cli.options import help_panels
from hgld.cli.render import aligned
from hgld.cli.served_page import Host, OpenBrowser, Port, announced_page
from hgld.cli.shared_options import ComparedBy, Json, Pretrained, out_file, writable_file
from hgld.errors import ConfigurationError
from hgld.evaluation.settings import RerankSettings
from hgld.progress import TerminalProgress

if TYPE_CHECKING:
    from hgld.search.searcher import Answers


@app.command(rich_help_panel=FIRST_STEPS)
@help_panels(
    {
        "Labels": ["manifest", "hierarchy", "split"],
        "Model": ["model", "pretrained", "device"],
        "Ranking": ["distance", "rerank", "rerank_neighbours", "rerank_alpha"],
        "Local page": ["serve", "host", "port", "open_browser"],
    }
)
def search(
    *,
    query: Annotated[Path | None, typer.Argument(show_default=False)] = None,
    embeddings: Annotated[Path, typer.Option()],
    text: list[str] | None = None,
    model: str | None = None,
    pretrained: Pretrained = None,
    manifest: Path | None = None,
    hierarchy: Path | None = None,
    split: str | None = None,
    k: Annotated[int, typer.Option("--top", min=1)] = 10,
    out: Annotated[Path | None, out_file(".csv", ".parquet", ".json")] = None,
    page: Annotated[Path | None, typer.Option(callback=writable_file(".html"))] = None,
    json: Json = False,
    images: Path | None = None,
    device: str = "cpu",
    distance: ComparedBy = None,
    reranking: RerankSettings,
    serve: bool = False,
    host: Host = "127.0.0.1",
    port: Port = 0,
    open_browser: OpenBrowser = True,
) -> None:
    """Search a gallery of embeddings with images or texts: the nearest photographs, and the labels they vote for.

    The number beside a label is its share of the votes. The vote of a photograph with cosine similarity s has the
    weight exp(s / 0.07), and with distance d the weight exp(-d / 0.07). The share is not a calibrated probability.

    Example: hgld search photo.jpg --embeddings embeddings.npy --page search.html

    Args:
        embeddings: Gallery to search in: embeddings from hgld embed-images, or of any model.
        query: Image to search with, a folder or tar file of images, or a manifest.
        text: Text to search with instead of an image, if open_clip:MODEL/TAG embedded the gallery; may be repeated.
        model: Model of the embeddings: a run of hgld train, a checkpoint, or the name of an untrained model. Default:
            the model that hgld embed-images recorded.
        manifest: Manifest of the gallery, or another table of labels as for hgld evaluate. Default: the manifest that
            was embedded, or landmark_id of the embeddings.
        hierarchy: Levels above landmarks: the output of hgld build, or H-GLDv2's CSV files.
        split: Split of the landmark ids, if the hierarchy has several splits; or split of the manifest whose images
            are used.
        k: Number of nearest images that are shown and that vote on the labels.
        out: Answers to write: .csv, .parquet or .json.
        page: HTML page to write, with photographs.
        images: Folder of the photographs of the gallery, or the table from hgld index-images in it. Default: the
            folder of the images that were embedded; if it does not exist, no photographs are shown.
        device: Device: cpu, cuda or cuda:N.
        serve: Serve a local page that takes pictures by drag and drop or paste, until Ctrl-C.
    """
    from hgld.evaluation.ranking import RankingConfig
    from hgld.inspection.photos import find_images
    from hgld.models.embedding_files import recorded_distance
    from hgld.pages.server import ServerConfig
    from hgld.search.answer_files import answers_to_json, write_answer_page, write_answers
    from hgld.search.gallery import gallery_photographs, read_gallery
    from hgld.search.query_model import load_query_model
    from hgld.search.searcher import Searcher
    from hgld.search.served_page import serve_search
    from hgld.tables import Provenance, input_digests

    given = []
    if query is not None:
        given.append("a `query`")
    if text:
        given.append("`text`")
    if serve:
        given.append("--serve")
    if len(given) != 1:
        found = " and ".join(given) or "nothing"
        raise ConfigurationError(
            f"expected a `query`, an image or a folder, or `text`, or --serve; found {found}"
        )
    gallery = read_gallery(embeddings, manifest, hierarchy, split)
    query_model = load_query_model(embeddings, gallery.dim, model, pretrained, device)
    compared_by = distance or recorded_distance(embeddings)
    config = RankingConfig(device=device, distance=compared_by, reranking=reranking)
    searcher = Searcher(gallery, config=config)
    if serve:
        with announced_page(open_browser, Path.home()) as on_address:
            address = ServerConfig(host, port)
            find_image = gallery_photographs(embeddings, images)
            serve_search(
                searcher, query_model, find_image, embeddings, address, top=k, on_address=on_address
            )
        return
    if query is None:
        assert text
        ids = text
        vectors = query_model.embed_texts(text)
    else:
        with TerminalProgress("search", "images") as progress:
            vectors, ids = query_model.embed_path(query, progress=progress)
    answers = searcher.search(vectors, k, ids=ids)
    typer.echo(answers_to_json(answers) if json else format_answers(answers))
    if out is not None:
        parameters: dict[str, Any] = {"top": k, "split": split, "distance": compared_by}
        method = reranking.describe()
        if method:
            parameters["rerank"] = method
        inputs = input_digests(embeddings=embeddings, labels=manifest, hierarchy=hierarchy)
        write_answers(out, answers, Provenance("search", parameters, inputs))
        typer.echo(out, err=json)
    if page is not None:
        find_query_image = _no_image if query is None else find_images(query)
        find_gallery_image = gallery_photographs(embeddings, images)
        write_answer_page(answers, page, find_query_image, find_gallery_image)
        typer.echo(page, err=json)


def _no_image(_: str) -> None:
    """Return no image for a query that is a text."""


def format_answers(answers: Answers) -> str:
    """Format each query: its answer with the shares of votes, coarsest level first, and its nearest images."""
    gallery = answers.gallery
    columns = ["", "score", "id", *gallery.level_names]
    blocks = []
    for row in range(len(answers)):
        labels = [f"{level.name} {level.share:.2f}" for level in reversed(answers.answer(row))]
        answer = ", ".join(labels) or "no labels"
        nearest = []
        for rank, (position, score, _) in enumerate(answers.results(row), start=1):
            cells = [rank, f"{score:.3f}", str(gallery.ids[position])]
            nearest.append(cells + list(gallery.names_of(position)))
        lines = [f"{answers.query_ids[row]}: {answer}", *aligned(columns, nearest, indent="  ")]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)
