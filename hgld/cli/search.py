"""Galleries of embeddings: search, export-embeddings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hgld.cli.base import (
    PART,
    ComparedBy,
    ExecutionConfig,
    Json,
    Pretrained,
    app,
    out_file,
    writable,
    writable_file,
)
from hgld.cli.options import options_of
from hgld.cli.render import aligned, lines
from hgld.cli.served_page import Host, OpenBrowser, Port, announced_page
from hgld.compute.executors import Part
from hgld.errors import ConfigurationError
from hgld.io.files import check_writable_file, check_writable_folder, require_suffix
from hgld.progress import TerminalProgress

if TYPE_CHECKING:
    from hgld.evaluation.settings import RerankSettings
    from hgld.inspection.photos import FindImage
    from hgld.search.faiss_index import IndexRecord
    from hgld.search.gallery import Gallery
    from hgld.search.searcher import Answers


@app.command(rich_help_panel="Retrieval")
@options_of("hgld.search.gallery:read_gallery", "read_gallery", path=None)
@options_of("hgld.search.gallery:gallery_photographs", "find_photographs")
@options_of("hgld.evaluation.settings:RerankSettings", "reranking")
def search(
    *,
    embeddings: Annotated[Path, typer.Option()],
    query: Annotated[Path | None, typer.Argument(show_default=False)] = None,
    text: list[str] | None = None,
    model: str | None = None,
    pretrained: Pretrained = None,
    read_gallery: partial[Gallery],
    k: Annotated[int, typer.Option("--top", min=1)] = 10,
    out: Annotated[Path | None, out_file(".csv", ".parquet", ".json")] = None,
    page: Annotated[Path | None, typer.Option(callback=writable_file(".html"))] = None,
    json: Json = False,
    find_photographs: Callable[[], FindImage],
    device: str = "cpu",
    distance: ComparedBy = None,
    index: Path | None = None,
    reranking: RerankSettings,
    reject: Path | None = None,
    serve: bool = False,
    host: Host = "127.0.0.1",
    port: Port = 0,
    open_browser: OpenBrowser = True,
) -> None:
    """Search a gallery of embeddings with images or texts: the nearest photographs, and the labels they vote for.

    The number beside a label is its share of the votes, which count the more the more similar a photograph is: the
    weight of a cosine s is exp(s / 0.07), and of a distance d exp(-d / 0.07). It is not a calibrated probability.

    Example: hgld search photo.jpg --embeddings embeddings.npy --page search.html

    Args:
        embeddings: Gallery to search in: embeddings from hgld embed-images, or of any model.
        query: Image to search with, a folder or tar file of images, or a manifest.
        text: Text to search with instead of an image, if open_clip:MODEL/TAG embedded the gallery; may be repeated.
        model: Model of the embeddings: a run of hgld train, a checkpoint, or the name of an untrained model. Default:
            the one recorded by hgld embed-images.
        k: Number of nearest images, all of which vote on the labels.
        out: Answers to write: .csv, .parquet or .json.
        page: HTML page to write, with photographs.
        device: Device: cpu, cuda or cuda:N.
        index: Index of the gallery from hgld export-embeddings, or a folder of those of its parts. Default: exact
            search.
        reject: Detector from hgld reject fit --queries: answers "no such landmark" above its threshold, with the
            finest label that is still sure. Default: every answer is accepted.
        serve: Serve a local page where pictures are dropped or pasted, until Ctrl-C.
    """
    from hgld.evaluation.ranking import RankingConfig
    from hgld.models.embedding_files import recorded_distance
    from hgld.pages.server import ServerConfig
    from hgld.rejection.detector_files import DESCRIPTION
    from hgld.search.answer_files import answers_to_json, write_answer_page, write_answers
    from hgld.search.faiss_index import open_index
    from hgld.search.gallery import gallery_photographs
    from hgld.search.local_features import LocalFeatures
    from hgld.search.query_model import load_query_model
    from hgld.search.searcher import Searcher, open_rejector
    from hgld.search.served_page import serve_search
    from hgld.tables import Provenance, input_digests

    if (query is not None) + bool(text) + serve != 1:
        given = {"a `query`": query is not None, "`text`": bool(text), "--serve": serve}
        found = " and ".join(name for name, is_given in given.items() if is_given) or "nothing"
        raise ConfigurationError(f"expected a `query`, an image or a folder, or `text`, or --serve; found {found}")
    gallery = read_gallery(embeddings)
    rejector = None if reject is None else open_rejector(reject, embeddings, gallery)
    if rejector is not None:
        rejector.check_votes(k)
    query_model = load_query_model(embeddings, gallery.dim, model, pretrained, device)
    neighbours = None if index is None else open_index(index, gallery)
    if neighbours is not None:
        typer.echo(format_index(neighbours.record), err=True)
    compared_by, pair_scorer = distance or recorded_distance(embeddings), None
    if reranking.rerank == "local-features":
        if query is None:
            raise ConfigurationError("`rerank` local-features compares photographs; search with a `query` of images")
        asked = gallery_photographs(query, query)
        pair_scorer = LocalFeatures(asked, find_photographs())
    config = RankingConfig(device=device, distance=compared_by, reranking=reranking, pair_scorer=pair_scorer)
    searcher = Searcher(gallery, index=neighbours, rejector=rejector, config=config)
    if serve:
        with announced_page(open_browser, Path.home()) as on_address:
            address = ServerConfig(host, port)
            serve_search(searcher, query_model, find_photographs(), embeddings, address, top=k, on_address=on_address)
        return
    if query is None:
        assert text
        vectors, ids = query_model.embed_texts(text), text
    else:
        with TerminalProgress("search", "images") as progress:
            vectors, ids = query_model.embed_path(query, progress=progress)
    answers = searcher.search(vectors, k, ids=ids)
    typer.echo(answers_to_json(answers) if json else format_answers(answers))
    if out is not None:
        detector = None if reject is None else reject / DESCRIPTION
        files = dict(read_gallery.keywords)
        parameters: dict[str, Any] = {"top": k, "split": files.pop("split", None), "distance": compared_by}
        parameters |= {"rerank": method} if (method := reranking.describe()) else {}
        inputs = input_digests(embeddings=embeddings, **files, reject=detector)
        write_answers(out, answers, Provenance("search", parameters, inputs))
        typer.echo(out, err=json)
    if page is not None:
        asked = (lambda _: None) if query is None else gallery_photographs(query, query)
        write_answer_page(answers, page, asked, find_photographs())
        typer.echo(page, err=json)


def format_answers(answers: Answers) -> str:
    """Format each query: its answer with the shares of votes, coarsest level first, and its nearest images."""
    gallery, blocks = answers.gallery, []
    for row in range(len(answers)):
        levels = ", ".join(f"{level.name} {level.share:.2f}" for level in reversed(answers.answer(row)))
        rejection = answers.rejection(row)
        answer = "; ".join(filter(None, [rejection, levels])) or "no labels"
        results = [
            [rank, f"{score:.3f}", str(gallery.ids[position]), *gallery.names_of(position)]
            for rank, (position, score, _) in enumerate(answers.results(row), start=1)
        ]
        table = aligned(["", "score", "id", *gallery.level_names], results, indent="  ")
        blocks.append(lines(f"{answers.query_ids[row]}: {answer}", table))
    return "\n\n".join(blocks)


def _check_export(path: Path) -> None:
    """Check that a file, or a folder of indexes of parts, can be written."""
    if path.is_dir() or not path.suffix:
        return check_writable_folder(path)
    require_suffix(path, ".faiss", ".parquet")
    return check_writable_file(path)


@app.command(rich_help_panel="Retrieval")
@options_of("hgld.search.gallery:read_gallery", "read_gallery", path=None)
@options_of("hgld.search.faiss_index:build_index", "build_index", gallery=None, kind="--index", queries={"min": 1})
@options_of("hgld.cli.base:ExecutionConfig", "execution", panel="Parts")
def export_embeddings(
    *,
    embeddings: Path,
    out: Annotated[Path, typer.Option("--out", "-o", callback=writable(_check_export))],
    read_gallery: partial[Gallery],
    build_index: partial[IndexRecord],
    execution: ExecutionConfig,
    part: Annotated[Part | None, PART] = None,
) -> None:
    """Write embeddings as a faiss index, or as a Parquet file for Hugging Face datasets.

    Of an index, the recall is measured against exact search: the share of the ten nearest images of some images of
    the gallery, without themselves, that it finds. Ids are written beside it. Indexes need the extra faiss.

    An --executor builds an index of each of --parts, in a folder that is searched as one index. Jobs of your own
    write --part 1/16, --part 2/16 and so on.

    Example: hgld export-embeddings embeddings.npy -o embeddings.faiss --index hnsw

    Args:
        embeddings: Embeddings: .npy, .safetensors, .parquet or .hdf5, or a folder of such files.
        out: File to write: .faiss for an index, .parquet for a table with ids and labels; or, in parts, a folder of
            indexes.
        part: Build the index of one of several parts of the embeddings, such as 3/16. Default: all embeddings.
    """
    from hgld.search.faiss_index import build_part, open_index, part_file, parts_are_written
    from hgld.search.gallery import export_gallery
    from hgld.tables import Provenance, input_digests

    if out.exists() and out.samefile(embeddings):
        raise ConfigurationError(f"{out} would replace the embeddings; choose another `out`")
    in_parts = part is not None or execution.executor is not None
    if in_parts != (out.is_dir() or not out.suffix):
        raise ConfigurationError(
            f"{out}: parts are indexes in a folder; name one as `out`, or a .faiss or .parquet file without `parts`"
        )
    gallery = read_gallery(embeddings)
    if in_parts:
        options = {name: value for name, value in build_index.keywords.items() if name != "out"}
        if part is not None:
            typer.echo(format_index(build_part(gallery, out, part, **options)))
            out = part_file(out, part)
        else:
            execution.run_parts(out, parts_are_written(gallery, out, **options))
            typer.echo(format_index(open_index(out, gallery).record))
    elif out.suffix == ".faiss":
        typer.echo(format_index(build_index(gallery)))
    else:
        files = dict(read_gallery.keywords)
        parameters = {"split": files.pop("split", None)}
        inputs = input_digests(embeddings=embeddings, **files)
        export_gallery(gallery, out, Provenance("export-embeddings", parameters, inputs))
        levels = ", ".join(gallery.level_names) or "no labels"
        typer.echo(f"{len(gallery):,} embeddings of {gallery.dim:,} dimensions with {levels}")
    typer.echo(out)


def format_index(record: IndexRecord) -> str:
    """Format what an index holds, how many of the nearest images it finds, and how fast."""
    return (
        f"{record.description}: {record.images:,} images of {record.dim:,} dimensions\n"
        f"recall@10 {record.recall:.3f} against exact search, {record.speedup:.1f} times as fast, for "
        f"{record.queries:,} images of the gallery"
    )
