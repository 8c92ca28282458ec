"""Pages to read beside the labels: all landmarks of a label, and the guideline for annotators.

Each is a page of its own. The script shows it in a dialog in front of the labels instead.
"""

from __future__ import annotations

from markdown_it import MarkdownIt
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from hgld.pages.theme import theme_of
from hgld.review.page.render import PageRenderer
from hgld.review.references import References
from hgld.review.session import ReviewSession

#: Landmarks on one page.
_PER_PAGE = 500


class ReferencePages:
    """Endpoints of these pages.

    Args:
        session: Session with the labels.
        references: Landmarks of the labels, and the guideline.
        renderer: Renderer of the page.
    """

    def __init__(self, session: ReviewSession, references: References, renderer: PageRenderer) -> None:
        self._session, self._references, self._renderer = session, references, renderer

    def routes(self) -> list[Route]:
        """Return the routes of all endpoints."""
        return [Route("/landmarks", self.landmarks), Route("/guideline", self.guideline)]

    async def landmarks(self, request: Request) -> Response:
        """Answer with the landmarks of a label, by name."""
        label_id, start = request.query_params.get("label", ""), request.query_params.get("from", "")
        if label_id not in self._session.labels:
            return Response(status_code=404)
        landmarks = self._references.facts.landmarks(label_id)
        first = int(start) if start.isascii() and start.isdecimal() and int(start) < len(landmarks) else 0
        html = self._renderer.render(
            "landmarks.html",
            theme=theme_of(request),
            label_id=label_id,
            label=self._session.labels[label_id].row.label,
            landmarks=landmarks[first : first + _PER_PAGE],
            first=first,
            total=len(landmarks),
            next_start=first + _PER_PAGE if first + _PER_PAGE < len(landmarks) else None,
        )
        return HTMLResponse(html)

    async def guideline(self, request: Request) -> Response:
        """Answer with the guideline."""
        path = self._references.guideline
        if path is None:
            return Response(status_code=404)
        html = guideline_html(path.read_text(encoding="utf-8"))
        return HTMLResponse(self._renderer.render("guideline.html", theme=theme_of(request), guideline=html))


def guideline_html(text: str) -> Markup:
    r"""Return a text in Markdown, with tables, as HTML; HTML in the text is shown as it is written.

    >>> guideline_html("A *dam* is <b>no</b> lake.")
    Markup('<p>A <em>dam</em> is &lt;b&gt;no&lt;/b&gt; lake.</p>\n')
    """
    return Markup(MarkdownIt("commonmark", {"html": False}).enable("table").render(text))  # noqa: S704 - escaped
