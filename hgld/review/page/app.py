"""The review page as a web application: plain forms, answered by a redirect, or by the changed parts for the script.

Every form sends the position of the annotator (``at_cluster``, ``at_label``). The script also sends the last event
that the page shows (``since``); the answer holds everything that has changed after it, whoever changed it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from hgld.errors import ConflictError, HgldError, StorageError
from hgld.review.actions import InvalidActionError, StaleError
from hgld.review.page.access import AccessMiddleware
from hgld.review.page.forms import FormFields, int_field, label_action, label_versions, read_form
from hgld.review.page.history import describe_step, sentence
from hgld.review.page.keys import PageKeys
from hgld.review.page.limits import LimitsMiddleware
from hgld.review.page.photographs import PhotographEndpoints
from hgld.review.page.position import find_position, next_position, position_of_step
from hgld.review.page.render import TEMPLATES, PageRenderer
from hgld.review.page.theme import keep_theme, theme_of
from hgld.review.photographs import LabelPhotographs
from hgld.review.session import ReviewSession
from hgld.taxonomy.decisions import write_decisions

#: Files that the page loads, by the end of their address.
_STATIC_FILES = {
    path.relative_to(TEMPLATES).as_posix(): path
    for pattern in ("style/*.css", "*.svg", "script/*.js")
    for path in TEMPLATES.glob(pattern)
}
_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

#: At most this many rows are sent at once when the list is scrolled.
_MAX_ROWS = 100
#: Status of the answer to an action that failed, by the kind of error.
_STATUS = {ConflictError: 409, InvalidActionError: 400, StorageError: 503, HgldError: 500}

#: Applies a form to the session and returns the step, or None if nothing changed.
Handler = Callable[[ReviewSession, FormFields], "int | None"]


def review_app(
    session: ReviewSession,
    keys: PageKeys,
    *,
    host_names: Collection[str] = (),
    photographs: LabelPhotographs | None = None,
) -> Starlette:
    """Return the web application of a session.

    Args:
        session: Session to show and to change.
        keys: Keys that admit a browser to the page.
        host_names: Accepted host names; see :class:`hgld.review.page.access.AccessMiddleware`.
        photographs: Photographs to show with the labels; none by default.
    """
    renderer = PageRenderer(session, photographs)
    pages = _Endpoints(session, renderer)
    images = [] if photographs is None else PhotographEndpoints(session, photographs, renderer).routes()
    return Starlette(
        routes=[
            Route("/", pages.show),
            Route("/changes", pages.changes),
            Route("/rows", pages.rows),
            Route("/decisions.csv", pages.download),
            Route("/theme", pages.choose_theme, methods=["POST"]),
            Route("/static/{name:path}", _static_file),
            *images,
            *(Route(path, pages.handle(handler), methods=["POST"]) for path, handler in _HANDLERS.items()),
        ],
        middleware=[Middleware(LimitsMiddleware), Middleware(AccessMiddleware, keys=keys, host_names=host_names)],
    )


class _Endpoints:
    """Endpoints of the application that show or change the session."""

    def __init__(self, session: ReviewSession, renderer: PageRenderer) -> None:
        self._session = session
        self._renderer = renderer

    async def show(self, request: Request) -> Response:
        """Answer with the page."""
        position = find_position(self._session, request.query_params)
        step = request.query_params.get("step", "")
        known = step.isdecimal() and int(step) in self._session.state.steps
        message = sentence(describe_step(self._session, int(step))) if known else ""
        search = request.query_params.get("q", "")
        return HTMLResponse(self._renderer.page(position, search, theme_of(request), message))

    async def changes(self, request: Request) -> Response:
        """Answer with the parts of the page that have changed."""
        return self._changes(request.query_params)

    async def rows(self, request: Request) -> Response:
        """Answer with rows of the list in full."""
        return JSONResponse(self._renderer.rows(request.query_params.getlist("label")[:_MAX_ROWS]))

    async def download(self, _: Request) -> Response:
        """Answer with the decisions as CSV."""
        name = f"{self._session.store.annotator}.csv"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            write_decisions(path, self._session.decisions())
            content = path.read_bytes()
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
            try:
                step = handler(self._session, form)
            except (HgldError, InvalidActionError) as error:
                return self._refuse(error, request, form, from_script=from_script)
            if step is not None and self._session.state.undone_step(self._session.state.steps[step][0]) is not None:
                return self._show_step(step, form, from_script=from_script)
            return self._changes(form) if from_script else self._redirect(form)

        return endpoint

    def _refuse(
        self, error: HgldError | InvalidActionError, request: Request, form: FormFields, *, from_script: bool
    ) -> Response:
        status = next(code for kind, code in _STATUS.items() if isinstance(error, kind))
        conflict = Markup()
        if isinstance(error, StaleError):
            conflict = self._renderer.conflict(error, request.url.path, form)
        if from_script:
            return JSONResponse({"error": str(error), "conflict": conflict}, status)
        position = find_position(self._session, form)
        return HTMLResponse(self._renderer.problem(str(error), conflict, position, theme_of(request)), status)

    def _show_step(self, step: int, form: FormFields, *, from_script: bool) -> Response:
        """Lead to what was undone or redone, and say what it was."""
        before = find_position(self._session, form)
        position = position_of_step(self._session, step, before)
        if not from_script:
            query = urlencode({"cluster": position.cluster, "label": position.label, "step": step})
            return RedirectResponse(f"/?{query}", status_code=303)
        left = str(position.cluster) != form.get("at_cluster")
        changes = self._renderer.changes(position, _since(form), everything=left)
        return JSONResponse(changes | {"message": sentence(describe_step(self._session, step))})

    def _changes(self, fields: Mapping[str, str]) -> Response:
        position = find_position(self._session, fields)
        return JSONResponse(self._renderer.changes(position, _since(fields)))

    def _redirect(self, form: FormFields) -> Response:
        """Lead a browser without script to the next label."""
        position = next_position(self._session, find_position(self._session, form))
        query = urlencode({"cluster": position.cluster, "label": position.label})
        return RedirectResponse(f"/?{query}", status_code=303)


def _since(fields: Mapping[str, str]) -> int:
    """Return the id of the last event that the page shows; -1 if it is not given."""
    since = fields.get("since", "")
    return int(since) if since.isdecimal() else -1


async def _static_file(request: Request) -> Response:
    path = _STATIC_FILES.get(request.path_params["name"])
    if path is None:
        return Response(status_code=404)
    return FileResponse(path, media_type=_MEDIA_TYPES[path.suffix])


def _decide(session: ReviewSession, form: FormFields) -> int | None:
    return session.decide(label_versions(form), label_action(form))


def _move(session: ReviewSession, form: FormFields) -> int | None:
    cluster = int_field(form, "into") if form.get("into") else None
    return session.move(label_versions(form), cluster, form.get("name", ""))


def _merge(session: ReviewSession, form: FormFields) -> int | None:
    return session.merge(int_field(form, "at_cluster"), int_field(form, "into"))


def _rename_cluster(session: ReviewSession, form: FormFields) -> int | None:
    return session.rename_cluster(int_field(form, "at_cluster"), form.get("name", ""), int_field(form, "version"))


def _propose_group(session: ReviewSession, form: FormFields) -> int | None:
    return session.propose_group(form.get("name", ""), form.get("root", ""), form.get("guideline", ""))


def _rename_group(session: ReviewSession, form: FormFields) -> int | None:
    version, _, key = form.get("group", "").partition(":")
    return session.rename_group(key, form.get("name", ""), int(version) if version.isdecimal() else 0)


def _merge_group(session: ReviewSession, form: FormFields) -> int | None:
    version, _, key = form.get("group", "").partition(":")
    return session.merge_group(key, form.get("into", ""), int(version) if version.isdecimal() else 0)


def _undo(session: ReviewSession, form: FormFields) -> int | None:
    step = int_field(form, "step") if form.get("step") else session.state.next_undo
    if step is None:
        raise InvalidActionError("there is nothing to undo")
    return session.undo(step)


def _redo(session: ReviewSession, _: FormFields) -> int | None:
    step = session.state.next_redo
    if step is None:
        raise InvalidActionError("there is nothing to redo")
    return session.undo(step)


#: Handlers of the forms by path.
_HANDLERS: dict[str, Handler] = {
    "/decide": _decide,
    "/move": _move,
    "/merge": _merge,
    "/rename-cluster": _rename_cluster,
    "/propose-group": _propose_group,
    "/rename-group": _rename_group,
    "/merge-group": _merge_group,
    "/undo": _undo,
    "/redo": _redo,
}
