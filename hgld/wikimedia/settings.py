"""Settings of requests and of ``hgld scrape``, in a module that is fast to import for help."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from hgld.errors import ConfigurationError, require_at_least
from hgld.tables.column_values import SPLITS

COMMONS_URL = "https://commons.wikimedia.org"
WIKIDATA_URL = "https://www.wikidata.org"
#: Wikimedia's limit since 2026 for clients that name themselves and their operator; it is 10 for
#: other clients.
WIKIMEDIA_REQUESTS_PER_MINUTE = 200
#: Largest plausible share of a status in a block of landmarks; far above the shares of GLDv2, and
#: far below 1.
UNLIKELY_SHARES: Mapping[str, float] = {
    "invalid_title": 0.02,  # titles come from pages that existed
    "redirect_loop": 0.02,
    "redirect_unresolved": 0.05,
    "item_missing": 0.05,
    "missing": 0.25,
    "no_instance_of": 0.5,
    "no_value": 0.5,
    "no_item": 0.6,
    "no_infobox": 0.6,
}
SourceName = Literal["api", "html"]
MAX_WORKERS = 3

_WIKIMEDIA_HOST = re.compile(r"(.+\.)?(wikimedia|wikidata|wikipedia)\.org", re.IGNORECASE)
_CONTACT = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+|https?://\S+/\S+|User:\S.*", re.IGNORECASE)


@dataclass(frozen=True)
class ClientConfig:
    """Addresses of the servers, and limits on requests to them.

    Args:
        commons_url: Base URL of Commons, above ``wiki/`` and ``w/api.php``.
        wikidata_url: Base URL of Wikidata, above ``w/api.php``.
        contact: Your e-mail address, or name or URL of your wiki user page, for the User-Agent;
            required for Wikimedia's hosts.
        rate_per_minute: Maximum requests per minute to both hosts together; 0 for no limit, except
            at Wikimedia.
        max_retries: Maximum number of retries per request.
        timeout_s: Seconds within which a complete response must arrive.
        backoff_s: Seconds before the first retry; the wait doubles with each further retry.
    """

    commons_url: str = COMMONS_URL
    wikidata_url: str = WIKIDATA_URL
    contact: str | None = None
    rate_per_minute: float = 150
    max_retries: int = 10
    timeout_s: float = 60.0
    backoff_s: float = 1.0

    def __post_init__(self) -> None:
        wikimedia_host = None
        for name, url in (("wikidata_url", self.wikidata_url), ("commons_url", self.commons_url)):
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ConfigurationError(
                    f'`{name}` is "{url}"; expected a URL such as {COMMONS_URL}'
                )
            host = parts.hostname.rstrip(".")
            if _WIKIMEDIA_HOST.fullmatch(host):
                wikimedia_host = host
            object.__setattr__(self, name, url.rstrip("/"))
        if self.contact is not None and not _CONTACT.fullmatch(self.contact):
            raise ConfigurationError(
                f'`contact` is "{self.contact}"; expected an e-mail address (you@example.org) or a wiki user '
                "page (User:You, https://meta.wikimedia.org/wiki/User:You)"
            )
        if wikimedia_host and self.contact is None:
            raise ConfigurationError(
                f"{wikimedia_host} asks every client to name its operator: give an e-mail address or a wiki user "
                "page as `contact` or in the environment variable HGLD_CONTACT; it is sent in the User-Agent only"
            )
        if (
            self.rate_per_minute < 0
            or self.max_retries < 0
            or self.timeout_s <= 0
            or self.backoff_s < 0
        ):
            raise ConfigurationError(
                "`rate_per_minute`, `max_retries` and `backoff_s` cannot be negative, and `timeout_s` must be above 0"
            )
        if wikimedia_host and not 0 < self.rate_per_minute <= WIKIMEDIA_REQUESTS_PER_MINUTE:
            raise ConfigurationError(
                f"`rate_per_minute` is {self.rate_per_minute:g}, which {wikimedia_host} does not allow; choose a "
                f"rate above 0 and up to {WIKIMEDIA_REQUESTS_PER_MINUTE}"
            )

    @classmethod
    def from_environment(cls) -> ClientConfig:
        """Return default settings with the contact and the addresses from environment variables.

        The variables are ``HGLD_CONTACT``, ``HGLD_COMMONS_URL`` and ``HGLD_WIKIDATA_URL``, as for
        ``hgld scrape``.
        """
        return cls(
            commons_url=os.environ.get("HGLD_COMMONS_URL", COMMONS_URL),
            wikidata_url=os.environ.get("HGLD_WIKIDATA_URL", WIKIDATA_URL),
            contact=os.environ.get("HGLD_CONTACT") or None,  # an empty variable counts as unset
        )


@dataclass(frozen=True)
class ScrapeConfig:
    """Settings of the stage ``scrape``.

    A list with other columns than GLDv2's is a list of other entities; it needs ``id``, and may
    have any splits.

    Args:
        split: Split of the list: train or index for lists of GLDv2, as landmark ids of the two
            splits are unrelated numbers.
        source: Data source: api (fifty landmarks per request) or html (one page per landmark, as in
            the paper).
        workers: Number of concurrent requests, 1 to 3.
        class_depth: Number of steps of ``parents`` to fetch above the values.
        client: Addresses of the servers, and limits on requests to them. Default: the servers of
            Wikimedia.
        allow_frequent: Status that any number of landmarks may have; an implausible share of other
            statuses stops the scrape (:data:`hgld.wikimedia.settings.UNLIKELY_SHARES`); repeatable.
        id: Column with the ids of entities, text or whole numbers. Default: no column; the list is
            a list of GLDv2.
        item: Column with items on Wikidata: Q ids or addresses. Default: item, if the list has such
            a column.
        category: Column with categories on Commons, instead of items: titles or addresses. Default:
            category, if the list has no items.
        split_column: Column with the split of each entity, for a list with several splits.
        property_id: Property whose values, which are items, are looked up for a list with ``id``.
        parents: Property of the superclasses of these values, such as P171 for taxa.
        languages: Languages of labels, separated by commas; mul stands for labels for all
            languages. The first language with a label is used, otherwise the language to which
            Wikidata falls back.
    """

    split: str | None = None
    source: SourceName = "api"
    workers: int = 1
    class_depth: int = 10
    client: ClientConfig | None = None
    allow_frequent: tuple[str, ...] = ()
    id: str | None = None
    item: str | None = None
    category: str | None = None
    split_column: str | None = None
    property_id: str = "P31"
    parents: str = "P279"
    languages: str = "en"

    def __post_init__(self) -> None:
        if self.id is None:
            if self.split not in SPLITS:
                problem = f'is "{self.split}"' if self.split else "is missing"
                raise ConfigurationError(
                    f"`split` {problem}; expected {' or '.join(SPLITS)} for lists of GLDv2; other lists need `id`"
                )
            for name in ("item", "category", "split_column", "property_id", "parents", "languages"):
                if getattr(self, name) != ScrapeConfig.__dataclass_fields__[name].default:
                    raise ConfigurationError(
                        f"`{name}` needs `id`: it is for lists other than GLDv2's"
                    )
        else:
            self._check_list_settings()
        require_at_least(0, class_depth=self.class_depth)
        unlikely = sorted(UNLIKELY_SHARES)
        for status in sorted(self.allow_frequent):
            if status not in unlikely:
                raise ConfigurationError(
                    f'`allow_frequent` is "{status}"; expected some of {", ".join(unlikely)}'
                )
        if self.source not in get_args(SourceName):
            raise ConfigurationError(f'`source` is "{self.source}"; expected api or html')
        if not 1 <= self.workers <= MAX_WORKERS:
            raise ConfigurationError(f"`workers` is {self.workers}; expected 1 to {MAX_WORKERS}")

    def _check_list_settings(self) -> None:
        if self.item and self.category:
            raise ConfigurationError(
                "name the column of entities on Wikidata in `item`, or on Commons in `category`"
            )
        if (self.split is None) == (self.split_column is None):
            raise ConfigurationError(
                "name the split of the whole list in `split`, or its column in `split_column`"
            )
        for name in ("property_id", "parents"):
            if not re.fullmatch("P[1-9][0-9]*", getattr(self, name)):
                raise ConfigurationError(
                    f'`{name}` is "{getattr(self, name)}"; expected a property such as P31'
                )
        if not re.fullmatch("[a-z0-9-]+(,[a-z0-9-]+)*", self.languages):
            raise ConfigurationError(
                f'`languages` is "{self.languages}"; expected codes such as en,de'
            )
        if self.source == "html" and (
            self.item or (self.parents, self.languages) != ("P279", "en")
        ):
            raise ConfigurationError(
                "`source` html reads English pages of categories, which show no superclasses; use api for `item`, "
                "`parents` and `languages`"
            )

    @property
    def noun(self) -> str:
        """Plural noun for the rows of the list, for messages."""
        return "landmarks" if self.id is None else "entities"

    def parameters(self) -> dict[str, Any]:
        """Return the settings that affect the result, besides the list and the source."""
        parameters: dict[str, Any] = {"split": self.split, "class_depth": self.class_depth}
        if self.id is not None:
            parameters |= {
                "id": self.id,
                "item": self.item,
                "category": self.category,
                "split_column": self.split_column,
                "property_id": self.property_id,
                "parents": self.parents,
                "languages": self.languages,
            }
        return parameters
