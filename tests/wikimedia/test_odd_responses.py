"""Responses that no server should send: real ones of the replica, changed at random."""

import copy
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import SourceError
from hgld.wikimedia.api_source import CLASS, ITEM, PAGE, REDIRECT_TARGET, SITELINK, ApiSource
from hgld.wikimedia.client import WikimediaClient
from hgld.wikimedia.html_source import parse_page
from hgld.wikimedia.settings import ClientConfig
from tests.scrapes import client_config

KEYS = {
    SITELINK: ["Category:Edge plain", "Category:Edge no item"],
    PAGE: [f"Category:{name}" for name in ("Edge hard redirect", "Edge missing", "Edge soft redirect", "edge plain")],
    REDIRECT_TARGET: ["Category:Edge soft redirect", "Category:Edge missing"],
    ITEM: ["Q950000001", "Q969999999", "Q961000001"],
    CLASS: ["Q16970", "Q960000008", "Q960000009"],
}
#: Keys of documents that hgld reads, besides titles and ids of entities.
READ = {
    *("entities", "id", "lastrevid", "claims", "P31", "P279", "P301", "rank", "mainsnak", "snaktype", "datavalue"),
    *("value", "labels", "en", "language", "sitelinks", "commonswiki", "title", "missing", "query", "pages"),
    *("normalized", "redirects", "from", "to", "pageprops", "wikibase_item", "templates", "revisions", "slots"),
    *("main", "content", "continue", "batchcomplete"),
}
#: Values that replace others: wrong types, numbers that fit nowhere, texts that cannot be encoded.
ODD_VALUES: list[Any] = [
    *(None, True, 0, -1, 10**30, 1.5, float("inf"), "", "\ud800", "Q0", "x"),
    *([], [[]], {}, {"x": 1}, ["\udfff"]),
]


class ChangedClient(WikimediaClient):
    """Gets real responses, or the given ones in their place, and gives up at the first failure."""

    def __init__(self, config: ClientConfig, responses: Sequence[bytes] | None = None) -> None:
        super().__init__(config)
        self.responses = None if responses is None else list(responses)
        self.received: list[bytes] = []

    def _send(self, session: requests.Session, method: str, url: str, **options: Any) -> requests.Response:
        if self.responses is None:
            response = super()._send(session, method, url, **options)
            self.received.append(response.content)
            return response
        response = requests.Response()
        response.status_code, response.url = 200, url
        response._content = self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]
        return response


@pytest.fixture(scope="module")
def responses(replica: Callable[..., Any]) -> dict[str, list[Any]]:
    """The documents that answer each kind of request, and the facts in them."""
    documents = {}
    with replica("edge_cases.json", force_continue=1) as server:
        for kind, keys in KEYS.items():
            client = ChangedClient(client_config(server))
            ApiSource(client).fetch(kind, keys)
            documents[kind] = [json.loads(content) for content in client.received]
    return documents


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container in a document with each of the keys that are read."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        if isinstance(key, int) or key in READ or re.fullmatch(r"Q\d+|-\d", key):
            yield value, key
            yield from places(value[key])


def change(document: Any, data: st.DataObject) -> Any:
    """Return a copy of a document with one or two values dropped or replaced."""
    changed = [copy.deepcopy(document)]  # in a list, so that the document itself can be replaced
    for _ in range(data.draw(st.integers(1, 2))):
        container, key = data.draw(st.sampled_from(list(places(changed))))
        if isinstance(container, dict) and data.draw(st.booleans()):
            del container[key]
        else:
            container[key] = copy.deepcopy(data.draw(st.sampled_from(ODD_VALUES)))
    return changed[0]


def check_fact(fact: Any) -> None:
    """Check that tables can hold every value."""
    if isinstance(fact, tuple):
        for value in fact:
            check_fact(value)
    elif isinstance(fact, str):
        assert fact.encode()
    else:
        assert fact is None or isinstance(fact, bool) or (type(fact) is int and 0 < fact < 2**63)


@pytest.mark.parametrize("kind", KEYS)
@given(data=st.data())
def test_changed_responses_give_facts_or_source_errors(
    responses: dict[str, list[Any]], kind: str, data: st.DataObject
) -> None:
    contents = [json.dumps(change(document, data)).encode() for document in responses[kind]]
    config = ClientConfig("http://wiki", "http://data", rate_per_minute=0, max_retries=0, backoff_s=0)
    source = ApiSource(ChangedClient(config, contents))
    try:
        facts = source.fetch(kind, KEYS[kind])
    except SourceError:
        return
    assert set(facts) <= set(KEYS[kind])
    for fact in facts.values():
        check_fact(fact)
    line = json.dumps(facts, ensure_ascii=False)  # as the journal writes it
    assert {key: source.from_json(kind, fact) for key, fact in json.loads(line).items()} == facts


@pytest.mark.parametrize("kind", KEYS)
@given(data=st.data())
def test_changed_facts_of_a_journal_are_restored_or_refused(
    responses: dict[str, list[Any]], kind: str, data: st.DataObject
) -> None:
    contents = [json.dumps(document).encode() for document in responses[kind]]
    source = ApiSource(ChangedClient(ClientConfig("http://wiki", "http://data"), contents))
    changed = change(json.loads(json.dumps(list(source.fetch(kind, KEYS[kind]).values()))), data)
    for fact in changed if isinstance(changed, list) else [changed]:
        try:
            restored = source.from_json(kind, fact)
        except ValueError:
            continue
        check_fact(restored)
        assert source.from_json(kind, json.loads(json.dumps(restored))) == restored


@given(data=st.data())
def test_changed_pages_are_parsed_or_refused(edge_pages: list[str], data: st.DataObject) -> None:
    html = data.draw(st.sampled_from(edge_pages))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(html)))
        end = data.draw(st.integers(start, min(len(html), start + 400)))
        html = (
            html[:start]
            + data.draw(st.sampled_from(["", "<", "</div>", '"', "&#xD800;", "\x00", "[1", "é"]))
            + html[end:]
        )
    try:
        page = parse_page(html)
    except ValueError:
        return
    json.dumps(page, ensure_ascii=False).encode()


@pytest.fixture(scope="module")
def edge_pages(replica: Callable[..., Any]) -> list[str]:
    titles = ("Edge plain", "Edge soft redirect", "Edge hard redirect", "Edge missing", "Edge no item")
    with replica("edge_cases.json") as server:
        client = WikimediaClient(client_config(server))
        return [client.page(f"Category:{title}", lambda response: response.html) for title in titles]
