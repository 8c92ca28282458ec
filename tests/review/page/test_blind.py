"""A blind review: the page shows no suggestions, and says so."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from hgld.review.labels import Candidate
from hgld.review.session import ReviewSession
from tests.review.page.page_server import FROM_SCRIPT, open_client, seen
from tests.review.sessions import label, open_session

#: A reason that stands nowhere else, and a score that would be shown as 87 %.
SUGGESTED = [
    replace(label(n), suggestions=(Candidate("group", "lake", "because-of-wikidata", 0.87),)) for n in (1, 2)
]


@pytest.fixture(params=[False, True], ids=["open", "blind"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ReviewSession]:
    with open_session(tmp_path / "ada.sqlite", SUGGESTED, blind=request.param) as session:
        yield session


def test_suggestions_leak_nowhere(client: TestClient, session: ReviewSession) -> None:
    client.post("/decide", data={"choose": "group:lake", "focus": "0:Q2"})
    everything = client.get("/changes").json()["parts"]
    texts = [client.get("/?label=Q1").text, "".join(everything.values()), client.get("/decisions.csv").text]
    for sign in ("because-of-wikidata", "87 %", "take:1", "Suggestion<", 'value="accept"'):
        assert any(sign in text for text in texts) != session.blind, sign
    assert "Standing water." in texts[0], "groups and guidelines stay"
    assert ('<span class="blind"' in texts[0]) == session.blind
    assert (",yes," in texts[2]) == session.blind


def test_keys_of_suggestions_say_why_they_do_nothing(client: TestClient, session: ReviewSession) -> None:
    for choose in ("accept", "take:1@0:Q1"):
        fields = {"choose": choose, "focus": seen(client.get("/").text, "Q1")}
        answer = client.post("/decide", data=fields, headers=FROM_SCRIPT)
        if session.blind:
            assert answer.status_code == 400
            assert answer.json()["error"] == "this review is blind: suggestions are hidden; choose a group"
            assert session.decisions() == []
        else:
            assert answer.status_code == 200 or choose != "accept"


def test_suggestion_that_waited_is_not_taken_by_a_blind_review(tmp_path: Path) -> None:
    with open_session(tmp_path / "ada.sqlite", SUGGESTED) as session:
        field = seen(open_client(session).get("/").text, "Q1")
    with open_session(tmp_path / "ada.sqlite", SUGGESTED, blind=True) as session:
        answer = open_client(session).post("/decide", data={"choose": "take:1", "focus": field}, headers=FROM_SCRIPT)
        assert (answer.status_code, answer.json()["error"]) == (
            400,
            "this review is blind: suggestions are hidden; choose a group",
        )
        assert session.decisions() == []
