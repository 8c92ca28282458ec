"""Facts and resolutions from canned documents of the APIs."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hgld.errors import SourceError
from hgld.wikimedia.api_documents import Statement, read_document
from hgld.wikimedia.api_facts import PageFact, RequestedProperties, best_rank_items, class_fact
from hgld.wikimedia.api_source import CLASS, ITEM, PAGE, REDIRECT_TARGET, SITELINK, ApiSource
from hgld.wikimedia.client import TooManyValuesError, UnknownEntityError, WikimediaClient
from hgld.wikimedia.source import FactStore
from tests.scrapes import client_config


def statement(value: str | None, rank: str = "normal") -> dict[str, Any]:
    if value is None:
        return {"rank": rank, "mainsnak": {"snaktype": "somevalue"}}
    return {"rank": rank, "mainsnak": {"snaktype": "value", "datavalue": {"value": {"id": value}}}}


@pytest.mark.parametrize(
    ("statements", "values"),
    [
        ([], ()),
        ([statement("Q1"), statement("Q2")], ("Q1", "Q2")),
        ([statement("Q1"), statement("Q2", "preferred"), statement("Q3", "deprecated")], ("Q2",)),
        ([statement("Q1", "deprecated")], ()),
        ([statement(None), statement("Q2")], ("Q2",)),
        ([statement(None, "preferred"), statement("Q2")], ()),
    ],
)
def test_best_rank_items(statements: list[dict[str, Any]], values: tuple[str, ...]) -> None:
    assert best_rank_items([read_document(Statement, value) for value in statements]) == values


class CannedClient:
    """Returns the given documents one after the other."""

    def __init__(self, *documents: dict[str, Any]) -> None:
        self.documents = list(documents)
        self.calls: list[dict[str, str]] = []

    def commons(self, parameters: dict[str, str], read: Callable[[dict[str, Any]], Any]) -> Any:
        self.calls.append(parameters)
        try:
            return read(self.documents.pop(0))
        except ValueError as error:  # the real client gives up after some repetitions
            raise SourceError(str(error)) from error

    wikidata = commons


class AnsweringClient(CannedClient):
    """Answers calls by the keys that they ask for."""

    def __init__(self, answer: Callable[[list[str]], dict[str, Any]]) -> None:
        super().__init__()
        self.answer = answer

    def wikidata(self, parameters: dict[str, str], read: Callable[[dict[str, Any]], Any]) -> Any:
        self.documents = [self.answer(parameters["titles" if "titles" in parameters else "ids"].split("|"))]
        return self.commons(parameters, read)


def answering(answer: Callable[[list[str]], dict[str, Any]]) -> tuple[ApiSource, list[dict[str, str]]]:
    """Return a source that a function answers, and the list of its calls."""
    client = AnsweringClient(answer)
    return ApiSource(client), client.calls  # type: ignore[arg-type]


TRUNCATED = {"warnings": {"result": {"warnings": "truncated"}}}


def source(*documents: dict[str, Any]) -> ApiSource:
    return ApiSource(CannedClient(*documents))  # type: ignore[arg-type]


def query(*pages: dict[str, Any], **parts: Any) -> dict[str, Any]:
    return {"batchcomplete": True, "query": {"pages": list(pages)} | parts}


def item(key: str, **claims: Any) -> dict[str, Any]:
    return {"id": key, "lastrevid": 1, "claims": claims}


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
    assert source(query(page)).fetch(REDIRECT_TARGET, ["Category:Old"]) == {"Category:Old": target}


@pytest.mark.parametrize(
    ("links", "target"), [(["Category:New"], "Category:New"), (["Category:New", "Category:Other"], None), ([], None)]
)
def test_target_of_an_unknown_template_is_the_only_linked_category(links: list[str], target: str | None) -> None:
    page = {
        "title": "Category:Old",
        "revisions": [{"slots": {"main": {"content": "{{Moved category|New}}"}}}],
        "links": [{"ns": 14, "title": title} for title in links],
    }
    assert source(query(page)).fetch(REDIRECT_TARGET, ["Category:Old"]) == {"Category:Old": target}


@pytest.mark.parametrize("sign", ["templates", "categories"])
def test_soft_redirect_is_recognised_by_its_template_or_its_category(sign: str) -> None:
    page = {"title": "A", sign: [{"ns": 14, "title": "Category:Category redirects"}]}
    assert source(query(page)).fetch(PAGE, ["A"])["A"].soft_redirect
    assert not source(query({"title": "A"})).fetch(PAGE, ["A"])["A"].soft_redirect


def test_continued_responses_are_merged() -> None:
    parts = (
        {
            "query": {"pages": [{"title": "A"}, {"title": "B", "pageprops": {"wikibase_item": "Q2"}}]},
            "continue": {"c": "1"},
        },
        query({"title": "A", "pageprops": {"wikibase_item": "Q1"}}, {"title": "B"}),
    )
    facts = source(*parts).fetch(PAGE, ["A", "B"])
    assert {title: fact.item for title, fact in facts.items()} == {"A": "Q1", "B": "Q2"}


def test_page_that_is_odd_in_one_part_is_not_read_from_the_others() -> None:
    parts = (
        {"query": {"pages": [{"title": "A"}, {"title": "B"}]}, "continue": {"c": "1"}},
        query({"title": "A", "pageprops": {"wikibase_item": 7}}, {"title": "B"}),
        query({"title": "A", "pageprops": {"wikibase_item": "Q1"}}),
    )
    facts = source(*parts).fetch(PAGE, ["A", "B"])
    assert {title: fact.item for title, fact in facts.items()} == {"A": "Q1", "B": None}


def test_endless_continuation_is_an_error() -> None:
    part = {"query": {"pages": [{"title": "A"}]}, "continue": {"c": "1"}}
    with pytest.raises(SourceError, match="continues where it began"):
        source(part, part, part).fetch(PAGE, ["A"])
    parts = ({"query": {"pages": [{"title": "A"}]}, "continue": {"c": n}} for n in range(600))
    with pytest.raises(SourceError, match="more than 500 parts"):
        source(*parts).fetch(PAGE, ["A"])


def test_keys_that_a_response_lacks_are_asked_for_again(caplog: pytest.LogCaptureFixture) -> None:
    assert list(source(query({"title": "A"}), query({"title": "B"})).fetch(PAGE, ["A", "B"])) == ["A", "B"]
    halves = source({"entities": {"Q1": item("Q1")}}, {"entities": {"Q2": item("Q2")}})
    assert list(halves.fetch(ITEM, ["Q1", "Q2"])) == ["Q1", "Q2"]
    absent = source({"entities": {"Q1": item("Q1")}}, {"entities": {}})
    assert list(absent.fetch(ITEM, ["Q1", "Q2"])) == ["Q1"]
    assert "1 of 2 item facts could not be fetched: the response contains none of the entities" in caplog.text


@pytest.mark.parametrize("kind", [ITEM, SITELINK, CLASS])
@pytest.mark.parametrize("limit", [1, 7, 49])
def test_truncated_responses_are_asked_for_again_until_all_entities_are_there(kind: str, limit: int) -> None:
    keys = [f"Q{n}" for n in range(1, 51)]

    def answer(asked: list[str]) -> dict[str, Any]:
        terms: dict[str, Any] = {"labels": {}, "descriptions": {}}
        entities = {
            key: item(key) | terms | {"sitelinks": {"commonswiki": {"title": key}}}
            if int(key[1:]) % 3
            else {"missing": "", "title": key}
            for key in asked[:limit]
        }
        return {"entities": entities, **(TRUNCATED if len(asked) > limit else {})}

    api, calls = answering(answer)
    assert list(api.fetch(kind, keys)) == keys
    assert len(calls) == -(-50 // limit)
    assert api.batch_size(ITEM) == 50


def test_entity_that_is_larger_than_the_limit_fails_alone() -> None:
    def answer(keys: list[str]) -> dict[str, Any]:
        before = keys[: keys.index("Q3")] if "Q3" in keys else keys
        return {"entities": {key: item(key) for key in before}, **({} if before == keys else TRUNCATED)}

    api, _ = answering(answer)
    assert list(api.fetch(ITEM, ["Q3", "Q1", "Q2", "Q4", "Q5"])) == ["Q1", "Q2", "Q4", "Q5"]
    with pytest.raises(SourceError, match="the response does not contain Q3"):
        api.fetch(ITEM, ["Q3"])


CLASS_Q2 = {**item("Q2"), "labels": {}, "descriptions": {}}
ODD_ENTITIES: dict[str, Any] = {
    "no labels": item("Q2") | {"descriptions": {}},
    "no descriptions": item("Q2") | {"labels": {}},
    "a label without a language": CLASS_Q2 | {"labels": {"en": {"value": "x"}}},
    "a lone surrogate": CLASS_Q2 | {"labels": {"en": {"language": "en", "value": "\ud800"}}},
    "values as texts": CLASS_Q2 | {"claims": {"P279": "Q5"}},
    "no rank": CLASS_Q2 | {"claims": {"P279": [{"mainsnak": {"snaktype": "somevalue"}}]}},
    "no datavalue": CLASS_Q2 | {"claims": {"P279": [{"rank": "normal", "mainsnak": {"snaktype": "value"}}]}},
    "a datatype that is not a text": CLASS_Q2
    | {"claims": {"P279": [{"rank": "normal", "mainsnak": {"snaktype": "value", "datatype": ["string"]}}]}},
    "one statement of another datatype, one that is none": CLASS_Q2
    | {"claims": {"P279": [{"rank": "normal", "mainsnak": {"snaktype": "value", "datatype": "string"}}, 7]}},
    "another id": CLASS_Q2 | {"id": 2},
    "a text": "Q2",
    "null": None,
    "missing false": {"missing": False},
}


@pytest.mark.parametrize("odd", ODD_ENTITIES.values(), ids=ODD_ENTITIES)
def test_odd_entity_fails_alone(odd: Any) -> None:
    api, calls = answering(
        lambda keys: {"entities": {key: odd if key == "Q2" else CLASS_Q2 | {"id": key} for key in keys}}
    )
    assert list(api.fetch(CLASS, ["Q1", "Q2", "Q3"])) == ["Q1", "Q3"]
    assert len(calls) == 2
    with pytest.raises(SourceError, match=r"entities\.Q2: "):
        api.fetch(CLASS, ["Q2"])


@pytest.mark.parametrize("revision", [10**30, 0, -1, 1.5, True, "7", float("nan")])
def test_revision_that_no_column_can_hold_is_odd(revision: Any) -> None:
    with pytest.raises(SourceError, match=r"entities\.Q1: lastrevid"):
        source({"entities": {"Q1": item("Q1") | {"lastrevid": revision}}}).fetch(ITEM, ["Q1"])


def test_id_that_cannot_be_an_entity_fails_alone() -> None:
    def answer(keys: list[str]) -> dict[str, Any]:
        if "Q9999999999" in keys:
            raise UnknownEntityError("no-such-entity")
        return {"entities": {key: item(key) for key in keys}}

    api, _ = answering(answer)
    assert list(api.fetch(ITEM, ["Q1", "Q2", "Q9999999999", "Q4"])) == ["Q1", "Q2", "Q4"]
    assert api.batch_size(ITEM) == 50


def test_empty_map_may_be_written_as_a_list() -> None:
    entity = {"id": "Q1", "lastrevid": 1, "claims": [], "labels": [], "descriptions": []}
    assert source({"entities": {"Q1": entity}}).fetch(CLASS, ["Q1"])["Q1"] == ("Q1", "Q1", None, None, (), 1, None)


def test_class_has_its_label_and_description() -> None:
    terms = {
        "labels": {"en": {"language": "en", "value": "lake"}},
        "descriptions": {"en": {"language": "mul", "value": "water"}},
    }
    fact = source({"entities": {"Q23397": item("Q23397") | terms}}).fetch(CLASS, ["Q23397"])["Q23397"]
    assert (fact.label, fact.language, fact.description) == ("lake", "en", "water")


@pytest.mark.parametrize(
    ("texts", "languages", "label"),
    [
        ({"en": "mul:Fjord", "de": "de:Förde"}, "en,de", "Fjord"),
        ({"en": "en:fjord", "de": "de:Förde"}, "en,de", "fjord"),
        ({"en": "fr:fiord", "de": "de:Förde"}, "en,de", "Förde"),
        ({"en-gb": "en:fjord", "de": "de:Förde"}, "en-gb,de", "fjord"),
        ({"zh-hans": "zh-cn:峡湾", "en": "en:fjord"}, "zh-hans,en", "峡湾"),
        ({"de": "fr:fiord", "ja": "fr:fiord"}, "de,ja", "fiord"),
        ({}, "en,de", "Q7"),
    ],
)
def test_class_has_its_label_in_the_first_language_that_has_one(
    texts: dict[str, str], languages: str, label: str
) -> None:
    """A label of the language mul is shown in every language, and the server sends it in place of one."""
    labels = {key: dict(zip(("language", "value"), text.split(":"), strict=True)) for key, text in texts.items()}
    entity = item("Q7") | {"labels": labels, "descriptions": {}}
    assert class_fact("Q7", entity, RequestedProperties(languages=tuple(languages.split(",")))).label == label


def test_redirect_to_another_wiki_is_not_followed() -> None:
    document = query(redirects=[{"from": "A", "to": "en:A", "tointerwiki": "en"}])
    assert source(document).fetch(PAGE, ["A"])["A"].status == "redirect_unresolved"


def test_redirect_whose_target_is_not_in_the_response_is_an_error() -> None:
    with pytest.raises(SourceError, match="does not contain A"):
        source(query(redirects=[{"from": "A", "to": "B"}])).fetch(PAGE, ["A"])


def test_batch_size_is_halved_when_a_list_is_too_long() -> None:
    limit, lengths = 15, []

    def answer(ids: list[str]) -> dict[str, Any]:
        lengths.append(len(ids))
        if len(ids) > limit:
            raise TooManyValuesError("toomanyvalues")
        return {"entities": {key: {"missing": ""} for key in ids}}

    api, _ = answering(answer)
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
        client = WikimediaClient(client_config(server))
        api = ApiSource(client)
        facts = api.fetch(kind, keys[kind])
    assert list(facts) == list(keys[kind])
    restored = {key: api.from_json(kind, fact) for key, fact in json.loads(json.dumps(facts)).items()}
    assert restored == facts
    assert [type(fact) for fact in restored.values()] == [type(fact) for fact in facts.values()]


def test_unsendable_titles_are_invalid_without_a_request() -> None:
    assert source().resolve("Category:A|B", FactStore()).status == "invalid_title"


def page(title: str, *, soft: bool = False, redirected: bool = False) -> PageFact:
    return PageFact("found", title, None, redirected, soft)


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
        ({"A": page("A", soft=True), "B": PageFact("missing", "B", None, False, False)}, {"A": "B"}, "missing"),
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
