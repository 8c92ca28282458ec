"""Random walks over all actions of a review: nothing that was acknowledged is ever lost.

The session, directly or through the page's forms, does what the plain model in :mod:`tests.review.review_model` does.
"""

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from starlette.testclient import TestClient

from hgld.errors import ConflictError, InputError
from hgld.io.table_rows import unify_line_breaks
from hgld.names import stored_name
from hgld.review.decision_files import export_decisions
from hgld.review.label_lists import LabelLists, View
from hgld.review.labels import Candidate, ReviewLabel
from hgld.review.page.serve import log_table_changes
from hgld.review.page.views import SeenLabel, cluster_views
from hgld.review.session import InvalidActionError, LabelAction, ReviewSession, candidates_digest
from hgld.review.state import FieldKind
from hgld.review.store import open_store, read_store
from hgld.taxonomy.decisions import Decision, read_decisions
from hgld.taxonomy.groups import Group, read_taxonomy, taxonomy_beside, write_taxonomy
from tests.review.page.page_server import open_client
from tests.review.review_model import ANNOTATOR, FactKey, RefusedError, ReviewModel
from tests.review.sessions import GROUPS

KINDS: tuple[FieldKind, ...] = ("decision", "cluster", "name", "group")
LONG_AGO = datetime(2020, 1, 1, tzinfo=timezone.utc)
SUGGESTIONS = (
    (Candidate("group", "lake", "near", 0.97), Candidate("group", "museum", "far", 0.05)),
    (Candidate("group", "church", "perhaps", 0.3),),
    (Candidate("group", "gone", "no such group", 0.9), Candidate("group", "lake")),
    (),
)

NAMES = st.sampled_from(["quay", "Quay", "pier", "Lake", "church", "=1+1", '\'a, "b"', "湖", "  two   words ", " "])
COMMENTS = st.sampled_from([None, "", "why", "=1+1", "'quoted'", 'a "b", c', "two\nlines", "a\rb", "湖"])
#: Which of the present labels, clusters, groups or steps an action is about: their number, modulo how many there are.
NUMBERS = st.integers(0, 11)
SEVERAL = st.lists(NUMBERS, min_size=1, max_size=3)
WINDOWS = st.sampled_from([0, 1])


def _table(rows: Iterable[tuple[int, int, str, bool]]) -> list[ReviewLabel]:
    """Return labels: number, cluster, what clusters are called, and whether the id is that of a Wikidata item."""
    labels: dict[str, ReviewLabel] = {}
    for number, cluster, naming, is_item in rows:
        row = ReviewLabel(
            label_id=f"Q{number}" if is_item else f"label-{number}",
            label=f"label {number}" if is_item else f"Label  {number}",
            landmarks=number,
            parents="",
            cluster=cluster,
            cluster_name=f"{naming} {cluster}",
            subcluster=1,
            examples=(),
            suggested_group="",
            suggestions=SUGGESTIONS[number % len(SUGGESTIONS)],
        )
        labels.setdefault(row.label_id, row)
    return list(labels.values())


def _tables() -> st.SearchStrategy[list[ReviewLabel]]:
    def rows(naming: str) -> st.SearchStrategy[list[ReviewLabel]]:
        one = st.tuples(st.integers(1, 5), st.integers(1, 3), st.just(naming), st.sampled_from([True, True, False]))
        return st.lists(one, min_size=2, max_size=6).map(_table)

    return st.sampled_from(["name", "other"]).flatmap(rows)


def _given(rows: Iterable[tuple[int, str]], merged: tuple[str, ...]) -> tuple[list[Decision], list[Group]]:
    """Return decisions of somebody else, who renamed a group, proposed one and merged others into it."""
    quay = Group("quay", "natural", "Boats.", merged=merged)
    groups = [*GROUPS[:2], Group("gallery", "human-made", "Pictures.", key="museum"), quay]
    decisions = {
        number: Decision(f"Q{number}", f"label {number}", kind, group or None, "ben", LONG_AGO, "given")
        for number, choice in rows
        for kind, _, group in [choice.partition(":")]
    }
    return list(decisions.values()), groups


GIVEN = st.builds(
    _given,
    st.lists(
        st.tuples(st.integers(1, 5), st.sampled_from(["group:quay", "group:museum", "drop", "unsure:quay"])),
        max_size=3,
    ),
    st.sampled_from([(), (), ("lake",), ("pier", "lake")]),
)


def _values(row: Decision) -> tuple[object, ...]:
    return row.label, row.decision, row.group, row.comment, row.blind, row.annotator


def refusal(action: Callable[[], None]) -> str | None:
    """Take an action and return why it was refused; None if it was not."""
    try:
        action()
    except RefusedError as error:
        return str(error)
    return None


class SessionDriver:
    """Takes the actions on the session itself, which has methods of the same names."""

    def __init__(self, session: ReviewSession) -> None:
        self.session = session

    def __getattr__(self, name: str) -> Callable[..., None]:
        def act(*arguments: object) -> None:
            try:
                getattr(self.session, name)(*arguments)
            except (ConflictError, InputError, InvalidActionError) as error:
                raise RefusedError(str(error)) from error

        return act

    def undo_last(self) -> None:
        self.undo(self.session.state.next_undo)

    def redo_last(self) -> None:
        self.undo(self.session.state.next_redo)

    def look(self) -> None:
        """Load the page, if there is one."""


class PageDriver(SessionDriver):
    """Sends the forms of the page, in turns as a browser without script and as the script does."""

    def __init__(self, session: ReviewSession, client: TestClient) -> None:
        super().__init__(session)
        self._client = client
        self._requests = 0

    def post(self, path: str, fields: Mapping[str, str | list[str]]) -> None:
        self._requests += 1
        from_script = self._requests % 2 == 0
        before = self.session.state.last_event
        label = next(iter(self.session.labels))
        position = {"at_view": f"cluster={self.session.cluster(label)}", "at_label": label, "since": str(before)}
        headers = {"accept": "application/json" if from_script else "text/html"}
        answer = self._client.post(path, data=position | dict(fields), headers=headers, follow_redirects=False)
        if answer.status_code in (400, 409):
            assert self.session.state.last_event == before, "a refused form changes nothing"
            raise RefusedError(answer.text)
        assert answer.status_code == (200 if from_script else 303), answer.text
        if from_script:
            assert answer.json()["last"] == self.session.state.last_event

    def decide(self, versions: Mapping[str, int], action: LabelAction) -> None:
        labels, groups = [], self.session.groups()
        for label_id, version in versions.items():
            candidates = self.session.candidates(self.session.labels[label_id], groups)
            labels.append(SeenLabel(version, candidates_digest(candidates)).field(label_id))
        choose = action.kind
        if action.kind == "take":
            choose = f"take:{action.candidate}" + (f"@{labels[0]}" if len(labels) == 1 else "")
        elif action.group is not None:
            choose = f"group:{action.group}"
        fields: dict[str, str | list[str]] = {"choose": choose, "label" if len(labels) > 1 else "focus": labels}
        if action.kind == "unsure" and action.group is not None:
            fields["guess"] = "1"
        if action.comment is not None:
            fields |= {"comment": action.comment, "comment_was": f"not {action.comment}"}
        self.post("/decide", fields)

    def move(self, versions: Mapping[str, int], cluster: int | None, name: str) -> None:
        labels = [f"{version}:{label_id}" for label_id, version in versions.items()]
        self.post("/move", {"label": labels, "into": "" if cluster is None else str(cluster), "name": name})

    def merge(self, cluster: int, into: int) -> None:
        self.post("/merge", {"cluster": str(cluster), "into": str(into)})

    def rename_cluster(self, cluster: int, name: str, version: int) -> None:
        self.post("/rename-cluster", {"cluster": str(cluster), "name": name, "version": str(version)})

    def propose_group(self, name: str, parent: str, guideline: str) -> None:
        self.post("/propose-group", {"name": name, "parent": parent, "guideline": guideline})

    def rename_group(self, key: str, name: str, version: int) -> None:
        self.post("/rename-group", {"group": f"{version}:{key}", "name": name})

    def merge_group(self, key: str, into: str, version: int) -> None:
        self.post("/merge-group", {"group": f"{version}:{key}", "into": into})

    def undo(self, step: int) -> None:
        self.post("/undo", {"step": str(step)})

    def undo_last(self) -> None:
        self.post("/undo", {})

    def redo_last(self) -> None:
        self.post("/redo", {})

    def look(self) -> None:
        for path in ("/", "/changes", "/changes?since=1", "/decisions.csv"):
            assert self._client.get(path).status_code == 200


class Window:
    """What one of the annotator's windows shows: versions that the next action from it names.

    Args:
        model: Model of the review.
        session: The real one.
    """

    def __init__(self, model: ReviewModel, session: ReviewSession) -> None:
        self.seen = Counter(model.versions)
        self.labels = {label_id: session.version(label_id) for label_id in session.labels}
        self.clusters = {number: session.state.field("name", str(number)).version for number in session.clusters()}
        self.groups = {key: session.state.field("group", key).version for key in session.groups()}


class Walk(RuleBasedStateMachine):
    """A review by one annotator in two windows, on a store that is closed, killed and reopened in between."""

    def __init__(self) -> None:
        super().__init__()
        self._resources = ExitStack()
        self._folder = Path(self._resources.enter_context(tempfile.TemporaryDirectory()))
        self._opened = ExitStack()
        self._store = self._folder / "ada.sqlite"
        self._taxonomy = self._folder / "taxonomy.csv"
        write_taxonomy(self._taxonomy, GROUPS)
        self.versions: dict[tuple[FieldKind, str], int] = {}
        #: Real ids of the steps of the model: of those that did it, and the last one that undid it.
        self.did: list[list[int]] = []
        self.undid: dict[int, int] = {}

    def driver(self, session: ReviewSession) -> SessionDriver:
        """Return what takes the actions."""
        return SessionDriver(session)

    def teardown(self) -> None:
        try:
            if hasattr(self, "session"):
                self.export()
                self.reopen()
        finally:
            self._opened.close()
            self._resources.close()

    # The review.

    @initialize(labels=_tables())
    def begin(self, labels: list[ReviewLabel]) -> None:
        self.model = ReviewModel(labels, GROUPS)
        self.open(labels)

    def open(self, labels: list[ReviewLabel], *, blind: bool = False) -> None:
        store = self._opened.enter_context(open_store(self._store, ANNOTATOR))
        self.session = ReviewSession(labels, GROUPS, store, blind=blind)
        log_table_changes(self.session)
        self.model.open(labels, blind=blind)
        self.lists = LabelLists(self.session)
        self.actions = self.driver(self.session)
        self.windows = [Window(self.model, self.session) for _ in range(2)]

    def act(self, real: Callable[[], None], expected: Callable[[], None]) -> None:
        """Take an action in reality and in the model; both do it, or both refuse."""
        before = len(self.model.steps)
        expected_refusal = refusal(expected)
        assert (refusal(real) is None) == (expected_refusal is None), expected_refusal
        if len(self.model.steps) > before:
            self.did.append([list(self.session.state.steps)[-1]])

    def require_seen(self, window: int, *facts: FactKey) -> None:
        """Refuse an action from a window that does not show the latest of the facts that the action is about."""
        if any(self.windows[window].seen[fact] != self.model.versions[fact] for fact in facts):
            raise RefusedError("changed in the meantime")

    def label_ids(self, numbers: list[int]) -> list[str]:
        labels = list(self.session.labels)
        return list(dict.fromkeys(labels[number % len(labels)] for number in numbers))

    def versions_seen(self, window: int, label_ids: Iterable[str]) -> dict[str, int]:
        return {label_id: self.windows[window].labels[label_id] for label_id in label_ids}

    @rule(window=WINDOWS)
    def look(self, window: int) -> None:
        self.actions.look()
        self.windows[window] = Window(self.model, self.session)

    def on_labels(
        self,
        window: int,
        numbers: list[int],
        real: Callable[[dict[str, int]], None],
        expected: Callable[[list[str]], None],
    ) -> None:
        label_ids = self.label_ids(numbers)

        def model() -> None:
            self.require_seen(window, *((kind, key) for kind in ("decision", "cluster") for key in label_ids))
            expected(label_ids)

        self.act(lambda: real(self.versions_seen(window, label_ids)), model)

    @rule(window=WINDOWS, numbers=SEVERAL, group=NUMBERS, guess=st.booleans(), comment=COMMENTS)
    def choose_group(self, window: int, numbers: list[int], group: int, guess: bool, comment: str | None) -> None:
        keys = sorted({*self.session.groups(), *self.windows[window].groups})
        action = LabelAction("unsure" if guess else "group", keys[group % len(keys)], comment=comment)
        self.decide(window, numbers, action)

    @rule(
        window=WINDOWS,
        numbers=SEVERAL,
        kind=st.sampled_from(["drop", "unsure", "accept", "accept_sure", "clear", "comment"]),
        comment=COMMENTS,
    )
    def choose(self, window: int, numbers: list[int], kind: str, comment: str | None) -> None:
        self.decide(window, numbers, LabelAction(kind, comment=comment))

    @rule(window=WINDOWS, numbers=SEVERAL, candidate=st.integers(1, 3))
    def take(self, window: int, numbers: list[int], candidate: int) -> None:
        self.decide(window, numbers, LabelAction("take", candidate=candidate))

    def decide(self, window: int, numbers: list[int], action: LabelAction) -> None:
        self.on_labels(
            window,
            numbers,
            lambda versions: self.actions.decide(versions, action),
            lambda label_ids: self.model.decide(label_ids, action),
        )

    @rule(window=WINDOWS, numbers=SEVERAL, name=NAMES)
    def split(self, window: int, numbers: list[int], name: str) -> None:
        self.on_labels(
            window,
            numbers,
            lambda versions: self.actions.move(versions, None, name),
            lambda label_ids: self.model.move(label_ids, None, " ".join(name.split())),
        )

    @rule(window=WINDOWS, numbers=SEVERAL, cluster=NUMBERS)
    def move(self, window: int, numbers: list[int], cluster: int) -> None:
        self.on_labels(
            window,
            numbers,
            lambda versions: self.actions.move(versions, cluster % 6, ""),
            lambda label_ids: self.model.move(label_ids, cluster % 6),
        )

    @rule(cluster=st.integers(1, 5), into=st.integers(1, 5))
    def merge(self, cluster: int, into: int) -> None:
        self.act(lambda: self.actions.merge(cluster, into), lambda: self.model.merge(cluster, into))

    @rule(window=WINDOWS, number=NUMBERS, name=NAMES)
    def rename_cluster(self, window: int, number: int, name: str) -> None:
        seen = self.windows[window].clusters
        cluster = list(seen)[number % len(seen)]

        def expected() -> None:
            self.require_seen(window, ("name", str(cluster)))
            self.model.rename_cluster(cluster, " ".join(name.split()))

        self.act(lambda: self.actions.rename_cluster(cluster, name, seen[cluster]), expected)

    @rule(name=NAMES, root=st.sampled_from(["natural", "human-made"]))
    def propose_group(self, name: str, root: str) -> None:
        self.act(
            lambda: self.actions.propose_group(name, root, "What belongs."),
            lambda: self.model.propose_group(" ".join(name.split()), root, "What belongs."),
        )

    @rule(window=WINDOWS, number=NUMBERS, name=NAMES)
    def rename_group(self, window: int, number: int, name: str) -> None:
        seen = self.windows[window].groups
        key = list(seen)[number % len(seen)]

        def expected() -> None:
            self.require_seen(window, ("group", key))
            self.model.rename_group(key, " ".join(name.split()))

        self.act(lambda: self.actions.rename_group(key, name, seen[key]), expected)

    @rule(window=WINDOWS, number=NUMBERS, into=NUMBERS)
    def merge_group(self, window: int, number: int, into: int) -> None:
        seen = self.windows[window].groups
        key, other = list(seen)[number % len(seen)], list(seen)[into % len(seen)]

        def expected() -> None:
            self.require_seen(window, ("group", key))
            self.model.merge_group(key, other)

        self.act(lambda: self.actions.merge_group(key, other, seen[key]), expected)

    # Undo and redo.

    def undo_number(self, number: int, real: Callable[[], None]) -> None:
        steps = len(self.session.state.steps)
        self.act(real, lambda: self.model.undo(number))
        if len(self.session.state.steps) > steps:
            self.undid[number] = list(self.session.state.steps)[-1]

    def redo_number(self, number: int, real: Callable[[], None]) -> None:
        steps = len(self.session.state.steps)
        self.act(real, lambda: self.model.redo(number))
        if len(self.session.state.steps) > steps:
            self.did[number].append(list(self.session.state.steps)[-1])

    @precondition(lambda self: self.model.done)
    @rule()
    def undo(self) -> None:
        self.undo_number(self.model.done[-1], self.actions.undo_last)

    @precondition(lambda self: self.model.undone)
    @rule()
    def redo(self) -> None:
        self.redo_number(self.model.undone[-1], self.actions.redo_last)

    @precondition(lambda self: self.model.steps)
    @rule(number=NUMBERS, first=st.booleans())
    def undo_any(self, number: int, first: bool) -> None:
        """Undo a step in the history, or the step that undid it."""
        number %= len(self.model.steps)
        if number in self.model.done:
            self.undo_number(number, lambda: self.actions.undo(self.did[number][0 if first else -1]))
        else:
            self.redo_number(number, lambda: self.actions.undo(self.undid[number]))

    @precondition(lambda self: self.model.done)
    @rule()
    def undo_and_redo(self) -> None:
        before = self.contents()
        number = self.model.done[-1]
        self.undo_number(number, self.actions.undo_last)
        if number not in self.model.done:
            self.redo_number(number, self.actions.redo_last)
        assert self.contents() == before

    # Other sessions.

    @rule()
    def reopen(self) -> None:
        before = self.contents()
        self._opened.close()
        self.open(list(self.session.labels.values()), blind=self.session.blind)
        assert self.contents() == before

    @rule()
    def kill(self) -> None:
        """Go on with what is on disk now, as after the end of the process without any notice."""
        killed = Path(tempfile.mkdtemp(dir=self._folder))
        for path in self._store.parent.glob("ada.sqlite*"):
            if not path.name.endswith("-shm"):
                shutil.copy(path, killed)
        self._opened.close()
        self._store = killed / "ada.sqlite"
        self.open(list(self.session.labels.values()), blind=self.session.blind)

    @rule(labels=_tables(), blind=st.booleans())
    def cluster_again(self, labels: list[ReviewLabel], blind: bool) -> None:
        self._opened.close()
        self.open(labels, blind=blind)

    @rule(given=GIVEN)
    def start_from_decisions(self, given: tuple[list[Decision], list[Group]]) -> None:
        """Start with ``--decisions``, the file of somebody else."""
        self.reopen()
        decisions, groups = given
        before, made = len(self.session.state.steps), len(self.model.steps)
        expected_refusal = refusal(lambda: self.model.take_over(decisions, groups))
        assert (refusal(lambda: self.actions.import_decisions(decisions, groups)) is None) == (
            expected_refusal is None
        )
        steps = list(self.session.state.steps)[before:]
        assert len(steps) == len(self.model.steps) - made
        self.did += [[step] for step in steps]

    # What must hold.

    def contents(self) -> tuple[object, ...]:
        """Return everything that the session shows."""
        session = self.session
        return (
            {row.label_id: _values(row) for row in session.decisions()},
            {key: session.decision_value(key) for key in session.labels},
            {number: [label.label_id for label in labels] for number, labels in session.clusters().items()},
            {number: session.cluster_name(number) for number in session.clusters()},
            {key: (group.name, group.root) for key, group in session.groups().items()},
            session.state.next_undo is None,
            session.state.next_redo is None,
        )

    def expected_decisions(self) -> dict[str, tuple[object, ...]]:
        return {key: (*fact, self.model.annotator(key)) for key, fact in self.model.decisions().items()}

    @invariant()
    def session_is_as_the_model(self) -> None:
        session, model = self.session, self.model
        assert {row.label_id: _values(row) for row in session.decisions()} == self.expected_decisions()
        for label_id in session.labels:
            fact, value = model.decision(label_id), session.decision_value(label_id)
            assert value == (None if fact is None else fact._asdict())
            assert session.is_decided(label_id) == (fact is not None and fact.decision is not None)
        clusters = {number: {label.label_id for label in rows} for number, rows in session.clusters().items()}
        assert clusters == model.clusters()
        assert sum(map(len, session.clusters().values())) == len(session.labels), (
            "no label is in two clusters or none"
        )
        assert {key: group.name for key, group in session.groups().items()} == model.groups()
        assert all(group.key == key for key, group in session.groups().items())
        assert all(row.group is None or row.group in session.groups() for row in session.decisions())
        assert (session.state.next_undo is None) == (not model.done)
        assert (session.state.next_redo is None) == (not model.undone)

    @invariant()
    def counts_are_right(self) -> None:
        session, model = self.session, self.model
        for view in cluster_views(session):
            members = model.clusters()[view["number"]]
            decided = sum(label_id in model.decisions() for label_id in members)
            landmarks = sum(session.labels[label_id].landmarks for label_id in members)
            assert (view["name"], view["counts"]["labels"]) == (model.cluster_name(view["number"]), len(members))
            assert (view["counts"]["decided"], view["counts"]["landmarks"]) == (decided, landmarks)
        decided_ids = [label_id for label_id in session.labels if label_id in model.decisions()]
        counts = session.counts.counts[None]
        assert (counts["labels"], counts["decided"]) == (len(session.labels), len(decided_ids))
        assert counts["landmarks"] == sum(label.landmarks for label in session.labels.values())
        assert counts["landmarks_settled"] == sum(session.labels[key].landmarks for key in decided_ids)

    @invariant()
    def filters_match_as_many_labels_as_they_say(self) -> None:
        lists = LabelLists(self.session)
        assert self.lists.counts() == {name: len(lists.label_ids(View(filters=(name,)))) for name in lists.filters}

    @invariant()
    def versions_grow(self) -> None:
        versions = {
            (kind, key): field.version for kind in KINDS for key, field in self.session.state.fields(kind).items()
        }
        assert all(versions[field] >= version for field, version in self.versions.items())
        self.versions = versions

    @rule()
    def export(self) -> None:
        """Write the decisions with the page open, and read them back."""
        state = read_store(self._store)[1]
        assert {kind: state.fields(kind) for kind in KINDS} == {
            kind: self.session.state.fields(kind) for kind in KINDS
        }
        out = self._folder / "ada.csv"
        export_decisions(self._store, out, taxonomy=self._taxonomy)
        beside = taxonomy_beside(out)
        groups = read_taxonomy(beside if beside.is_file() else self._taxonomy)
        assert [
            (group.key, group.name, group.root, group.guideline, group.items, group.merged) for group in groups
        ] == [
            (key, group.name, group.root, group.guideline, group.items, group.merged)
            for key, group in self.session.groups().items()
        ]
        rows = read_decisions(out, {group.key for group in groups})
        expected = self.expected_decisions()
        # Files of decisions hold labels in the form in which tables of labels do.
        assert {row.label_id: _values(row) for row in rows} == {
            key: (stored_name(str(label)), *choice, unify_line_breaks(str(comment)), blind, annotator)
            for key, (label, *choice, comment, blind, annotator) in expected.items()
        }


class PageWalk(Walk):
    """The same, with forms in place of calls."""

    def driver(self, session: ReviewSession) -> SessionDriver:
        client = self._opened.enter_context(open_client(session))
        return PageDriver(session, client)


QUICK = settings(max_examples=15, stateful_step_count=25, deadline=None)
LONG = settings(max_examples=400, stateful_step_count=60, deadline=None)

TestSession = Walk.TestCase
TestSession.settings = QUICK
TestPage = PageWalk.TestCase
TestPage.settings = settings(QUICK, max_examples=4, stateful_step_count=20)


@pytest.mark.slow
class TestSessionForLong(Walk.TestCase):  # type: ignore[misc, valid-type]
    settings = LONG


@pytest.mark.slow
class TestPageForLong(PageWalk.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(LONG, max_examples=100)
