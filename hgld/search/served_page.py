"""Local page that answers a dropped, pasted or chosen picture with photographs and labels."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from hgld.figures.photographs import upright_copy
from hgld.inspection.photos import FindImage, thumbnail_url
from hgld.io.images import UnreadableImageError, open_image
from hgld.pages.server import PageKeys, ServerConfig, listen, page_app, read_upload, serve_page
from hgld.pages.templates import page_templates
from hgld.search.answer_files import SHARES, answer_levels, gallery_photo
from hgld.search.query_model import QueryModel
from hgld.search.searcher import Searcher

#: Largest size of an uploaded picture in bytes.
MAX_UPLOAD_BYTES = 32 * 2**20
_THUMBNAIL_SIZE = 256


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

    Args:
        searcher: Search of the gallery.
        model: Model that embeds the picture.
        photographs: Function that returns the photographs of the gallery.
        embeddings: File of the embeddings of the gallery.
        config: Settings of the server.
        top: Number of photographs in an answer.
        on_address: Function that is called with the address of the page.

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
        Route("/levels.css", pages.level_colours),
    ]
    return page_app("search", routes, keys, host_names, image_sources="'self' data:")


class _Endpoints:
    """Endpoints of the application."""

    def __init__(
        self, searcher: Searcher, model: QueryModel, photographs: FindImage, top: int
    ) -> None:
        self._searcher = searcher
        self._model = model
        self._photographs = photographs
        self._top = top
        self._gallery = searcher.gallery
        self._templates = page_templates("search")
        self._lock = threading.Lock()  # the model and tar files cannot be used by several threads

    async def show(self, _: Request) -> Response:
        """Answer with the page without an answer."""
        return self._page()

    async def search(self, request: Request) -> Response:
        """Search with an uploaded picture, and answer with the page and the results."""
        data = await read_upload(request, MAX_UPLOAD_BYTES)
        if not data:
            return self._page(400, problem="no picture was chosen")
        try:
            answer = await run_in_threadpool(self._answer, data)
            return self._page(answer=answer)
        except UnreadableImageError as error:
            return self._page(400, problem=f"this picture cannot be read: {error}")

    async def level_colours(self, _: Request) -> Response:
        """Answer with a style sheet of the colours of the levels."""
        rules = ""
        for style in answer_levels(self._gallery):
            rules += f".level-{style.level} {{ --level: {style.colour}; }}\n"
        return Response(rules, media_type="text/css")

    def _page(
        self, status: int = 200, *, answer: Mapping[str, object] | None = None, problem: str = ""
    ) -> Response:
        """Answer with the page."""
        html = self._templates.get_template("page.html").render(
            answer=answer,
            problem=problem,
            n_photographs=len(self._gallery),
            levels=answer_levels(self._gallery),
        )
        return HTMLResponse(html, status)

    def _answer(self, data: bytes) -> dict[str, object]:
        """Search with a picture, and return the values of the page."""
        image = open_image(data)
        picture = upright_copy(image, max(image.size))
        with self._lock:
            answers = self._searcher.search(self._model.embed([picture]), self._top)
            results = []
            for position, score, level in answers.results(0):
                photo = gallery_photo(self._gallery, position)
                url = thumbnail_url(self._photographs(photo.id), _THUMBNAIL_SIZE, quality=80)
                results.append({"score": score, "level": level, "photo": photo, "url": url})
        return {
            "url": thumbnail_url(picture, _THUMBNAIL_SIZE, quality=80),
            "labels": answers.answer(0)[::-1],
            "explanation": SHARES,
            "results": results,
        }
