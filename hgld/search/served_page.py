"""A local page where a picture is dropped, pasted or chosen, and that answers with photographs and labels."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from hgld.figures.photographs import MAX_PIXELS
from hgld.inspection.photos import FindImage, thumbnail
from hgld.io.images import UnreadableImageError, open_image, upright_rgb
from hgld.pages.server import PageKeys, ServerConfig, listen, page_app, read_upload, serve_page
from hgld.pages.templates import page_templates
from hgld.search.answers import answer_levels, explanation_of, gallery_photo, rejection_sentence
from hgld.search.query_model import QueryModel
from hgld.search.searcher import Answers, Searcher

#: Bytes of an uploaded picture.
MAX_UPLOAD_BYTES = 32 * 2**20
#: Answers that are kept for the addresses of their pages.
_KEPT_ANSWERS = 50
_THUMBNAIL_SIZE = 256


@dataclass(frozen=True)
class _KeptAnswer:
    """An answer and the thumbnail of its query, in memory only."""

    answers: Answers
    thumbnail: bytes


def serve_search(
    searcher: Searcher,
    model: QueryModel,
    photographs: FindImage,
    embeddings: Path,
    config: ServerConfig,
    *,
    top: int = 10,
    on_address: Callable[[str], None],
) -> None:
    """Serve the page until SIGINT or SIGTERM.

    Raises:
        ConfigurationError: The port is not available.
    """
    keys = PageKeys()
    app = search_app(searcher, model, photographs, keys, top=top, host_names=[config.host])
    with listen(config, embeddings) as listener:
        serve_page(app, keys, listener, config, on_address=on_address)


def search_app(
    searcher: Searcher,
    model: QueryModel,
    photographs: FindImage,
    keys: PageKeys,
    *,
    top: int = 10,
    host_names: Collection[str] = (),
) -> Starlette:
    """Return the web application of the page; see :func:`serve_search`."""
    pages = _Endpoints(searcher, model, photographs, top)
    routes = [
        Route("/", pages.show),
        Route("/search", pages.search, methods=["POST"]),
        Route("/queries/{answer}", pages.query_thumbnail),
        Route("/photographs/{position:int}", pages.photograph),
        Route("/levels.css", pages.level_colours),
    ]
    return page_app("search", routes, keys, host_names)


class _Endpoints:
    """Endpoints of the application."""

    def __init__(self, searcher: Searcher, model: QueryModel, photographs: FindImage, top: int) -> None:
        self._searcher, self._model, self._photographs, self._top = searcher, model, photographs, top
        self._gallery = searcher.gallery
        self._templates = page_templates("search")
        self._answers: OrderedDict[str, _KeptAnswer] = OrderedDict()
        self._lock = threading.Lock()  # one picture at a time: model and tar files are not for several threads

    async def show(self, request: Request) -> Response:
        """Answer with the page, and an answer on it if its address names one."""
        answer = request.query_params.get("answer", "")
        if not answer:
            return self._page()
        if answer not in self._answers:
            return self._page(problem="this answer is no longer kept; search again", status=404)
        return self._page(answer)

    async def search(self, request: Request) -> Response:
        """Search with an uploaded picture, and lead to its answer."""
        data = await read_upload(request, MAX_UPLOAD_BYTES)
        if not data:
            return self._page(problem="no picture was chosen", status=400)
        try:
            kept = await run_in_threadpool(self._search, data)
        except UnreadableImageError as error:
            return self._page(problem=f"this picture cannot be read: {error}", status=400)
        answer = secrets.token_urlsafe(12)
        self._answers[answer] = kept
        while len(self._answers) > _KEPT_ANSWERS:
            self._answers.popitem(last=False)
        return RedirectResponse(f"/?answer={answer}", status_code=303)

    async def query_thumbnail(self, request: Request) -> Response:
        """Answer with a small copy of the picture of a query."""
        kept = self._answers.get(request.path_params["answer"])
        return Response(status_code=404) if kept is None else Response(kept.thumbnail, media_type="image/jpeg")

    async def photograph(self, request: Request) -> Response:
        """Answer with a small copy of a photograph of the gallery."""
        position = request.path_params["position"]
        if position >= len(self._gallery):
            return Response(status_code=404)
        jpeg = await run_in_threadpool(self._photograph, str(self._gallery.ids[position]))
        if jpeg is None:
            return Response(status_code=404)
        return Response(jpeg, media_type="image/jpeg", headers={"cache-control": "private, max-age=86400"})

    async def level_colours(self, _: Request) -> Response:
        """Answer with a style sheet of the colours of the levels."""
        rules = [f".level-{style.level} {{ --level: {style.colour}; }}" for style in answer_levels(self._gallery)]
        return Response("\n".join([*rules, ""]), media_type="text/css")

    def _search(self, data: bytes) -> _KeptAnswer:
        image = open_image(data)
        if image.width * image.height > MAX_PIXELS:
            raise UnreadableImageError(f"too large ({image.width * image.height / 1e6:,.0f} megapixels)")
        picture = upright_rgb(image)
        with self._lock:
            answers = self._searcher.search(self._model.embed([picture]), self._top)
        return _KeptAnswer(answers, _jpeg(picture) or b"")

    def _photograph(self, image_id: str) -> bytes | None:
        with self._lock:
            return _jpeg(self._photographs(image_id))

    def _page(self, answer: str = "", *, problem: str = "", status: int = 200) -> Response:
        shown = self._answer_values(self._answers[answer].answers) if answer else {"results": ()}
        html = self._templates.get_template("page.html").render(
            answer=answer,
            problem=problem,
            n_photographs=len(self._gallery),
            levels=answer_levels(self._gallery),
            **shown,
        )
        return HTMLResponse(html, status)

    def _answer_values(self, answers: Answers) -> dict[str, object]:
        results = [
            {"position": position, "score": score, "level": level, "photo": gallery_photo(self._gallery, position)}
            for position, score, level in answers.results(0)
        ]
        return {
            "labels": answers.answer(0)[::-1],
            "rejection": rejection_sentence(answers, 0),
            "explanation": explanation_of(answers),
            "results": results,
        }


def _jpeg(image: Image.Image | None) -> bytes | None:
    return thumbnail(image, _THUMBNAIL_SIZE, quality=80)
