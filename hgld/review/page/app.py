"""The review page as a web application: plain forms, answered by a redirect, or by the changed parts for the script.

Every form sends the position of the annotator (``at_view``, ``at_label``). The script also sends the last event
that the page shows (``since``); the answer holds everything that has changed after it, whoever changed it.

Landmarks and photographs of a label and the guideline are pages of their own, which the script shows in a dialog in
front of the labels instead. Photographs are named by their id in the index, never by a path. They are made small when
they are asked for, and are the only answers that browsers keep.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from html import escape

from markdown_it import MarkdownIt
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from hgld.errors import ConflictError, HgldError, InputError
from hgld.figures.photographs import make_thumbnail
from hgld.io.images import UnreadableImageError
from hgld.pages.server import FormFields, PageKeys, keep_theme, page_app, parse_number, read_form, theme_of
from hgld.review.label_lists import LabelLists
from hgld.review.page.forms import HANDLERS, Handler, find_position, next_position, position_of_step
from hgld.review.page.render import PageRenderer, References
from hgld.review.page.views import describe_step, photographs_view, sentence, undo_title
from hgld.review.photographs import LabelPhotographs
from hgld.review.session import InvalidActionError, ReviewSession, StaleError
from hgld.taxonomy.decisions import decisions_as_csv

log = logging.getLogger(__name__)

#: At most this many rows are sent at once when the list is scrolled.
_MAX_ROWS = 100
#: Status of the answer to an action that failed, by the kind of error; others than these come from a full disk.
_STATUS = {ConflictError: 409, InvalidActionError: 400, HgldError: 503}

#: Numbers of requests whose step is remembered, in case the script sends them again because it got no answer.
_REMEMBERED_REQUESTS = 1000

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


def review_app(
    session: ReviewSession, references: References, keys: PageKeys, *, host_names: Collection[str] = ()
) -> Starlette:
    """Return the web application of a session."""
    pages = _Endpoints(session, references)
    routes = [
        Route("/", pages.show),
        Route("/changes", pages.changes),
        Route("/rows", pages.rows),
        Route("/decisions.csv", pages.download),
        Route("/theme", pages.choose_theme, methods=["POST"]),
        Route("/landmarks", pages.landmarks),
        Route("/guideline", pages.guideline),
        *(Route(path, pages.handle(handler), methods=["POST"]) for path, handler in HANDLERS.items()),
    ]
    if references.photographs is not None:
        routes += [Route("/photographs", pages.photographs), Route("/photographs/{image_id}/{size}", pages.image)]
    return page_app("review", routes, keys, host_names)


class _Endpoints:
    """Endpoints of the application."""

    def __init__(self, session: ReviewSession, references: References) -> None:
        self._session, self._references = session, references
        self._lists = LabelLists(session)
        self._renderer = PageRenderer(self._lists, references)
        self._turn = asyncio.Semaphore(_WORKERS)
        self._logged: set[str] = set()
        self._steps_by_request: dict[str, int | None] = {}

    def _page(self, request: Request, template: str, status: int = 200, **values: object) -> Response:
        return HTMLResponse(self._renderer.render(template, theme=theme_of(request), **values), status)

    async def show(self, request: Request) -> Response:
        """Answer with the page."""
        position = find_position(self._lists, request.query_params)
        search = request.query_params.get("groups", "")
        step = parse_number(request.query_params.get("step", ""))
        return HTMLResponse(self._renderer.page(position, search, theme_of(request), step))

    async def changes(self, request: Request) -> Response:
        """Answer with the parts of the page that have changed, or with 204 if the page shows everything."""
        fields = request.query_params
        position = find_position(self._lists, fields)
        since = _number(fields, "since", -1)
        shown = (position.view.query, position.label) == (fields.get("at_view"), fields.get("shown"))
        if shown and since == self._session.state.last_event:
            return Response(status_code=204)
        return JSONResponse(self._renderer.changes(position, since))

    async def rows(self, request: Request) -> Response:
        """Answer with rows of the list in full."""
        fields = request.query_params
        position = find_position(self._lists, fields)
        return JSONResponse(self._renderer.rows(fields.getlist("label")[:_MAX_ROWS], position))

    async def download(self, _: Request) -> Response:
        """Answer with the decisions as CSV."""
        name = f"{self._session.store.annotator}.csv"
        content = decisions_as_csv(self._session.decisions())
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(content, media_type="text/csv; charset=utf-8", headers=headers)

    async def choose_theme(self, request: Request) -> Response:
        """Keep the colour theme in a cookie."""
        form = await read_form(request)
        response = self._redirect(form)
        keep_theme(response, form.get("theme", ""))
        return response

    def handle(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that applies a form to the session."""

        async def endpoint(request: Request) -> Response:
            form = await read_form(request)
            from_script = request.headers.get("accept") == "application/json"
            if form.get("store", self._renderer.store_id) != self._renderer.store_id:
                return PlainTextResponse("Refused: the page belongs to other decisions.\n", 403)
            try:
                step = self._apply_once(handler, form)
            except (HgldError, InvalidActionError) as error:
                return self._refuse(error, request, form, from_script=from_script)
            return self._step_changes(step, form) if from_script else self._redirect(form, step)

        return endpoint

    def _apply_once(self, handler: Handler, form: FormFields) -> int | None:
        """Apply a form, unless it was applied already; the script numbers its requests (``request``)."""
        request = form.get("request", "")
        if request in self._steps_by_request:
            return self._steps_by_request[request]
        step = handler(self._session, form)
        if request:
            self._steps_by_request[request] = step
            if len(self._steps_by_request) > _REMEMBERED_REQUESTS:
                del self._steps_by_request[next(iter(self._steps_by_request))]
        return step

    def _refuse(
        self, error: HgldError | InvalidActionError, request: Request, form: FormFields, *, from_script: bool
    ) -> Response:
        conflict = Markup()
        if isinstance(error, StaleError):
            try:
                conflict = self._renderer.conflict(error, request.scope["path"], form)
            except InvalidActionError as impossible:  # such as the choice of a group that was undone
                error = impossible
        status = next(code for kind, code in _STATUS.items() if isinstance(error, kind))
        if from_script:
            return JSONResponse({"error": str(error), "conflict": conflict}, status)
        position = find_position(self._lists, form)
        values = {"message": str(error), "conflict": conflict, "position": position}
        return self._page(request, "problem.html", status, **values)

    def _step_changes(self, step: int | None, form: FormFields) -> Response:
        """Answer the script with what has changed, and with what the step did and where."""
        position = find_position(self._lists, form)
        if step is None:
            changes = self._renderer.changes(position, _number(form, "since", -1))
            return JSONResponse(changes | {"message": "Nothing changed."})
        goes_there = self._goes_there(step)
        if goes_there:
            position = position_of_step(self._lists, step, position)
        left = position.view.query != form.get("at_view")
        answer = self._renderer.changes(position, _number(form, "since", -1), everything=goes_there and left)
        answer |= {
            "step": step,
            "message": sentence(describe_step(self._session, step)),
            "undo": undo_title(self._session, step),
            "goes_there": goes_there,
            "versions": {
                event.key: self._session.version(event.key)
                for event in self._session.state.steps[step]
                if event.key in self._session.labels
            },
        }
        return JSONResponse(answer)

    def _redirect(self, form: FormFields, step: int | None = None) -> Response:
        """Lead a browser without script to what was undone or redone, else to the next label."""
        position = find_position(self._lists, form)
        if step is not None and self._goes_there(step):
            position = position_of_step(self._lists, step, position)
        else:
            position = next_position(self._lists, position)
        address = position.address if step is None else f"{position.address}&step={step}"
        return RedirectResponse(address, status_code=303)

    def _goes_there(self, step: int) -> bool:
        """Return whether the page leads to what the step changed: whether it undid or redid something."""
        return self._session.state.undone_step(self._session.state.steps[step][0]) is not None

    async def landmarks(self, request: Request) -> Response:
        """Answer with the landmarks of a label, by name."""
        label_id = request.query_params.get("label", "")
        if label_id not in self._session.labels:
            return Response(status_code=404)
        landmarks = self._references.facts.landmarks(label_id)
        first = _number(request.query_params, "from", 0)
        first = first if first < len(landmarks) else 0
        end = first + _LANDMARKS_PER_PAGE
        return self._page(
            request,
            "landmarks.html",
            label_id=label_id,
            label=self._session.labels[label_id].label,
            landmarks=landmarks[first:end],
            first=first,
            total=len(landmarks),
            next_start=end if end < len(landmarks) else None,
        )

    async def guideline(self, request: Request) -> Response:
        """Answer with the guideline."""
        path = self._references.guideline
        if path is None:
            return Response(status_code=404)
        return self._page(request, "guideline.html", guideline=guideline_html(path.read_text(encoding="utf-8")))

    async def photographs(self, request: Request) -> Response:
        """Answer with the photographs of a label: as a page, or as list items for the script."""
        assert self._references.photographs is not None
        fields = request.query_params
        label_id = fields.get("label", "")
        if label_id not in self._session.labels:
            return Response(status_code=404)
        count = min(_PHOTOGRAPHS_PER_PAGE, _number(fields, "count", _PHOTOGRAPHS_PER_PAGE))
        start = _number(fields, "from", 0)
        view = photographs_view(self._references.photographs, self._session, label_id, start, count)
        if request.headers.get("accept") == "application/json":
            return JSONResponse({"html": self._renderer.part("items", view.photographs), "next": view.next_start})
        return self._page(request, "all_photographs.html", view=view)

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


def _number(fields: Mapping[str, str], name: str, default: int) -> int:
    number = parse_number(fields.get(name, ""))
    return default if number is None else number
