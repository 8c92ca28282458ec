"""The review page as a web application with plain forms.

The answer to a form is a redirect, or the changed parts of the page for the script. Every form sends the position of
the annotator (``at_view``, ``at_label``). The script also sends the last event that the page shows (``since``); the
answer holds all changes after this event, by any tab.

Landmarks and photographs of a label and the guideline have their own pages; the script shows these pages in a dialog.
Photographs are named by their id in the index, never by a path. The server scales a photograph at each request, and
browsers cache photographs only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from html import escape

from markdown_it import MarkdownIt
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.routing import Route

from hgld.errors import ConflictError, HgldError, InputError
from hgld.figures.photographs import make_thumbnail
from hgld.io.images import UnreadableImageError
from hgld.pages.server import FormFields, PageKeys, page_app, parse_number, read_form
from hgld.review.label_lists import LabelLists, find_position, next_position, position_of_step
from hgld.review.page.clusters_file import ClustersFile
from hgld.review.page.render import PageRenderer, References
from hgld.review.page.views import (
    DecisionView,
    SeenLabel,
    decision_view,
    describe_step,
    photographs_view,
    sentence,
)
from hgld.review.photographs import LabelPhotographs
from hgld.review.session import (
    NO_CANDIDATE,
    InvalidActionError,
    LabelAction,
    ReviewSession,
    StaleError,
    candidates_digest,
)
from hgld.taxonomy.decisions import decisions_as_csv
from hgld.taxonomy.groups import Group

log = logging.getLogger(__name__)

#: HTTP status of the answer to a failed action, by the first class of the error that matches.
_STATUS = {ConflictError: 409, InvalidActionError: 400, HgldError: 503}

#: Number of requests whose step is stored, for a script that sends a request again after a lost answer.
_REMEMBERED_REQUESTS = 1000

#: Number of landmarks on one page.
_LANDMARKS_PER_PAGE = 500
#: Number of photographs on one page.
_PHOTOGRAPHS_PER_PAGE = 60
#: Width and height in pixels, whether to crop, and JPEG quality of photographs. Small photographs have twice the size
#: in the card, for screens of high resolution.
_SIZES = {"small": (240, 180, True, 80), "large": (1024, 1024, False, 85)}
#: Photographs that are scaled at once; on two cores the server still has time to answer.
_WORKERS = 2
_NO_LINE_BREAKS = str.maketrans("", "", "\r\n")
_CACHE_CONTROL = "private, max-age=86400, immutable"
_PLACEHOLDER = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="240" height="180" viewBox="0 0 240 180">'
    '<rect width="240" height="180" fill="#808080" fill-opacity=".15"/>'
    '<g fill="#767676" font-family="system-ui, sans-serif" font-size="17" text-anchor="middle">'
    '<text x="120" y="84">cannot be shown:</text><text x="120" y="108">{}</text></g></svg>'
)
#: Fields of a refused form that are not repeated when it is sent again.
_VERSION_FIELDS = ("label", "focus", "since")


def seen_labels(form: FormFields) -> dict[str, SeenLabel]:
    """Return the labels of a form, as the annotator saw them, by label_id.

    These are the label of the pressed button, or the ticked labels, or the current label, in this order of
    preference. The form has labels in the format of :meth:`SeenLabel.field`.
    """
    kind, _, button = form.get("choose", "").partition("@")
    texts = form.getlist("label")
    if button and kind.startswith("take:"):
        texts = [button]
    elif not texts:
        texts = [text for text in form.getlist("focus") if text]
    labels = {}
    for text in texts:
        seen, _, label_id = text.partition(":")
        number, _, candidates = seen.partition(".")
        version = parse_number(number)
        if version is None:
            raise InvalidActionError(f'"{text}" is not a label with its version')
        labels[label_id] = SeenLabel(version, candidates)
    return labels


def label_versions(form: FormFields) -> dict[str, int]:
    """Return the versions of the labels of a form, as the annotator saw them, by label_id."""
    return {label_id: seen.version for label_id, seen in seen_labels(form).items()}


def label_action(form: FormFields) -> LabelAction:
    """Return the action of a form; its field ``choose`` is e.g. ``drop``, ``group:lake`` or ``take:1``.

    If the button belongs to another label than the current label, the comment in the form is ignored.
    """
    comment = form.get("comment", "")
    before = form.get("comment_was", "")
    new_comment = None
    # A text field drops line breaks, which a comment from a sheet may have.
    if comment.translate(_NO_LINE_BREAKS) != before.translate(_NO_LINE_BREAKS):
        new_comment = comment.strip()
    kind, _, value = form.get("choose", "").partition(":")
    if kind == "take":
        number, _, label = value.partition("@")
        if label and form.get("focus", label).partition(":")[2] != label.partition(":")[2]:
            new_comment = None
        return LabelAction("take", candidate=parse_number(number) or 0, comment=new_comment)
    if kind == "enter":  # in the comment or another field
        return LabelAction("comment", comment=new_comment)
    if kind in ("group", "above"):
        kind = "unsure" if form.get("guess") else "group"
        return LabelAction(kind, value, comment=new_comment)
    return LabelAction(kind, comment=new_comment)


def present_action(session: ReviewSession, form: FormFields) -> LabelAction:
    """Return the action of a form, and add the catch-all group that it needs.

    ``above:Food > Dairy`` chooses a name above groups; its catch-all group is added if it is missing.
    """
    action = label_action(form)
    kind, _, path = form.get("choose", "").partition(":")
    if kind == "above":
        return replace(action, group=session.catch_all_group(path))
    return action


def int_field(form: FormFields, name: str) -> int:
    """Return the number in a field."""
    text = form.get(name, "")
    number = parse_number(text)
    if number is None:
        raise InvalidActionError(f'"{name}" is "{text}"; expected a number')
    return number


#: Function that applies a form to the session and returns the step, or None if nothing changed.
Handler = Callable[[ReviewSession, FormFields], "int | None"]


def _decide(session: ReviewSession, form: FormFields) -> int | None:
    if form.get("choose") == "enter" and form.get("name"):
        return _move(session, form)  # Enter was pressed in the name of a new cluster
    seen = seen_labels(form)
    action = present_action(session, form)

    def decide(label_ids: Collection[str]) -> int | None:
        versions = {label_id: seen[label_id].version for label_id in label_ids}
        candidates = {label_id: seen[label_id].candidates for label_id in label_ids}
        return session.decide(versions, action, candidates)

    try:
        return decide(seen)
    except StaleError as error:
        # A form whose answer was lost is sent again. Labels with its decision are no conflict.
        if "again" not in form or error.with_other_candidates:
            raise
        if not all(session.is_done(label_id, action) for label_id in error.label_ids):
            raise
        unchanged = [label_id for label_id in seen if label_id not in error.label_ids]
        return decide(unchanged) if unchanged else None


def _move(session: ReviewSession, form: FormFields) -> int | None:
    cluster = None
    if form.get("into"):
        _require_clustering(session, form)
        cluster = int_field(form, "into")
    return session.move(label_versions(form), cluster, form.get("name", ""))


def _merge(session: ReviewSession, form: FormFields) -> int | None:
    _require_clustering(session, form)
    return session.merge(int_field(form, "cluster"), int_field(form, "into"))


def _rename_cluster(session: ReviewSession, form: FormFields) -> int | None:
    _require_clustering(session, form)
    return session.rename_cluster(
        int_field(form, "cluster"), form.get("name", ""), int_field(form, "version")
    )


def _require_clustering(session: ReviewSession, form: FormFields) -> None:
    """Refuse numbers of clusters from a page that showed another clustering, before hgld was started again."""
    if form.get("clustering", session.clustering) != session.clustering:
        raise ConflictError(
            "the clusters have changed since the page showed them; choose the cluster again"
        )


def _undo(session: ReviewSession, form: FormFields) -> int | None:
    step = session.state.next_undo
    if form.get("step"):
        step = int_field(form, "step")
    if step is None:
        raise InvalidActionError("there is nothing to undo")
    return session.undo(step)


def _redo(session: ReviewSession, _: FormFields) -> int | None:
    step = session.state.next_redo
    if step is None:
        raise InvalidActionError("there is nothing to redo")
    return session.undo(step)


def _group_version(form: FormFields) -> tuple[str, int]:
    version, _, key = form.get("group", "").partition(":")
    return key, parse_number(version) or 0


def _rename_group(session: ReviewSession, form: FormFields) -> int | None:
    key, version = _group_version(form)
    return session.rename_group(key, form.get("name", ""), version)


def _merge_group(session: ReviewSession, form: FormFields) -> int | None:
    key, version = _group_version(form)
    return session.merge_group(key, form.get("into", ""), version)


#: Handlers of the forms, by path.
HANDLERS: dict[str, Handler] = {
    "/decide": _decide,
    "/move": _move,
    "/merge": _merge,
    "/rename-cluster": _rename_cluster,
    "/propose-group": lambda session, form: session.propose_group(
        form.get("name", ""), form.get("parent", ""), form.get("guideline", "")
    ),
    "/rename-group": _rename_group,
    "/merge-group": _merge_group,
    "/undo": _undo,
    "/redo": _redo,
}


def review_app(
    session: ReviewSession,
    references: References,
    keys: PageKeys,
    *,
    host_names: Collection[str] = (),
    clusters: ClustersFile | None = None,
) -> Starlette:
    """Return the web application of a session.

    Args:
        references: Sources of the texts and photographs of labels.
        keys: Keys that admit browsers.
        host_names: Names of the host in addresses.
        clusters: File with the labels. If it is written again, the next load of the page shows the new labels.
            None: the labels never change.
    """
    pages = _Endpoints(session, references, clusters)
    routes = [
        Route("/", pages.show),
        Route("/changes", pages.changes),
        Route("/decisions.csv", pages.download),
        Route("/landmarks", pages.landmarks),
        Route("/guideline", pages.guideline),
    ]
    for path, handler in HANDLERS.items():
        routes.append(Route(path, pages.handle(handler), methods=["POST"]))
    if references.photographs is not None:
        routes += [
            Route("/photographs", pages.photographs),
            Route("/photographs/{image_id}/{size}", pages.image),
        ]
    return page_app("review", routes, keys, host_names)


class _Endpoints:
    """Endpoints of the application."""

    def __init__(
        self, session: ReviewSession, references: References, clusters: ClustersFile | None
    ) -> None:
        self._references, self._clusters = references, clusters
        self._use(session)
        self._turn = asyncio.Semaphore(_WORKERS)
        self._logged: set[str] = set()
        self._steps_by_request: dict[str, int | None] = {}

    def _use(self, session: ReviewSession) -> None:
        self._session = session
        self._lists = LabelLists(session)
        self._renderer = PageRenderer(self._lists, self._references)

    def _load_clusters(self) -> str:
        """Show the new labels if the table was written again; return an error message, or an empty text."""
        if self._clusters is None or self._clusters.version() == self._clusters.loaded:
            return ""
        self._clusters.loaded = self._clusters.version()
        try:
            self._use(self._clusters.open_session(self._session.store))
        except HgldError as error:
            return str(error)
        return ""

    def _notice(self, problem: str = "") -> Markup:
        """Return the notice about a new version of the table."""
        assert self._clusters is not None
        return self._renderer.part("notice", self._clusters.path.name, problem)

    def _page(self, template: str, status: int = 200, **values: object) -> Response:
        return HTMLResponse(self._renderer.render(template, **values), status)

    async def show(self, request: Request) -> Response:
        """Answer with the page."""
        problem = self._load_clusters()
        position = find_position(self._lists, request.query_params)
        search = request.query_params.get("groups", "")
        notice = self._notice(problem) if problem else ""
        version = "" if self._clusters is None else self._clusters.loaded
        page = self._renderer.page(position, search, notice=notice, clusters_version=version)
        return HTMLResponse(page)

    async def changes(self, request: Request) -> Response:
        """Answer with the parts of the page that have changed, or with 204 if the page shows everything."""
        fields = request.query_params
        position = find_position(self._lists, fields)
        since = _number(fields, "since", -1)
        is_same_view = position.view.query == fields.get("at_view")
        is_same_label = position.label == fields.get("shown")
        version = fields.get("clusters", "")
        if self._clusters is not None and version:
            version = self._clusters.version()
        is_new_table = version != fields.get("clusters", "")
        is_same_event = since == self._session.state.last_event
        if is_same_view and is_same_label and is_same_event and not is_new_table:
            return Response(status_code=204)
        changes = self._renderer.changes(position, since)
        if is_new_table:
            changes["clusters"] = version
            changes["parts"]["notice"] = self._notice()
        return JSONResponse(changes)

    async def download(self, _: Request) -> Response:
        """Answer with the decisions as CSV."""
        name = f"{self._session.store.annotator}.csv"
        content = decisions_as_csv(self._session.decisions())
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(content, media_type="text/csv; charset=utf-8", headers=headers)

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
            if from_script:
                return self._step_changes(step, form)
            return self._redirect(form, step)

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
        self,
        error: HgldError | InvalidActionError,
        request: Request,
        form: FormFields,
        *,
        from_script: bool,
    ) -> Response:
        conflict = Markup()
        if isinstance(error, StaleError):
            try:
                conflict = self._conflict(error, request.scope["path"], form)
            except InvalidActionError as invalid:  # e.g. the group was undone in the meantime
                error = invalid
        status = next(code for kind, code in _STATUS.items() if isinstance(error, kind))
        if from_script:
            return JSONResponse({"error": str(error), "conflict": conflict}, status)
        position = find_position(self._lists, form)
        values = {"message": str(error), "conflict": conflict, "position": position}
        return self._page("problem.html", status, **values)

    def _conflict(self, error: StaleError, path: str, form: FormFields) -> Markup:
        """Return both versions of labels that were changed in the meantime, with forms to resolve the conflict."""
        session = self._session
        tree = session.tree()
        rows = []
        for label_id in error.label_ids:
            label = session.labels[label_id]
            mine = DecisionView(None)
            if path == "/decide":
                action = present_action(session, form)
                value = session.resulting_decision(label, action, tree.groups)
                if value is not NO_CANDIDATE:
                    mine = decision_view(value, tree)
            theirs = decision_view(session.decision_value(label_id), tree)
            rows.append((label.label, theirs, mine))
        fields = []
        for name, value in form.multi_items():
            if name in _VERSION_FIELDS:
                continue
            if name == "choose" and value.startswith("take:"):
                value = value.partition("@")[0]  # "take:1@3:Q1" has the old version of its label
            fields.append((name, value))
        present = []
        unchanged = []
        for label_id in label_versions(form):
            text = self._present_field(label_id, tree.groups)
            present.append(text)
            if label_id not in error.label_ids:
                unchanged.append(text)
        reason = None
        if error.with_other_candidates:
            reason = "opinions" if session.adjudicating else "suggestions"
        return self._renderer.part("conflict", rows, path, fields, present, unchanged, reason)

    def _present_field(self, label_id: str, groups: Mapping[str, Group]) -> str:
        """Return the form field of a label in its present version."""
        session = self._session
        candidates = session.candidates(session.labels[label_id], groups)
        seen = SeenLabel(session.version(label_id), candidates_digest(candidates))
        return seen.field(label_id)

    def _step_changes(self, step: int | None, form: FormFields) -> Response:
        """Answer the script with the changes, a description of the step, and the position of its changes."""
        session = self._session
        since = _number(form, "since", -1)
        position = find_position(self._lists, form)
        if step is None:
            answer = self._renderer.changes(position, since)
            answer["message"] = "Nothing changed."
            return JSONResponse(answer)
        original, in_effect = session.state.original(step)
        goes_there = original != step
        if goes_there:
            position = position_of_step(self._lists, step, position)
        is_other_view = position.view.query != form.get("at_view")
        versions = {}
        for event in session.state.steps[step]:
            if event.key in session.labels:
                versions[event.key] = session.version(event.key)
        answer = self._renderer.changes(position, since, everything=goes_there and is_other_view)
        answer["step"] = step
        answer["message"] = sentence(describe_step(session, step))
        answer["undo"] = "Undo" if in_effect else "Redo"
        answer["goes_there"] = goes_there
        answer["versions"] = versions
        return JSONResponse(answer)

    def _redirect(self, form: FormFields, step: int | None = None) -> Response:
        """Redirect a browser without script to the changes of an undo or redo, or to the next label."""
        position = find_position(self._lists, form)
        if step is not None and self._session.state.original(step)[0] != step:
            position = position_of_step(self._lists, step, position)
        else:
            position = next_position(self._lists, position)
        return RedirectResponse(position.address, status_code=303)

    async def landmarks(self, request: Request) -> Response:
        """Answer with the landmarks of a label, by name."""
        label_id = request.query_params.get("label", "")
        if label_id not in self._session.labels:
            return Response(status_code=404)
        landmarks = self._references.facts.landmarks(label_id)
        first = _number(request.query_params, "from", 0)
        if first >= len(landmarks):
            first = 0
        end = first + _LANDMARKS_PER_PAGE
        return self._page(
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
        guideline = guideline_html(path.read_text(encoding="utf-8"))
        return self._page("guideline.html", guideline=guideline)

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
            items = self._renderer.part("items", view["photographs"])
            return JSONResponse({"html": items, "next": view["next_start"]})
        return self._page("all_photographs.html", view=view)

    async def image(self, request: Request) -> Response:
        """Answer with a photograph, or with a placeholder that names the problem."""
        assert self._references.photographs is not None
        image_id = request.path_params["image_id"]
        size = request.path_params["size"]
        if size not in _SIZES:
            return Response(status_code=404)
        async with self._turn:
            if await request.is_disconnected():
                return Response(status_code=503)
            return await asyncio.to_thread(
                self._image, self._references.photographs, image_id, size
            )

    def _image(self, photographs: LabelPhotographs, image_id: str, size: str) -> Response:
        width, height, crop, quality = _SIZES[size]
        try:
            data = photographs.read(image_id)
            jpeg = make_thumbnail(data, width, height, crop=crop, quality=quality)
        except KeyError:
            return Response(status_code=404)
        except UnreadableImageError as error:
            problem = str(error)
            message = f"the photograph {image_id} cannot be shown: {error}"
        except (InputError, OSError, MemoryError) as error:
            problem = "its file cannot be read"
            message = f"a photograph cannot be read: {error}"
        else:
            headers = {"cache-control": _CACHE_CONTROL}
            return Response(jpeg, media_type="image/jpeg", headers=headers)
        if message not in self._logged:
            self._logged.add(message)
            log.warning("%s", message)
        return Response(_PLACEHOLDER.format(escape(problem)), media_type="image/svg+xml")


def guideline_html(text: str) -> Markup:
    r"""Return a text in Markdown, with tables, as HTML; HTML in the text is escaped.

    >>> guideline_html("A *dam* is <b>no</b> lake.")
    Markup('<p>A <em>dam</em> is &lt;b&gt;no&lt;/b&gt; lake.</p>\n')
    """
    return Markup(MarkdownIt("commonmark", {"html": False}).enable("table").render(text))  # noqa: S704 - escaped


def _number(fields: Mapping[str, str], name: str, default: int) -> int:
    number = parse_number(fields.get(name, ""))
    return default if number is None else number
