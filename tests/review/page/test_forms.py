"""Forms: what they do, and that those which no page sends are refused with a reason, never a fault of the server."""

from urllib.parse import quote_from_bytes

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from hgld.pages.server import FormFields
from hgld.review.page.forms import HANDLERS, label_action
from hgld.review.session import LabelAction, ReviewSession
from tests.review.page.page_server import open_client
from tests.review.sessions import decide

FROM_SCRIPT = {"accept": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}
#: Values that some field takes, and values that look like them.
WORDS = (
    "0 1 2 77 -1 ² ٣ 1e3 0:Q1 1:Q1 0:Q4 0:Q99 Q1 : ²:Q1 0:lake 1:quay 0: lake quay natural human-made x accept "
    "accept_sure clear comment drop enter unsure group:lake group:quay group: take:1 take:² take:1@0:Q1 take:1@x:Q1 "
    "take:@: cluster=1 filter=undecided&order=settling&as_of=0 order=table&q=x below=x undecided settling"
)
HUGE = "9" * 5000
VALUES = st.sampled_from(["", " 1", "9" * 19, HUGE, f"{HUGE}:Q1", f"take:{HUGE}@0:Q1", *WORDS.split()]).map(
    str.encode
) | st.sampled_from([b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80", b"a\r\nb", b"\xe2\x80\xae"])
NAMES = st.sampled_from(
    b"choose focus label comment comment_was guess into name group root guideline step version at_view at_label "
    b"cluster filter below order as_of since shown q groups request store again theme \0".split()
)
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=8)
ADDRESSES = [*HANDLERS, "/theme", "/", "/changes", "/rows", "/decisions.csv", "/landmarks", "/guideline", "/open"]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(address=st.sampled_from(ADDRESSES), fields=FIELDS, from_script=st.booleans())
def test_no_form_is_a_fault_of_the_server(
    client: TestClient, address: str, fields: list[tuple[bytes, bytes]], from_script: bool
) -> None:
    """The session goes from example to example, so that groups, clusters and steps exist or are gone again."""
    encoded = "&".join(f"{quote_from_bytes(name)}={quote_from_bytes(value)}" for name, value in fields)
    headers = FORM | (FROM_SCRIPT if from_script else {})
    if address in HANDLERS or address == "/theme":
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
    step = session.propose_group("quay", "human-made", "Where boats land.")
    assert step is not None
    session.undo(step)
    decide(session, LabelAction("drop"), "Q1")
    answer = client.post("/decide", data={"choose": "group:quay", "focus": "0:Q1"}, headers=FROM_SCRIPT)
    assert (answer.status_code, answer.json()["conflict"]) == (400, "")
    assert "does not exist" in answer.json()["error"]


def test_request_that_is_sent_again_is_done_once(client: TestClient, session: ReviewSession) -> None:
    group = {"name": "quay", "root": "human-made", "guideline": "Where boats land.", "request": "one"}
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
    typed = {"focus": "0:Q1", "comment": "of Q1", "comment_was": ""}
    client.post("/decide", data=typed | {"choose": "take:1@0:Q2"})
    assert [(row.label_id, row.comment) for row in session.decisions()] == [("Q2", "")]
    client.post("/decide", data=typed | {"choose": "take:1@0:Q1"})
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
