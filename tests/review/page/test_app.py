"""Pages and forms: what they show and do; forms that no page sends are refused, never a fault of the server."""

import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote_from_bytes

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from hgld.pages.server import FormFields
from hgld.pages.templates import template_folder
from hgld.review.decision_files import with_opinions
from hgld.review.label_lists import LabelLists, Position, View, position_of_step
from hgld.review.labels import Candidate, ReviewLabel
from hgld.review.page.app import HANDLERS, label_action
from hgld.review.session import LabelAction, ReviewSession
from hgld.review.store import open_store
from hgld.taxonomy.groups import Group
from tests.assertions import not_none
from tests.review import sessions
from tests.review.conftest import decide as opinions
from tests.review.page.page_server import FROM_SCRIPT, REFERENCES, open_client, seen
from tests.review.sessions import GROUPS, decide, label, open_session

TEMPLATES = [template_folder(name) for name in ("pages", "review")]
NASTY = """</a><script>document.title = "broken"</script> 'quoted' "twice" & {{ 6007 * 7001 }}"""
LABELS = [*sessions.LABELS, label(6, NASTY)]


def forms(page: str) -> list[dict[str, list[str]]]:
    """Return the fields of the forms of a conflict that choose and name labels."""
    found = re.findall(r"<form.*?</form>", page, re.DOTALL)
    return [
        {name: re.findall(rf'name="{name}" value="([^"]*)"', form) for name in ("choose", "label", "comment")}
        for form in found
    ]


def test_page_has_no_inline_script_and_loads_nothing_from_other_sites(client: TestClient) -> None:
    page = client.get("/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "img-src 'self';" in policy, "no data: addresses"
    assert "unsafe" not in policy
    assert not re.search(r"<script(?! src=\"/static)|<style|\sstyle=|\son\w+=", page.text.replace("&lt;", ""))
    links = r"https://(?:commons\.wikimedia|www\.wikidata)\.org/wiki/"
    loaded = re.findall(rf'(?:src|href)="(?!{links})([^"]*)"', page.text)
    assert all(address.startswith(("/", "#")) for address in loaded)
    for path in (path for folder in TEMPLATES for pattern in ("*.css", "*.js") for path in folder.rglob(pattern)):
        assert not re.search(r"https?:|@import|url\(", path.read_text(encoding="utf-8")), path


def test_other_lists_have_no_landmarks(tmp_path: Path) -> None:
    """Neither on their pages nor, of another session in the same process, on those of landmarks."""
    nouns = ("painting", "paintings")
    paintings = replace(REFERENCES, nouns=nouns, row_nouns=nouns)
    with open_session(tmp_path / "a.sqlite") as first, open_session(tmp_path / "b.sqlite") as second:
        of_landmarks, of_paintings = open_client(first), open_client(second, references=paintings)
        for client, noun in ((of_paintings, "painting"), (of_landmarks, "landmark")):
            pages = [client.get(path).text for path in ("/", "/landmarks?label=Q2", "/photographs?label=Q2")]
            # Names of classes and addresses are not words.
            words = re.sub(r"<[^>]*>", " ", " ".join(pages))
            assert set(re.findall(r"\b(?:landmark|painting)(?=s?\b)", words)) == {noun}


def test_html_in_labels_is_escaped(client: TestClient, session: ReviewSession) -> None:
    decide(session, LabelAction("group", "lake", comment=NASTY), "Q6")
    for text in (client.get("/?label=Q6").text, *client.get("/changes?label=Q6").json()["parts"].values()):
        assert "<script>document" not in text
        assert str(6007 * 7001) not in text
    escaped = "&lt;/a&gt;&lt;script&gt;document.title = &#34;broken&#34;&lt;/script&gt; &#39;quoted&#39;"
    assert client.get("/?label=Q6").text.count(escaped) > 4


def test_decisions_without_script(client: TestClient, session: ReviewSession) -> None:
    """Decisions on one and on several labels, search, undo and redo with plain pages and redirects."""
    page = client.get("/?cluster=1").text
    assert f'name="focus" value="{seen(page, "Q1")}"' in page
    at = {"at_view": "cluster=1"}
    answer = client.post("/decide", data=at | {"choose": "group:lake", "focus": "0:Q1", "at_label": "Q1"})
    assert answer.history[0].status_code == 303
    assert f'name="focus" value="{seen(page, "Q2")}"' in answer.text, "the next undecided label"
    client.post("/decide", data=at | {"choose": "drop", "focus": "0:Q2", "label": ["0:Q2", "0:Q3"]})
    client.post("/decide", data={"choose": f"take:1@{seen(client.get('/?cluster=2').text, 'Q4')}", "label": "0:Q5"})
    decided = {row.label_id: (row.decision, row.group) for row in session.decisions()}
    drop = ("drop", None)
    assert decided == {"Q1": ("group", "lake"), "Q2": drop, "Q3": drop, "Q4": ("group", "church")}
    searched = client.get("/?groups=STANDING").text
    assert re.findall(r'value="group:(\w+)"', searched) == ["lake"]
    client.post("/undo")
    client.post("/undo")
    assert [row.label_id for row in session.decisions()] == ["Q1"]
    client.post("/redo")
    assert [row.label_id for row in session.decisions()] == ["Q1", "Q2", "Q3"]
    (first, *_) = session.state.steps
    client.post("/undo", data={"step": str(first)})
    assert [row.label_id for row in session.decisions()] == ["Q2", "Q3"]
    guess = {"choose": "group:museum", "guess": "1", "focus": "2:Q2", "comment": "or not", "comment_was": ""}
    client.post("/decide", data=guess | {"focus": f"{session.version('Q2')}:Q2"})
    value = {"label": "label 2", "decision": "unsure", "group": "museum", "comment": "or not", "blind": False}
    assert session.decision_field("Q2").value == value


def test_clusters_and_groups_without_script(client: TestClient, session: ReviewSession) -> None:
    client.post("/move", data={"label": ["0:Q1"], "into": "", "name": "split off"})
    client.post("/merge", data={"cluster": "2", "into": "1"})
    client.post("/rename-cluster", data={"cluster": "1", "name": "the rest", "version": "0"})
    assert {number: session.cluster_name(number) for number in session.clusters()} == {1: "the rest", 3: "split off"}
    client.post("/propose-group", data={"name": "quay", "parent": "human-made", "guideline": "Where boats land."})
    client.post("/rename-group", data={"group": "0:lake", "name": "still water"})
    assert [group.name for group in session.groups().values()] == ["church", "still water", "museum", "quay"]


@pytest.mark.parametrize(
    ("path", "data", "problem"),
    [
        ("/decide", {"choose": "drop"}, "no label is selected"),
        ("/decide", {"choose": "drop", "focus": "Q1"}, "not a label with its version"),
        ("/decide", {"choose": "drop", "focus": "0:Q99"}, "no label Q99"),
        ("/decide", {"choose": "group:nonsense", "focus": "0:Q1"}, "group does not exist"),
        ("/decide", {"choose": "nonsense", "focus": "0:Q1"}, "not an action"),
        ("/decide", {"choose": "take:x", "focus": "0:Q3"}, "there is no suggestion 0"),
        ("/move", {"focus": "0:Q1", "into": "77"}, "cluster 77 does not exist"),
        ("/move", {"focus": "0:Q1", "into": ""}, "enter a name"),
        ("/merge", {"cluster": "1", "into": "1"}, "another cluster"),
        ("/rename-cluster", {"cluster": "1", "name": " ", "version": "0"}, "enter a name"),
        ("/propose-group", {"name": "Lake", "parent": "natural", "guideline": "x"}, "already"),
        ("/propose-group", {"name": "quay", "parent": "odd", "guideline": "x"}, "choose a root"),
        ("/undo", {}, "nothing to undo"),
        ("/undo", {"step": "x"}, "expected a number"),
    ],
)
def test_invalid_requests_are_refused_with_a_reason(
    client: TestClient, session: ReviewSession, path: str, data: dict[str, str], problem: str
) -> None:
    assert problem in client.post(path, data=data, headers=FROM_SCRIPT).json()["error"]
    answer = client.post(path, data=data)
    assert answer.status_code == 400
    assert "Back to the labels" in answer.text
    assert session.state.last_event == 0


def test_stale_request_gets_409_with_both_decisions_and_both_choices(
    client: TestClient, session: ReviewSession
) -> None:
    decide(session, LabelAction("group", "museum"), "Q2")
    data = {"choose": "drop", "label": ["0:Q1", "0:Q2"], "at_view": "cluster=1", "at_label": "Q1"}
    answer = client.post("/decide", data=data)
    assert answer.status_code == 409
    theirs, mine = re.findall(r"<td><span class=\"decision (\w+)\">", answer.text)
    assert (theirs, mine) == ("group", "drop")
    assert client.post("/decide", data=data, headers=FROM_SCRIPT).json()["conflict"] in answer.text

    keep, save = forms(answer.text)
    client.post("/decide", data=keep)
    assert {row.label_id: row.group or row.decision for row in session.decisions()} == {"Q1": "drop", "Q2": "museum"}
    assert client.post("/decide", data=save).status_code == 409, "the first form has changed Q1"
    client.post("/undo")
    client.post("/undo")
    client.post("/redo")
    _, save = forms(client.post("/decide", data={"choose": "take:1@0:Q2"}).text)
    client.post("/decide", data=save)
    assert {row.label_id: row.group for row in session.decisions()} == {"Q2": "lake"}


def test_changes_since_an_event(client: TestClient, session: ReviewSession) -> None:
    decide(session, LabelAction("drop"), "Q1")
    seen = session.state.last_event
    quiet = client.get(f"/changes?since={seen}&at_view=cluster%3D1&at_label=Q1&shown=Q2").json()
    assert (quiet["rows"], list(quiet["parts"]), quiet["last"]) == ({}, ["card"], seen)
    assert client.get(f"/changes?since={seen}&at_view=cluster%3D1&at_label=Q1&shown=Q1").status_code == 204
    decide(session, LabelAction("drop"), "Q2", "Q4")
    update = client.get(f"/changes?since={seen}&at_view=cluster%3D1&at_label=Q1").json()
    assert list(update["rows"]) == ["Q2"], "Q4 is in another cluster"
    assert set(update["parts"]) == {"card", "status", "clusters", "history"}
    session.move({"Q2": session.version("Q2")}, 2)
    update = client.get(f"/changes?since={seen}&at_view=cluster%3D1&at_label=Q2").json()
    assert set(update["parts"]) == {"card", "status", "clusters", "history", "head", "list"}
    assert 'data-label="Q2"' not in update["parts"]["list"]
    assert update["label"] != "Q2"


def test_download_has_the_decisions(client: TestClient, session: ReviewSession) -> None:
    decide(session, LabelAction("group", "lake", comment="=1+1"), "Q6")
    answer = client.get("/decisions.csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="ada.csv"'
    (row,) = csv.DictReader(io.StringIO(answer.text))
    assert (row["label_id"], row["label"], row["group"], row["comment"]) == ("Q6", NASTY, "lake", "'=1+1")


def test_text_contrast(client: TestClient) -> None:
    """WCAG AA: every text colour has a contrast of at least 4.5 on every background, in both themes."""
    style = (template_folder("pages") / "style" / "base.css").read_text(encoding="utf-8")
    pairs = dict(re.findall(r"--([\w-]+): (light-dark\([^)]*\))", style))

    def luminance(colour: str) -> float:
        digits = colour if len(colour) == 6 else "".join(2 * digit for digit in colour)
        channels = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return float(sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True)))

    for theme in (0, 1):
        colours = {name: luminance(re.findall(r"#(\w+)", pair)[theme]) for name, pair in pairs.items()}
        texts = ["ink", "faint", "accent", "group", "drop", "unsure", "natural", "made"]
        on = [(text, ground) for text in texts for ground in ("ground", "panel", "raised", "current", "ticked")]
        for text, ground in [*on, ("on-accent", "accent"), ("ground", "ink")]:
            low, high = sorted((colours[text], colours[ground]))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (theme, text, ground)


def test_opinions_are_shown_side_by_side_and_can_be_taken(tmp_path: Path) -> None:
    labels = with_opinions(LABELS, [opinions("ben", "- drop"), opinions("cleo", "- museum")], {"Q1"})
    with open_session(tmp_path / "final.sqlite", labels) as session:
        client = open_client(session)
        page = client.get("/").text
        (row,) = re.findall(r'<li class="row".*?</li>', page, re.DOTALL)
        assert re.findall(r'class="annotator">(\w+)</small>.*?class="decision (\w+)', row, re.DOTALL) == [
            ("ben", "drop"),
            ("cleo", "group"),
        ]
        assert "lake" not in row, "no suggestions beside opinions"
        client.post("/decide", data={"choose": "take:1", "focus": seen(page, "Q1")})
        (settled,) = session.decisions()
        assert (settled.decision, settled.comment, settled.annotator) == ("drop", "ben on 1", "ada")
        client.post("/rename-group", data={"group": "0:lake", "name": "water"})
        assert session.groups()["lake"].name == "water"


def test_groups_are_merged_and_their_conflicts_shown(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.sqlite", "ada") as store:
        session = ReviewSession(LABELS, GROUPS, store, group_problems={"museum": "two names"})
        client = open_client(session)
        client.post("/propose-group", data={"name": "Gallery", "parent": "human-made", "guideline": "Pictures."})
        decide(session, LabelAction("group", "gallery"), "Q1")
        version = session.state.field("group", "gallery").version
        client.post("/merge-group", data={"group": f"{version}:gallery", "into": "museum"})
        assert list(session.groups()) == ["church", "lake", "museum"]
        page = client.get("/").text
        assert "<b>museum</b>: two names" in page
        assert "group Gallery merged into museum" in page
        assert re.search(r"label 1: museum", page), "the history names the group that took the labels"
        for data in (
            {"group": "0:lake", "into": "lake"},
            {"group": "0:nonsense", "into": "lake"},
            {"group": "0:lake"},
        ):
            assert client.post("/merge-group", data=data).status_code == 400
        assert client.post("/merge-group", data={"group": "99:lake", "into": "museum"}).status_code == 409
        client.post("/undo", data={})
        assert [(row.label_id, row.group) for row in session.decisions()] == [("Q1", "gallery")]


def test_undo_answers_with_what_it_undid_and_where(client: TestClient, session: ReviewSession) -> None:
    decide(session, LabelAction("group", "church"), "Q4")
    at = {"at_view": "cluster=1", "at_label": "Q1", "since": str(session.state.last_event)}
    answer = client.post("/undo", data=at, headers=FROM_SCRIPT).json()
    assert (answer["view"], answer["label"], answer["message"]) == ("cluster=2", "Q4", "Undone: label 4: church.")
    assert "list" in answer["parts"], "the script shows another cluster"
    answer = client.post("/redo", data=at | {"at_view": "cluster=2"}, headers=FROM_SCRIPT).json()
    assert (answer["view"], answer["label"], answer["message"]) == ("cluster=2", "Q4", "Redone: label 4: church.")
    page = client.post("/undo", data=at)
    assert page.url.params["cluster"] == "2"
    assert "undone: label 4: church" in page.text, "in the history"


def test_position_after_undo(session: ReviewSession) -> None:
    start = Position(View(1), "Q1")

    def after_undo(step: int | None) -> Position:
        assert step is not None
        undone = not_none(session.undo(step))
        return position_of_step(LabelLists(session), undone, start)

    decide(session, LabelAction("drop"), "Q4")
    assert after_undo(session.merge(2, 1)) == Position(View(2), "Q5"), "the first undecided label that was moved back"
    assert after_undo(session.rename_cluster(2, "towers", 0)) == Position(View(2), "Q5")
    assert after_undo(session.propose_group("quay", "human-made", "Where boats land.")) == start
    assert after_undo(decide(session, LabelAction("drop"), "Q2", "Q1")) == start


FORM = {"content-type": "application/x-www-form-urlencoded"}
#: Values that some field takes, and values that look like them.
WORDS = (
    "0 1 2 77 -1 ² ٣ 1e3 0:Q1 1:Q1 0:Q4 0:Q99 Q1 : ²:Q1 0:lake 1:quay 0: lake quay natural human-made x accept "
    "accept_sure clear comment drop enter unsure group:lake group:quay group: above:natural above: take:1 take:² "
    "take:1@0:Q1 take:1@x:Q1 take:@: cluster=1 filter=undecided&order=settling&as_of=0 order=table&q=x "
    "below=x undecided settling"
)
HUGE = "9" * 5000
VALUES = st.sampled_from(["", " 1", "9" * 19, HUGE, f"{HUGE}:Q1", f"take:{HUGE}@0:Q1", *WORDS.split()]).map(
    str.encode
) | st.sampled_from([b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80", b"a\r\nb", b"\xe2\x80\xae"])
NAMES = st.sampled_from(
    b"choose focus label comment comment_was guess into name group parent guideline step version at_view at_label "
    b"cluster filter below order as_of since shown q groups request store again \0".split()
)
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=8)
ADDRESSES = [*HANDLERS, "/", "/changes", "/decisions.csv", "/landmarks", "/guideline", "/open"]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(address=st.sampled_from(ADDRESSES), fields=FIELDS, from_script=st.booleans())
def test_no_form_is_a_fault_of_the_server(
    client: TestClient, address: str, fields: list[tuple[bytes, bytes]], from_script: bool
) -> None:
    """The session goes from example to example, so that groups, clusters and steps exist or are gone again."""
    encoded = "&".join(f"{quote_from_bytes(name)}={quote_from_bytes(value)}" for name, value in fields)
    headers = FORM | (FROM_SCRIPT if from_script else {})
    if address in HANDLERS:
        answer = client.post(address, content=encoded, headers=headers, follow_redirects=False)
    else:
        answer = client.get(f"{address}?{encoded[:4000]}", headers=headers, follow_redirects=False)
    assert answer.status_code < 500, (address, fields)
    if from_script and address in HANDLERS and answer.status_code in (400, 409):
        assert answer.json()["error"]


def test_addresses_are_complete(client: TestClient) -> None:
    assert isinstance(client.app, Starlette)
    paths = {route.path for route in client.app.routes if isinstance(route, Route) and "{" not in route.path}
    assert paths <= set(ADDRESSES)


def test_choice_of_a_group_that_was_undone_is_refused_also_for_a_label_that_changed(
    client: TestClient, session: ReviewSession
) -> None:
    step = not_none(session.propose_group("quay", "human-made", "Where boats land."))
    session.undo(step)
    decide(session, LabelAction("drop"), "Q1")
    answer = client.post("/decide", data={"choose": "group:quay", "focus": "0:Q1"}, headers=FROM_SCRIPT)
    assert (answer.status_code, answer.json()["conflict"]) == (400, "")
    assert "does not exist" in answer.json()["error"]


def test_request_that_is_sent_again_is_done_once(client: TestClient, session: ReviewSession) -> None:
    group = {"name": "quay", "parent": "human-made", "guideline": "Where boats land.", "request": "one"}
    first, again = (client.post("/propose-group", data=group, headers=FROM_SCRIPT) for _ in range(2))
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json()["step"] == again.json()["step"]
    assert list(session.groups()) == ["church", "lake", "museum", "quay"]
    # Also by a server that was started in between, and does not remember the request.
    choice = {"choose": "group:quay", "label": ["0:Q1", "0:Q2"]}
    client.post("/decide", data=choice)
    steps = list(session.state.steps)
    other = open_client(session)
    assert other.post("/decide", data=choice, headers=FROM_SCRIPT).status_code == 409
    assert other.post("/decide", data=choice | {"again": "1"}, headers=FROM_SCRIPT).status_code == 200
    assert list(session.state.steps) == steps
    decide(session, LabelAction("drop"), "Q2")
    assert other.post("/decide", data=choice | {"again": "1"}, headers=FROM_SCRIPT).status_code == 409


def test_form_of_a_page_with_other_decisions_is_refused(client: TestClient, session: ReviewSession) -> None:
    """Another annotator's page, which was at the same address before, may still be open."""
    answer = client.post("/decide", data={"choose": "drop", "focus": "0:Q1", "store": "other"}, headers=FROM_SCRIPT)
    assert answer.status_code == 403
    assert session.decisions() == []


def test_comment_stays_with_its_label(client: TestClient, session: ReviewSession) -> None:
    page = client.get("/").text
    typed = {"focus": seen(page, "Q1"), "comment": "of Q1", "comment_was": ""}
    client.post("/decide", data=typed | {"choose": f"take:1@{seen(page, 'Q2')}"})
    assert [(row.label_id, row.comment) for row in session.decisions()] == [("Q2", "")]
    client.post("/decide", data=typed | {"choose": f"take:1@{seen(page, 'Q1')}"})
    assert {row.label_id: row.comment for row in session.decisions()} == {"Q1": "of Q1", "Q2": ""}


def test_enter_without_script_does_what_the_button_beside_the_field_says(
    client: TestClient, session: ReviewSession
) -> None:
    client.post("/decide", data={"choose": "enter", "focus": "0:Q1", "comment": "why", "comment_was": "", "name": ""})
    assert session.decision_field("Q1").value["comment"] == "why"
    client.post("/decide", data={"choose": "enter", "focus": "0:Q2", "into": "", "name": "still waters"})
    assert session.cluster_name(session.cluster("Q2")) == "still waters"


@pytest.mark.parametrize(
    ("comment", "before", "expected"),
    [
        ("", "", None),
        ("why", "why", None),
        (" why ", "", "why"),
        ("", "why", ""),
        ("onetwo", "one\r\ntwo", None),  # what a text field makes of a comment with two lines
        ("one two", "one\ntwo", "one two"),
    ],
)
def test_only_a_changed_comment_is_saved(comment: str, before: str, expected: str | None) -> None:
    form = FormFields([("choose", "drop"), ("comment", comment), ("comment_was", before)])
    assert label_action(form) == LabelAction("drop", comment=expected)


def test_form_without_a_comment_field_removes_the_comment_shown() -> None:
    assert label_action(FormFields([("choose", "drop"), ("comment_was", "why")])) == LabelAction("drop", comment="")


def suggesting(*groups: str) -> list[ReviewLabel]:
    """Three labels with suggestions in this order, and one without."""
    suggestions = tuple(Candidate("group", group, "because", 0.9) for group in groups)
    return [*(replace(label(number), suggestions=suggestions) for number in (1, 2, 3)), label(4, suggested=None)]


@pytest.mark.parametrize("choose", ["accept", "accept_sure", "take:1", "take:2"])
@pytest.mark.parametrize("from_script", [True, False])
def test_what_was_seen_is_taken_after_a_restart_or_nothing_is(tmp_path: Path, choose: str, from_script: bool) -> None:
    """A form that waited while suggestions were made again is not about the new ones."""
    with open_session(tmp_path / "a.sqlite", suggesting("lake", "church")) as session:
        page = open_client(session).get("/").text
    waiting = {"choose": choose, "label": [seen(page, "Q1"), seen(page, "Q2"), seen(page, "Q4")], "again": "1"}
    headers = FROM_SCRIPT if from_script else {}
    with open_session(tmp_path / "a.sqlite", suggesting("museum", "lake")) as session:
        client = open_client(session)
        answer = client.post("/decide", data=waiting, headers=headers)
        assert answer.status_code == 409
        assert session.decisions() == []
        conflict = answer.json()["conflict"] if from_script else answer.text
        assert "The suggestions of these labels have changed" in conflict
        new = "lake" if choose == "take:2" else "museum"
        assert re.findall(r"</b> (\w+)</span>", conflict) == [new, new]
        keep, save = (form["label"] for form in forms(conflict))
        assert (len(keep), len(save)) == (1, 3)
        assert client.post("/decide", data={"choose": "drop", "label": seen(page, "Q3")}).status_code == 200
        client.post("/decide", data={"choose": choose, "label": save})
        assert {row.label_id: row.group for row in session.decisions()} == {"Q1": new, "Q2": new, "Q3": None}
    with open_session(tmp_path / "a.sqlite", suggesting("museum", "lake")[:2]) as session:
        third = {"choose": choose, "label": seen(page, "Q3")}
        assert open_client(session).post("/decide", data=third).status_code == 400, "the label is gone"


def test_suggestions_that_stay_are_taken_after_a_restart(tmp_path: Path) -> None:
    with open_session(tmp_path / "a.sqlite", suggesting("lake", "church")) as session:
        page = open_client(session).get("/").text
    again = [replace(each, suggestions=each.suggestions[::-1]) if each.label_id == "Q2" else each for each in LABELS]
    again[0] = replace(suggesting("lake", "church")[0], landmarks=77)
    with open_session(tmp_path / "a.sqlite", again) as session:
        client = open_client(session)
        assert client.post("/decide", data={"choose": "take:2", "label": seen(page, "Q1")}).status_code == 200
        assert {row.label_id: row.group for row in session.decisions()} == {"Q1": "church"}


@pytest.mark.parametrize("choose", ["accept", "take:1", "take:2"])
def test_opinions_in_another_order_are_not_taken_for_each_other(tmp_path: Path, choose: str) -> None:
    both = [opinions("ben", "- lake"), opinions("cleo", "- museum")]
    with open_session(tmp_path / "final.sqlite", with_opinions(LABELS, both, {"Q1"})) as session:
        page = open_client(session).get("/").text
    waiting = {"choose": choose, "label": seen(page, "Q1")}
    with open_session(tmp_path / "final.sqlite", with_opinions(LABELS, both[::-1], {"Q1"})) as session:
        client = open_client(session)
        answer = client.post("/decide", data=waiting)
        assert answer.status_code == 409
        assert "The opinions on this label have changed" in answer.text
        assert session.decisions() == []
    with open_session(tmp_path / "final.sqlite", with_opinions(LABELS, both, {"Q1"})) as session:
        assert open_client(session).post("/decide", data=waiting).status_code == 200
        assert [row.group for row in session.decisions()] == ["museum" if choose == "take:2" else "lake"]


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ([0.3, 0.2, 0.1], None),
        ([0.3] + 11 * [0.05], "9 more suggestions"),
        ([0.9, 0.01], "1 more suggestion"),
        ([], None),
    ],
)
def test_card_says_how_many_suggestions_are_folded_away(
    tmp_path: Path, scores: list[float], said: str | None
) -> None:
    groups = [Group(f"group {number}", "natural", "A test.") for number in range(12)]
    pairs = zip(groups, scores, strict=False)
    suggestions = tuple(Candidate("group", group.key, "because", score) for group, score in pairs)
    for blind in (False, True):
        labels = [replace(label(1), suggestions=suggestions)]
        with open_session(tmp_path / f"{blind}.sqlite", labels, groups, blind=blind) as session:
            found = re.findall(r"<summary>(\d+ more suggestions?)", open_client(session).get("/").text)
            assert found == ([] if blind or said is None else [said])


def test_candidates_that_moved_up_are_not_taken_for_those_before(tmp_path: Path) -> None:
    """The group of the first candidate was proposed, and its proposal was undone in another tab."""
    with open_session(tmp_path / "a.sqlite", [label(9, "label 1")]) as session:
        session.propose_group("quay", "human-made", "Where boats land.")
        decide(session, LabelAction("group", "quay"), "Q9")
    with open_session(tmp_path / "a.sqlite") as session:
        client = open_client(session)
        value = seen(client.get("/").text, "Q1")
        decided, proposed = sorted(session.state.steps, reverse=True)
        session.undo(decided)
        session.undo(proposed)
        assert client.post("/decide", data={"choose": "take:1", "label": value}).status_code == 409
        assert client.post("/decide", data={"choose": "take:1", "label": "0:Q1"}).status_code == 409, "nothing seen"
        assert session.decisions() == []


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/move", {"label": "0:Q1", "into": "2"}),
        ("/move", {"label": "0:Q1", "into": "", "name": "new"}),
        ("/merge", {"cluster": "1", "into": "2"}),
        ("/rename-cluster", {"cluster": "1", "name": "first", "version": "0"}),
    ],
)
def test_numbers_of_clusters_are_not_taken_for_those_of_another_clustering(
    tmp_path: Path, path: str, fields: dict[str, str]
) -> None:
    with open_session(tmp_path / "a.sqlite") as session:
        page = open_client(session).get("/").text
    found = set(re.findall(r'name="clustering" value="([^"]*)"', page))
    assert len(found) == 1
    fields["clustering"] = found.pop()
    again = [replace(each, cluster_name=f"other {each.cluster}") for each in LABELS]
    with open_session(tmp_path / "a.sqlite", again) as session:
        answer = open_client(session).post(path, data=fields, headers=FROM_SCRIPT)
        is_refused = answer.status_code == 409 and "the clusters have changed" in answer.json()["error"]
        assert is_refused == (fields.get("into") != "")
    with open_session(tmp_path / "b.sqlite") as session:
        assert open_client(session).post(path, data=fields, headers=FROM_SCRIPT).status_code == 200


def test_texts_of_a_conflict_are_whole(client: TestClient, session: ReviewSession) -> None:
    decide(session, LabelAction("drop"), "Q1")
    typed = {"choose": "unsure", "focus": "0:Q1", "comment": "ask ada@example.org", "comment_was": ""}
    _, save = forms(client.post("/decide", data=typed).text)
    client.post("/decide", data=save)
    assert [row.comment for row in session.decisions()] == ["ask ada@example.org"]
