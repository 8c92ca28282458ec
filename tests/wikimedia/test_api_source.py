"""Facts and resolutions from canned documents of the APIs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hgld.errors import SourceError
from hgld.wikimedia.api_facts import PageFact, best_rank_items
from hgld.wikimedia.api_source import CLASS, ITEM, PAGE, REDIRECT_TARGET, SITELINK, ApiSource
from hgld.wikimedia.client import TooManyValuesError, WikimediaClient
from hgld.wikimedia.source import FactStore
from tests.scrapes import config_for


def statement(value: str | None, rank: str = "normal") -> dict[str, Any]:
    if value is None:
        return {"rank": rank, "mainsnak": {"snaktype": "somevalue"}}
    return {"rank": rank, "mainsnak": {"snaktype": "value", "datavalue": {"value": {"id": value}}}}


@pytest.mark.parametrize(
    ("statements", "values"),
    [
        ([], []),
        ([statement("Q1"), statement("Q2")], ["Q1", "Q2"]),
        ([statement("Q1"), statement("Q2", "preferred"), statement("Q3", "deprecated")], ["Q2"]),
        ([statement("Q1", "deprecated")], []),
        ([statement(None), statement("Q2")], ["Q2"]),
        ([statement(None, "preferred"), statement("Q2")], []),
    ],
)
def test_best_rank_items(statements: list[dict[str, Any]], values: list[str]) -> None:
    assert best_rank_items(statements) == values


class CannedClient:
    """Returns the given documents one after the other."""

    def __init__(self, *documents: dict[str, Any]) -> None:
        self.documents = list(documents)
        self.calls: list[dict[str, str]] = []

    def commons(self, parameters: dict[str, str]) -> dict[str, Any]:
        self.calls.append(parameters)
        return self.documents.pop(0)

    wikidata = commons


def source(*documents: dict[str, Any]) -> ApiSource:
    return ApiSource(CannedClient(*documents))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wikitext", "target"),
    [
        ("{{Category redirect|Comet Falls}}", "Category:Comet Falls"),
        ("{{category redirect|1=comet_Falls}}", "Category:Comet Falls"),
        ("{{Category_redirect|1=:Category:Comet Falls|reason=moved}}", "Category:Comet Falls"),
        ("{{Cat-red|Comet Falls}}", "Category:Comet Falls"),
        ("{{seecat|Comet Falls}}", "Category:Comet Falls"),
        ("<!-- {{Category redirect|Old}} --> {{Category redirect|New}}", "Category:New"),
        ("{{Wikidata Infobox|x}}\n{{Category redirect\n| 1 = A=B; 2 \n}}", "Category:A=B; 2"),
        ("{{Category redirect|reason=none}}", None),
        ("{{Category redirect|1=}}", None),
        ("{{Category navigation|Comet Falls}}", None),
        ("", None),
    ],
)
def test_soft_redirect_target(wikitext: str, target: str | None) -> None:
    page = {"title": "Category:Old", "revisions": [{"slots": {"main": {"content": wikitext}}}]}
    assert source({"query": {"pages": [page]}}).fetch(REDIRECT_TARGET, ["Category:Old"]) == {"Category:Old": target}


def test_continued_responses_are_merged() -> None:
    parts = (
        {
            "query": {"pages": [{"title": "A"}, {"title": "B", "pageprops": {"wikibase_item": "Q2"}}]},
            "continue": {"c": "1"},
        },
        {"query": {"pages": [{"title": "A", "pageprops": {"wikibase_item": "Q1"}}, {"title": "B"}]}},
    )
    api = source(*parts)
    facts = api.fetch(PAGE, ["A", "B"])
    assert {title: fact.item for title, fact in facts.items()} == {"A": "Q1", "B": "Q2"}


def test_incomplete_response_is_an_error() -> None:
    with pytest.raises(SourceError, match='does not contain "B"'):
        source({"query": {"pages": [{"title": "A"}]}}).fetch(PAGE, ["A", "B"])
    with pytest.raises(SourceError, match="does not contain Q2"):
        source({"entities": {"Q1": {"missing": ""}}}).fetch(ITEM, ["Q1", "Q2"])


def test_redirect_to_another_wiki_is_not_followed() -> None:
    document = {"query": {"redirects": [{"from": "A", "to": "en:A", "tointerwiki": "en"}]}}
    assert source(document).fetch(PAGE, ["A"])["A"].status == "redirect_unresolved"


def test_batch_size_is_halved_when_a_list_is_too_long() -> None:
    limit, lengths = 15, []

    class Limited(CannedClient):
        def wikidata(self, parameters: dict[str, str]) -> dict[str, Any]:
            ids = parameters["ids"].split("|")
            lengths.append(len(ids))
            if len(ids) > limit:
                raise TooManyValuesError("toomanyvalues")
            return {"entities": {key: {"missing": ""} for key in ids}}

    api = ApiSource(Limited())  # type: ignore[arg-type]
    ids = [f"Q{n}" for n in range(1, 51)]
    assert list(api.fetch(ITEM, ids)) == ids
    assert lengths == [50, 25, 12, 13, 25, 12, 13]
    assert api.batch_size(SITELINK) == 12


@pytest.mark.parametrize("kind", [SITELINK, PAGE, REDIRECT_TARGET, ITEM, CLASS])
def test_facts_survive_the_journal(replica: Callable[..., Any], kind: str) -> None:
    keys: dict[str, Sequence[str]] = {
        SITELINK: ["Category:Edge plain", "Category:Edge no item"],
        PAGE: ["Category:Edge hard redirect", "Category:Edge missing", "Category:Edge soft redirect"],
        REDIRECT_TARGET: ["Category:Edge soft redirect"],
        ITEM: ["Q950000001", "Q969999999", "Q961000001"],
        CLASS: ["Q16970", "Q960000008", "Q960000009"],
    }
    with replica("edge_cases.json") as server:
        client = WikimediaClient(config_for(server).client)
        api = ApiSource(client)
        facts = api.fetch(kind, keys[kind])
    assert list(facts) == list(keys[kind])
    restored = {key: api.from_json(kind, fact) for key, fact in json.loads(json.dumps(facts)).items()}
    assert restored == facts
    assert [type(fact) for fact in restored.values()] == [type(fact) for fact in facts.values()]


def test_unsendable_titles_are_invalid_without_a_request() -> None:
    assert source().resolve("Category:A|B", FactStore()).status == "invalid_title"


def page(title: str, *, soft: bool = False, redirected: bool = False, status: str = "found") -> PageFact:
    return PageFact(status, title, None, redirected, soft)


@pytest.mark.parametrize(
    ("pages", "targets", "status"),
    [
        ({"A": page("A", soft=True)}, {"A": "A"}, "redirect_loop"),
        ({"A": page("B", soft=True, redirected=True)}, {"B": "A"}, "redirect_loop"),
        ({"A": page("A", soft=True)}, {"A": None}, "redirect_unresolved"),
        ({"A": page("A", soft=True), "B": page("B", soft=True)}, {"A": "B", "B": "A"}, "redirect_loop"),
        ({"A": page("A", soft=True), "B": page("A", soft=True, redirected=True)}, {"A": "B"}, "redirect_loop"),
        ({"A": page("A", soft=True), "B": page("C", soft=True)}, {"A": "B", "C": "C"}, "redirect_loop"),
        ({"A": page("A", soft=True), "B": page("B", soft=True)}, {"A": "B", "B": "C"}, "redirect_unresolved"),
        ({"A": page("A", soft=True), "B": page("B", soft=True)}, {"A": "B", "B": None}, "redirect_unresolved"),
        ({"A": page("A", soft=True), "B": page("B", status="missing")}, {"A": "B"}, "missing"),
        ({"A": page("A", soft=True), "B": page("B")}, {"A": "B"}, "no_item"),
    ],
)
def test_redirect_chains_end_with_a_status(
    pages: dict[str, PageFact], targets: dict[str, str | None], status: str
) -> None:
    facts = FactStore()
    facts.add(SITELINK, dict.fromkeys("ABC"), 1)
    facts.add(PAGE, pages, 2)
    facts.add(REDIRECT_TARGET, targets, 3)
    assert source().resolve("A", facts).status == status
    assert facts.latest in (2, 3)
