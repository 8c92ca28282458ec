"""The review page as a web application: plain forms, answered by a redirect, or by the changed parts for the script.

Every form sends the position of the annotator (``at_view``, ``at_label``). The script also sends the last event
that the page shows (``since``); the answer holds everything that has changed after it, whoever changed it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

from markupsafe import Markup
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from hgld.errors import ConflictError, HgldError
from hgld.pages.access import PageKeys, page_app
from hgld.pages.requests import FormFields, keep_theme, read_form, theme_of
from hgld.review.actions import InvalidActionError, StaleError, parse_number
from hgld.review.label_lists import LabelLists
from hgld.review.page.forms import HANDLERS, Handler
from hgld.review.page.position import find_position, next_position, position_of_step
from hgld.review.page.progress import describe_step, sentence, undo_title
from hgld.review.page.reading import ReadingPages
from hgld.review.page.render import PageRenderer
from hgld.review.references import References
from hgld.review.session import ReviewSession
from hgld.taxonomy.decisions import decisions_as_csv

#: At most this many rows are sent at once when the list is scrolled.
_MAX_ROWS = 100
#: Status of the answer to an action that failed, by the kind of error; others than these come from a full disk.
_STATUS = {ConflictError: 409, InvalidActionError: 400, HgldError: 503}

#: Numbers of requests whose step is remembered, in case the script sends them again because it got no answer.
_REMEMBERED_REQUESTS = 1000


def review_app(
    session: ReviewSession, references: References, keys: PageKeys, *, host_names: Collection[str] = ()
) -> Starlette:
    """Return the web application of a session."""
    lists = LabelLists(session)
    renderer = PageRenderer(lists, references)
    pages = _Endpoints(lists, renderer)
    routes = [
        Route("/", pages.show),
        Route("/changes", pages.changes),
        Route("/rows", pages.rows),
        Route("/decisions.csv", pages.download),
        Route("/theme", pages.choose_theme, methods=["POST"]),
        *ReadingPages(session, references, renderer).routes(),
        *(Route(path, pages.handle(handler), methods=["POST"]) for path, handler in HANDLERS.items()),
    ]
    return page_app("review", routes, keys, host_names)


class _Endpoints:
    """Endpoints of the application that show or change the session."""

    def __init__(self, lists: LabelLists, renderer: PageRenderer) -> None:
        self._session = lists.session
        self._lists = lists
        self._renderer = renderer
        self._steps_by_request: dict[str, int | None] = {}

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
        since = _since(fields)
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
        return HTMLResponse(self._renderer.problem(str(error), conflict, position, theme_of(request)), status)

    def _step_changes(self, step: int | None, form: FormFields) -> Response:
        """Answer the script with what has changed, and with what the step did and where."""
        position = find_position(self._lists, form)
        if step is None:
            changes = self._renderer.changes(position, _since(form))
            return JSONResponse(changes | {"message": "Nothing changed."})
        goes_there = self._goes_there(step)
        if goes_there:
            position = position_of_step(self._lists, step, position)
        left = position.view.query != form.get("at_view")
        answer = self._renderer.changes(position, _since(form), everything=goes_there and left)
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


def _since(fields: Mapping[str, str]) -> int:
    """Return the id of the last event that the page shows; -1 if it is not given."""
    since = parse_number(fields.get("since", ""))
    return -1 if since is None else since
