"""The review page over HTTP: plain forms, answered with a page, or with its changed parts if a script asks.

Every form says where the annotator is (``at_cluster``, ``at_label``) and, from the script, the last event that the
page shows (``since``); the answer holds everything that has changed since then, whoever changed it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from hgld.errors import ConflictError, HgldError
from hgld.review.page.access import Access
from hgld.review.page.forms import Form, choice_in, number_in, read_form, seen_in
from hgld.review.page.render import FILES, Page, Place
from hgld.review.session import RefusedError, ReviewSession, StaleError
from hgld.taxonomy.decisions import write_decisions

_THEMES = ("auto", "light", "dark")
_STATIC = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}

Act = Callable[[ReviewSession, Form], int | None]


def review_app(desk: ReviewSession, token: str, *, names: Collection[str] = ()) -> Starlette:
    """The application.

    Args:
        desk: what is reviewed.
        token: who has it may use the page.
        names: host names that the page goes by; see :class:`hgld.review.page.access.Access`.
    """
    page = Page(desk)
    actions: dict[str, Act] = {
        "/decide": _decide,
        "/move": _move,
        "/merge": lambda desk, form: desk.merge(number_in(form, "at_cluster"), number_in(form, "into")),
        "/rename-cluster": lambda desk, form: desk.rename_cluster(
            number_in(form, "at_cluster"), form.get("name", ""), number_in(form, "version")
        ),
        "/propose-group": lambda desk, form: desk.propose_group(
            form.get("name", ""), form.get("root", ""), form.get("guideline", "")
        ),
        "/rename-group": _rename_group,
        "/undo": lambda desk, form: _take_back(desk, form, desk.fold.to_undo),
        "/redo": lambda desk, form: _take_back(desk, form, desk.fold.to_redo),
    }

    async def show(request: Request) -> Response:
        place = page.place(request.query_params)
        return HTMLResponse(page.whole(place, request.query_params.get("q", ""), _theme(request)))

    async def changes(request: Request) -> Response:
        return JSONResponse(page.changes(page.place(request.query_params), _since(request.query_params)))

    async def download(_: Request) -> Response:
        name = f"{desk.store.annotator}.csv"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            write_decisions(path, desk.decisions())
            content = path.read_bytes()
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(content, media_type="text/csv; charset=utf-8", headers=headers)

    async def choose_theme(request: Request) -> Response:
        form = await read_form(request)
        answer = _back(page, form)
        if form.get("theme") in _THEMES:
            answer.set_cookie("hgld-theme", form["theme"], max_age=31_536_000, samesite="strict")
        return answer

    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _STATIC:
            return Response(status_code=404)
        return FileResponse(FILES / name, media_type=_STATIC[name])

    def acting(act: Act) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            form = await read_form(request)
            scripted = request.headers.get("accept") == "application/json"
            try:
                act(desk, form)
            except (HgldError, RefusedError) as error:
                status = 409 if isinstance(error, ConflictError) else 400 if isinstance(error, RefusedError) else 500
                stale = page.stale(error, request.url.path, form) if isinstance(error, StaleError) else Markup()
                if scripted:
                    return JSONResponse({"error": str(error), "stale": stale}, status)
                return HTMLResponse(page.problem(str(error), stale, page.place(form), _theme(request)), status)
            if scripted:
                return JSONResponse(page.changes(page.place(form), _since(form)))
            return _back(page, form)

        return answer

    return Starlette(
        routes=[
            Route("/", show),
            Route("/changes", changes),
            Route("/decisions.csv", download),
            Route("/theme", choose_theme, methods=["POST"]),
            Route("/static/{name}", static),
            *(Route(path, acting(act), methods=["POST"]) for path, act in actions.items()),
        ],
        middleware=[Middleware(Access, token=token, names=names)],
    )


def _decide(desk: ReviewSession, form: Form) -> int | None:
    return desk.decide(seen_in(form), choice_in(form))


def _move(desk: ReviewSession, form: Form) -> int | None:
    into = form.get("into", "")
    return desk.move(seen_in(form), number_in(form, "into") if into else None, form.get("name", ""))


def _rename_group(desk: ReviewSession, form: Form) -> int | None:
    version, _, key = form.get("group", "").partition(":")
    return desk.rename_group(key, form.get("name", ""), int(version) if version.isdecimal() else 0)


def _take_back(desk: ReviewSession, form: Form, usual: int | None) -> int | None:
    step = number_in(form, "step") if form.get("step") else usual
    if step is None:
        raise RefusedError("there is nothing to take back or to make again")
    return desk.take_back(step)


def _since(values: Any) -> int:
    """The last event that the page shows; -1 if it shows nothing yet."""
    text = values.get("since", "")
    return int(text) if text.isdecimal() else -1


def _back(page: Page, form: Form) -> Response:
    """Where a form without script leads to: the label that is next."""
    place: Place = page.next_place(page.place(form))
    query = urlencode({"cluster": place.cluster, "label": place.label})
    return RedirectResponse(f"/?{query}", status_code=303)


def _theme(request: Request) -> str:
    theme = request.cookies.get("hgld-theme", "auto")
    return theme if theme in _THEMES else "auto"
