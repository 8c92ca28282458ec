"""Pages to read beside the labels: their landmarks and photographs, and the guideline for annotators.

Each is a page of its own. The script shows it in a dialog in front of the labels instead. Photographs are named by
their id in the index, never by a path. They are made small when they are asked for, and are the only answers that
browsers keep.
"""

from __future__ import annotations

import asyncio
import logging
from html import escape

from markdown_it import MarkdownIt
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from hgld.errors import InputError
from hgld.figures.photographs import make_thumbnail
from hgld.io.images import UnreadableImageError
from hgld.pages.requests import theme_of
from hgld.review.actions import parse_number
from hgld.review.page.render import PageRenderer
from hgld.review.page.views import photographs_view
from hgld.review.photographs import LabelPhotographs
from hgld.review.references import References
from hgld.review.session import ReviewSession

log = logging.getLogger(__name__)

#: Landmarks, and photographs, on one page.
_LANDMARKS_PER_PAGE, _PHOTOGRAPHS_PER_PAGE = 500, 60
#: Width and height in pixels, whether to crop, and quality of photographs: small ones have twice the size in the
#: card, for screens of high resolution.
_SIZES = {"small": (240, 180, True, 80), "large": (1024, 1024, False, 85)}
#: Photographs that are made small at once; on two cores the server still has time to answer.
_WORKERS = 2
_CACHE_CONTROL = "private, max-age=86400, immutable"
_PLACEHOLDER = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="240" height="180" viewBox="0 0 240 180">'
    '<rect width="240" height="180" fill="#808080" fill-opacity=".15"/>'
    '<g fill="#767676" font-family="system-ui, sans-serif" font-size="17" text-anchor="middle">'
    '<text x="120" y="84">cannot be shown:</text><text x="120" y="108">{}</text></g></svg>'
)


class ReadingPages:
    """Endpoints of these pages."""

    def __init__(self, session: ReviewSession, references: References, renderer: PageRenderer) -> None:
        self._session, self._references, self._renderer = session, references, renderer
        self._turn = asyncio.Semaphore(_WORKERS)
        self._logged: set[str] = set()

    def routes(self) -> list[Route]:
        """Return the routes of all endpoints."""
        routes = [Route("/landmarks", self.landmarks), Route("/guideline", self.guideline)]
        if self._references.photographs is not None:
            routes += [Route("/photographs", self.photographs), Route("/photographs/{image_id}/{size}", self.image)]
        return routes

    async def landmarks(self, request: Request) -> Response:
        """Answer with the landmarks of a label, by name."""
        label_id = request.query_params.get("label", "")
        if label_id not in self._session.labels:
            return Response(status_code=404)
        landmarks = self._references.facts.landmarks(label_id)
        first = parse_number(request.query_params.get("from", "")) or 0
        first = first if first < len(landmarks) else 0
        end = first + _LANDMARKS_PER_PAGE
        html = self._renderer.render(
            "landmarks.html",
            theme=theme_of(request),
            label_id=label_id,
            label=self._session.labels[label_id].label,
            landmarks=landmarks[first:end],
            first=first,
            total=len(landmarks),
            next_start=end if end < len(landmarks) else None,
        )
        return HTMLResponse(html)

    async def guideline(self, request: Request) -> Response:
        """Answer with the guideline."""
        path = self._references.guideline
        if path is None:
            return Response(status_code=404)
        html = guideline_html(path.read_text(encoding="utf-8"))
        return HTMLResponse(self._renderer.render("guideline.html", theme=theme_of(request), guideline=html))

    async def photographs(self, request: Request) -> Response:
        """Answer with the photographs of a label: as a page, or as list items for the script."""
        assert self._references.photographs is not None
        label_id = request.query_params.get("label", "")
        if label_id not in self._session.labels:
            return Response(status_code=404)
        start = parse_number(request.query_params.get("from", "")) or 0
        count = parse_number(request.query_params.get("count", ""))
        count = _PHOTOGRAPHS_PER_PAGE if count is None else min(count, _PHOTOGRAPHS_PER_PAGE)
        view = photographs_view(self._references.photographs, self._session, label_id, start, count)
        if request.headers.get("accept") == "application/json":
            return JSONResponse({"html": self._renderer.photograph_items(view), "next": view.next_start})
        return HTMLResponse(self._renderer.render("all_photographs.html", view=view, theme=theme_of(request)))

    async def image(self, request: Request) -> Response:
        """Answer with a photograph, or with a placeholder that says why it cannot be shown."""
        assert self._references.photographs is not None
        image_id, size = request.path_params["image_id"], request.path_params["size"]
        if size not in _SIZES:
            return Response(status_code=404)
        async with self._turn:
            if await request.is_disconnected():
                return Response(status_code=503)
            return await asyncio.to_thread(self._image, self._references.photographs, image_id, size)

    def _image(self, photographs: LabelPhotographs, image_id: str, size: str) -> Response:
        width, height, crop, quality = _SIZES[size]
        try:
            jpeg = make_thumbnail(photographs.read(image_id), width, height, crop=crop, quality=quality)
        except KeyError:
            return Response(status_code=404)
        except UnreadableImageError as error:
            problem, message = str(error), f"the photograph {image_id} cannot be shown: {error}"
        except (InputError, OSError, MemoryError) as error:
            problem, message = "its file cannot be read", f"a photograph cannot be read: {error}"
        else:
            return Response(jpeg, media_type="image/jpeg", headers={"cache-control": _CACHE_CONTROL})
        if message not in self._logged:
            self._logged.add(message)
            log.warning("%s", message)
        return Response(_PLACEHOLDER.format(escape(problem)), media_type="image/svg+xml")


def guideline_html(text: str) -> Markup:
    r"""Return a text in Markdown, with tables, as HTML; HTML in the text is shown as it is written.

    >>> guideline_html("A *dam* is <b>no</b> lake.")
    Markup('<p>A <em>dam</em> is &lt;b&gt;no&lt;/b&gt; lake.</p>\n')
    """
    return Markup(MarkdownIt("commonmark", {"html": False}).enable("table").render(text))  # noqa: S704 - escaped
