"""Photographs on the page: the list of all of a label, and the images themselves.

Images are named by their id in the index, never by a path. They are the only answers that browsers keep.
"""

from __future__ import annotations

from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from hgld.pages.theme import theme_of
from hgld.review.entered_texts import parse_number
from hgld.review.page.render import PageRenderer
from hgld.review.page.views import photographs_view
from hgld.review.photographs import LabelPhotographs
from hgld.review.session import ReviewSession
from hgld.review.thumbnails import SIZES, ThumbnailCache

#: Number of photographs on a page of those of a label.
_PER_PAGE = 60
#: For a day; the tag in the answer tells whether a photograph has changed since.
_CACHE_CONTROL = "private, max-age=86400, immutable"
_PLACEHOLDER = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="240" height="180" viewBox="0 0 240 180">'
    '<rect width="240" height="180" fill="#808080" fill-opacity=".15"/>'
    '<g fill="#767676" font-family="system-ui, sans-serif" font-size="17" text-anchor="middle">'
    '<text x="120" y="84">cannot be shown:</text><text x="120" y="108">{}</text></g></svg>'
)


class PhotographEndpoints:
    """Endpoints of the application that show photographs.

    Args:
        session: Session with the labels.
        photographs: Photographs of the labels.
        renderer: Renderer of the page.
    """

    def __init__(self, session: ReviewSession, photographs: LabelPhotographs, renderer: PageRenderer) -> None:
        self._session, self._photographs, self._renderer = session, photographs, renderer
        self._thumbnails = ThumbnailCache(photographs.read)

    def routes(self) -> list[Route]:
        """Return the routes of all endpoints."""
        return [Route("/photographs", self.show_all), Route("/photographs/{image_id}/{size}", self.image)]

    async def show_all(self, request: Request) -> Response:
        """Answer with the photographs of a label: as a page, or as list items for the script."""
        label_id = request.query_params.get("label", "")
        if label_id not in self._session.labels:
            return Response(status_code=404)
        start = parse_number(request.query_params.get("from", "")) or 0
        count = parse_number(request.query_params.get("count", ""))
        count = _PER_PAGE if count is None else min(count, _PER_PAGE)
        view = photographs_view(self._photographs, self._session, label_id, start, count)
        if request.headers.get("accept") == "application/json":
            return JSONResponse({"html": self._renderer.photograph_items(view), "next": view.next_start})
        return HTMLResponse(self._renderer.render("all_photographs.html", view=view, theme=theme_of(request)))

    async def image(self, request: Request) -> Response:
        """Answer with a photograph, or with a placeholder that says why it cannot be shown."""
        image_id, size = request.path_params["image_id"], request.path_params["size"]
        if size not in SIZES:
            return Response(status_code=404)
        try:
            thumbnail = await self._thumbnails.get(image_id, size, request.is_disconnected)
        except KeyError:
            return Response(status_code=404)
        if thumbnail is None:
            return Response(status_code=503)
        if thumbnail.problem:
            return Response(_PLACEHOLDER.format(escape(thumbnail.problem)), media_type="image/svg+xml")
        headers = {"cache-control": _CACHE_CONTROL, "etag": thumbnail.etag}
        if thumbnail.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(thumbnail.jpeg, media_type="image/jpeg", headers=headers)
