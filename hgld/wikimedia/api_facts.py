"""Facts from the JSON documents that the action APIs of Wikidata and Commons send, whose shapes are pydantic models.

Only the parts that hgld reads are declared. Servers, caches and proxies sometimes send other JSON; what does not fit
raises ValueError, and the client repeats the call. The shapes are those of format version 2:
https://www.mediawiki.org/wiki/API:Query and https://www.wikidata.org/w/api.php?action=help&modules=wbgetentities.

A response to ``action=query`` of Commons, and even a page, may come in several parts, which are collected first.
Files of Commons, about which https://www.mediawiki.org/wiki/API:Imageinfo gives facts for fifty a request, have
thumbnails, whose addresses are taken from it and never put together, as https://phabricator.wikimedia.org/T414805
asks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from sys import intern
from typing import Annotated, Any, Literal, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup
from pydantic import (
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    RootModel,
    StringConstraints,
    ValidationError,
    model_validator,
)

from hgld.errors import ConfigurationError, SourceError
from hgld.tables.column_values import ScrapeStatus
from hgld.wikimedia.client import WikimediaClient
from hgld.wikimedia.titles import CATEGORY_PREFIX, is_sendable, normalise_title

ItemId = Annotated[str, StringConstraints(pattern=r"^Q[1-9][0-9]{0,9}$")]
Revision = Annotated[int, Field(gt=0, lt=2**63)]
Text = Annotated[str, StringConstraints(min_length=1)]
#: PHP writes an empty map as an empty list where its type is not declared.
_EmptyListAsMap = BeforeValidator(lambda value: {} if value == [] else value)

D = TypeVar("D", bound=BaseModel)

WIKIMEDIA_CATEGORY = "Q4167836"
#: Limit of the parts of one response, far above what fifty pages need.
_MAX_PARTS = 500
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_TEMPLATE = re.compile(r"\{\{\s*([^{}|]+?)\s*\|([^{}]*)\}\}")
#: The template of soft redirects on Commons and its aliases, without spaces and hyphens, in lower case; most
#: from https://github.com/wikimedia/pywikibot/blob/master/pywikibot/families/commons_family.py.
_REDIRECT_TEMPLATES = frozenset(
    (
        *("categoryredirect", "categoryredir", "catredirect", "catredir", "catred"),
        *("redirectcategory", "redirectcat", "redircat", "seecategory", "seecat"),
    )
)
#: Widths of thumbnails in pixels that Wikimedia makes: https://www.mediawiki.org/wiki/Common_thumbnail_sizes
THUMBNAIL_WIDTHS = (20, 40, 60, 120, 250, 330, 500, 960, 1280, 1920, 3840)
#: Number of files in one request.
FILES_PER_REQUEST = 50
_UPLOAD_PATH = re.compile("/wikipedia/commons/(?:thumb/)?[0-9a-f]/[0-9a-f]{2}/([^/]+)(?:/[^/]+)?")
#: Metadata of files: their author, their licence and its address.
_METADATA = ("Artist", "LicenseShortName", "LicenseUrl")


class PropertyError(ConfigurationError):
    """A property does not exist, or its values are not items."""


class Document(BaseModel):
    """Base class of all shapes: values are not converted, and further keys are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


def read_document(shape: type[D], value: Any) -> D:
    """Return a JSON value as a model; raise a ValueError that names the first odd place."""
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the document"
        raise ValueError(f"{place}: {first['msg']}") from None


# -- Wikidata: action=wbgetentities ------------------------------------------------------------------------------


class _EntityValue(Document):
    id: ItemId


class _DataValue(Document):
    value: _EntityValue


class _Snak(Document):
    snaktype: Literal["value", "somevalue", "novalue"]
    datavalue: _DataValue | None = None

    @model_validator(mode="after")
    def _check_value(self) -> _Snak:
        if (self.snaktype == "value") != (self.datavalue is not None):
            raise ValueError(
                f'the snaktype is "{self.snaktype}", but datavalue is {self.datavalue}'
            )
        return self


class Statement(Document):
    """A value of a property, with its rank."""

    rank: Literal["preferred", "normal", "deprecated"]
    mainsnak: _Snak


class _TypedSnak(Document):
    datatype: Text


class _TypedStatement(Document):
    mainsnak: _TypedSnak


class Term(Document):
    """A label or description, in the language that was asked for or one that the server fell back to."""

    language: Text
    value: Text


class _Sitelink(Document):
    title: Text


class _Sitelinks(Document):
    commonswiki: _Sitelink | None = None


class ItemEntity(Document):
    """An item that exists, with the props ``info`` and ``claims``."""

    id: ItemId
    lastrevid: Revision
    claims: Annotated[dict[str, Any], _EmptyListAsMap]

    def statements(self, property_id: str) -> list[Statement]:
        """Return the statements of a property; raise a PropertyError if its values are not items."""
        statements = self.claims.get(property_id, [])
        try:
            return read_document(RootModel[list[Statement]], statements).root
        except ValueError:
            with suppress(
                ValueError
            ):  # a datatype of damaged statements says nothing about the property
                for statement in read_document(RootModel[list[_TypedStatement]], statements).root:
                    require_items(property_id, statement.mainsnak.datatype)
            raise


class SitelinkEntity(ItemEntity):
    """An item with the props ``info``, ``claims`` and ``sitelinks``."""

    sitelinks: Annotated[_Sitelinks, _EmptyListAsMap]


class ClassEntity(ItemEntity):
    """An item with the props ``info``, ``labels``, ``descriptions`` and ``claims``."""

    labels: Annotated[dict[str, Term], _EmptyListAsMap]
    descriptions: Annotated[dict[str, Term], _EmptyListAsMap]


class MissingEntity(Document):
    """An id or a title without an entity."""

    missing: Literal["", True]
    title: Text | None = None


class PropertyEntity(Document):
    """A property; without a datatype if it does not exist."""

    datatype: Text | None = None
    labels: Annotated[dict[str, Term], _EmptyListAsMap] = {}


def require_items(property_id: str, datatype: str | None) -> None:
    """Raise a PropertyError if the values of a property are known not to be items."""
    if datatype not in (None, "wikibase-item"):
        raise PropertyError(
            f"the values of {property_id} are not items, but of the type {datatype}; choose a property whose values "
            "are, such as P31"
        )


class EntitiesDocument(Document):
    """A response, parsed entity by entity, so that one malformed entity does not spoil it."""

    entities: dict[str, Any]
    warnings: dict[str, Any] = {}

    @property
    def is_truncated(self) -> bool:
        """Whether entities are left out because the response would be larger than the API's limit."""
        return "result" in self.warnings


# -- Commons: action=query ---------------------------------------------------------------------------------------


class TitleMapping(Document):
    """An entry of ``normalized`` or ``redirects``."""

    source: Text = Field(alias="from")
    target: Text = Field(alias="to")
    interwiki: str | None = Field(default=None, alias="tointerwiki")


class PageTitle(Document):
    """A page of which only the title is read."""

    title: Text


class _PageProperties(Document):
    wikibase_item: ItemId | None = None


class _Revision(Document):
    content: str = Field(validation_alias=AliasPath("slots", "main", "content"))


class FileVersion(Document):
    """The current version of a file, with the iiprops ``url``, ``timestamp`` and ``extmetadata``."""

    descriptionurl: Text | None = None
    thumburl: Text | None = None
    timestamp: Text | None = None
    filemissing: bool = False
    filehidden: bool = False
    extmetadata: Annotated[dict[str, dict[str, Any]], _EmptyListAsMap] = {}


class Page(Document):
    """A page, or the part of it in one of several responses."""

    title: Text
    missing: bool = False
    invalid: bool = False
    pageprops: Annotated[_PageProperties, _EmptyListAsMap] = _PageProperties()
    templates: list[PageTitle] = []
    categories: list[PageTitle] = []
    links: list[PageTitle] = []
    revisions: list[_Revision] = []
    imageinfo: list[FileVersion] = []

    def merged(self, part: Page) -> Page:
        """Return the page with a further part of it."""
        lists = {"templates", "categories", "links", "revisions", "imageinfo"}
        update = {
            name: getattr(self, name) + getattr(part, name)
            if name in lists
            else getattr(part, name)
            for name in part.model_fields_set
        }
        return self.model_copy(update=update)


class QueryPages(Document):
    """A response, parsed page by page, so that one malformed page does not spoil it."""

    normalized: list[TitleMapping] = []
    redirects: list[TitleMapping] = []
    pages: list[Any] = []

    @model_validator(mode="after")
    def _check_not_empty(self) -> QueryPages:
        if not self.pages and not self.redirects:
            raise ValueError("neither pages nor redirects")
        return self


class QueryDocument(Document):
    """A response, or one of several parts of it."""

    query: QueryPages
    continuation: dict[str, str | int] | None = Field(default=None, alias="continue")
    batchcomplete: bool = False

    @model_validator(mode="after")
    def _check_complete(self) -> QueryDocument:
        if not self.batchcomplete and not self.continuation:
            raise ValueError("neither batchcomplete nor continue")
        return self


@dataclass(frozen=True)
class Query:
    """What is asked about items.

    Args:
        parents: Property of the values' superclasses.
        languages: Languages of labels, the preferred one first; the server falls back to others.
        no_value: Status of an item without values.
    """

    property_id: str = "P31"
    parents: str = "P279"
    languages: tuple[str, ...] = ("en",)
    no_value: ScrapeStatus = "no_instance_of"

    @property
    def ranks(self) -> bool:
        """Whether the parents have ranks, as taxa do: P279 goes up any number of steps."""
        return self.parents != "P279"


class ClassFact(NamedTuple):
    """A class, as in the table ``classes``; a deleted class has its id as label, and no revision.

    ``rank`` is the item of its taxon rank (P105), or its label if the class is from a table.
    """

    item: ItemId
    label: Text
    language: Text | None
    description: Text | None
    subclass_of: tuple[ItemId, ...]
    revision: Revision | None
    rank: Text | None = None


class QueryResult:
    """The response to ``action=query``, collected from all its parts."""

    def __init__(self) -> None:
        self._normalized: dict[str, str] = {}
        #: Targets of hard redirects by title; None for a redirect to another wiki.
        self._redirects: dict[str, str | None] = {}
        self._pages: dict[str, Page] = {}
        #: Titles of pages that had another shape in one of the parts.
        self._malformed: set[str] = set()

    def add(self, document: QueryDocument) -> None:
        """Add a part of the response; if no page in it has the shape of a page, raise ValueError and add nothing."""
        pages, malformed = [], dict[str, str]()
        for value in document.query.pages:
            try:
                pages.append(read_document(Page, value))
            except ValueError as error:
                malformed[read_document(PageTitle, value).title] = str(error)
        if malformed and not pages:
            raise ValueError(f"query.pages: {next(iter(malformed.values()))}")
        self._malformed |= malformed.keys()
        query = document.query
        self._normalized.update((row.source, row.target) for row in query.normalized)
        self._redirects.update(
            (row.source, None if row.interwiki else row.target) for row in query.redirects
        )
        for page in pages:
            known = self._pages.get(page.title)
            self._pages[page.title] = known.merged(page) if known else page

    def page(self, title: str) -> Page | None:
        """Return a page, or None if the response does not contain it, or not all of it."""
        return None if title in self._malformed else self._pages.get(title)

    def follow(
        self, requested: str
    ) -> tuple[str, Literal["redirect_loop", "redirect_unresolved"] | None, bool]:
        """Follow normalisation and hard redirects from a requested title.

        Returns:
            The title where they end; the landmark's status if it is no page; and whether a redirect was followed.
        """
        title = self._normalized.get(requested, requested)
        visited: set[str] = set()
        while title in self._redirects:
            if title in visited:
                return title, "redirect_loop", True
            visited.add(title)
            target = self._redirects[title]
            if target is None:
                return title, "redirect_unresolved", True
            title = target
        return title, None, bool(visited)


def query_titles(
    client: WikimediaClient, titles: Sequence[str], parameters: Mapping[str, str]
) -> QueryResult:
    """Call ``action=query`` of Commons for up to fifty titles until all parts of the response are there."""
    result = QueryResult()
    continuation: dict[str, str] = {}

    def read_part(value: dict[str, Any]) -> dict[str, str]:
        document = read_document(QueryDocument, value)
        following = {name: str(text) for name, text in (document.continuation or {}).items()}
        if following and following == continuation:
            raise ValueError(f"it continues where it began: {following}")
        result.add(document)
        return following

    for _ in range(_MAX_PARTS):
        call = {"action": "query", "titles": "|".join(titles), **parameters, **continuation}
        continuation = client.commons(call, read_part)
        if not continuation:
            return result
    raise SourceError(f"a response of Commons has more than {_MAX_PARTS} parts")


class ItemFact(NamedTuple):
    """An item after entity redirects, with its best-rank values of a property.

    ``main_topic`` is the first value of P301 of the item of a Wikimedia category, whose topic has the values.
    """

    item: ItemId
    revision: Revision
    instance_of: tuple[ItemId, ...]
    main_topic: ItemId | None


class PageFact(NamedTuple):
    """The page at which the hard redirects from a title end; ``status`` is ``found``, else that of the landmark."""

    status: Literal["found", "missing", "invalid_title", "redirect_loop", "redirect_unresolved"]
    title: Text
    item: ItemId | None
    redirected: bool
    soft_redirect: bool


def best_rank_items(statements: Sequence[Statement]) -> tuple[str, ...]:
    """Return the item ids of the best-rank statements, in order.

    The preferred statements have the best rank if there are any, otherwise the normal ones have it; deprecated ones
    never have it. "No value" and "some value" have ranks, but no item.
    """
    is_preferred = any(statement.rank == "preferred" for statement in statements)
    best = "preferred" if is_preferred else "normal"
    items = []
    for statement in statements:
        value = statement.mainsnak.datavalue
        if statement.rank == best and value is not None:
            items.append(intern(value.value.id))
    return tuple(items)


def item_fact(entity: Any, query: Query) -> ItemFact | None:
    """Return the fact about an item from an entity with the props ``info`` and ``claims``; None if it was deleted."""
    if _missing(entity):
        return None
    return _item_fact(read_document(ItemEntity, entity), query)


def sitelink_fact(entity: Any, query: Query) -> tuple[str, ItemFact | None]:
    """Return the title on Commons and the fact from an entity with the props ``info``, ``claims`` and ``sitelinks``.

    The fact is None for a title without an item.
    """
    if missing := _missing(entity):
        return missing.title or "", None
    item = read_document(SitelinkEntity, entity)
    link = item.sitelinks.commonswiki
    if link is None:
        raise ValueError(f"{item.id} has no sitelink to Commons, by which it was found")
    return link.title, _item_fact(item, query)


def class_fact(key: str, entity: Any, query: Query) -> ClassFact:
    """Return the fact about the class with a requested id.

    The entity has the props ``info``, ``labels``, ``descriptions`` and ``claims``.
    """
    if _missing(entity):
        return ClassFact(key, key, None, None, (), None)
    item = read_document(ClassEntity, entity)
    label = _in_first_language(item.labels, query.languages)
    description = _in_first_language(item.descriptions, query.languages)
    ranks = best_rank_items(item.statements("P105")) if query.ranks else ()
    return ClassFact(
        item.id,
        label.value if label else item.id,
        label.language if label else None,
        description.value if description else None,
        best_rank_items(item.statements(query.parents)),
        item.lastrevid,
        next(iter(ranks), None),
    )


def _in_first_language(texts: Mapping[str, Term], languages: Sequence[str]) -> Term | None:
    """Return the text in the first language that has one, else the first to which the server fell back.

    A text for all languages (``mul``) is one in each of them, and so is that in another variant of the language, such
    as British English.
    """
    for language in languages:
        text = texts.get(language)
        if text is not None and (text.language == "mul" or _base(text.language) == _base(language)):
            return text
    for language in languages:
        if language in texts:
            return texts[language]
    return None


def _base(language: str) -> str:
    """Return a language without its variant.

    >>> _base("en-gb")
    'en'
    """
    return language.partition("-")[0]


def _missing(entity: Any) -> MissingEntity | None:
    return (
        read_document(MissingEntity, entity)
        if isinstance(entity, dict) and "missing" in entity
        else None
    )


def _item_fact(item: ItemEntity, query: Query) -> ItemFact:
    is_category = WIKIMEDIA_CATEGORY in best_rank_items(item.statements("P31"))
    topics = best_rank_items(item.statements("P301")) if is_category else ()
    return ItemFact(
        item.id,
        item.lastrevid,
        best_rank_items(item.statements(query.property_id)),
        next(iter(topics), None),
    )


def page_fact(requested: str, query: QueryResult) -> PageFact | None:
    """Follow a requested title through the response to its page; None if the response does not contain it."""
    title, problem, redirected = query.follow(requested)
    if problem is not None:
        return PageFact(problem, title, None, redirected, False)
    page = query.page(title)
    if page is None:
        return None
    if page.invalid:
        return PageFact("invalid_title", title, None, False, False)
    if page.missing:
        return PageFact("missing", title, None, redirected, False)
    is_soft_redirect = bool(page.templates or page.categories)
    return PageFact("found", title, page.pageprops.wikibase_item, redirected, is_soft_redirect)


def soft_redirect_target(page: Page) -> str | None:
    """Return the category that a soft redirect names; None without a valid one.

    It is the parameter of the template. If the page uses a template that is not known here, it is the only category
    that the page links to.
    """
    wikitext = _COMMENT.sub("", page.revisions[0].content if page.revisions else "")
    for name, parameters in _TEMPLATE.findall(wikitext):
        if re.sub("[ _-]", "", name).lower() in _REDIRECT_TEMPLATES:
            for parameter in parameters.split("|"):
                key, equals, value = parameter.partition("=")
                if not equals or key.strip() == "1":
                    return _category_title(value if equals else parameter)
    targets = {link.title for link in page.links}
    return _category_title(targets.pop()) if len(targets) == 1 else None


def _category_title(text: str) -> str | None:
    """Return the normalised title of a category, with or without its namespace; None if it is invalid."""
    title = normalise_title(text.strip())
    title = title if title.startswith(CATEGORY_PREFIX) else normalise_title(CATEGORY_PREFIX + title)
    return title if title != CATEGORY_PREFIX and is_sendable(title) else None


class FileFact(NamedTuple):
    """What Commons says about a file, after redirects.

    Args:
        status: ``ok``, or why there is no thumbnail, as in the table ``photographs``.
        licence: Short name of the licence, such as ``CC BY-SA 3.0``.
        uploaded_at: When this version of the file was uploaded, in ISO 8601.
        thumbnail_url: Address of the thumbnail, which is the file itself if that is not wider.
    """

    status: Literal["ok", "missing", "invalid_title", "no_thumbnail"]
    page: str | None = None
    author: str | None = None
    licence: str | None = None
    licence_url: str | None = None
    uploaded_at: str | None = None
    thumbnail_url: str | None = None


def file_title_of_url(url: str) -> str:
    """Return the title of the file that an address of Wikimedia's uploads, or one of their thumbnails, names.

    >>> file_title_of_url("http://upload.wikimedia.org/wikipedia/commons/5/57/MRNP_%E2%80%94_Comet_Falls.jpg")
    'File:MRNP — Comet Falls.jpg'
    """
    problem = ValueError(f'"{url}" is not the address of a file of Wikimedia Commons')
    try:
        parts = urlsplit(url.strip())
        match = _UPLOAD_PATH.fullmatch(parts.path)
        if parts.hostname != "upload.wikimedia.org" or match is None:
            raise problem
        return "File:" + normalise_title(unquote(match[1], errors="strict"))
    except UnicodeDecodeError:
        raise problem from None


def request_file_facts(
    client: WikimediaClient, titles: Sequence[str], width: int
) -> dict[str, FileFact]:
    """Ask Commons for facts about up to fifty files by title; those that the response lacks are left out.

    The width of thumbnails is one of :data:`THUMBNAIL_WIDTHS` in pixels.
    """
    facts = {title: FileFact("invalid_title") for title in titles if not is_sendable(title)}
    if sendable := [title for title in titles if title not in facts]:
        parameters = {
            "prop": "imageinfo",
            "redirects": "1",
            "iiprop": "url|timestamp|extmetadata",
            "iiurlwidth": str(width),
            "iiextmetadatafilter": "|".join(_METADATA),
            "iiextmetadatalanguage": "en",
        }
        query = query_titles(client, sendable, parameters)
        for title in sendable:
            if (fact := _file_fact(title, query)) is not None:
                facts[title] = fact
    return facts


def _file_fact(requested: str, query: QueryResult) -> FileFact | None:
    title, problem, _ = query.follow(requested)
    page = query.page(title)
    if problem is not None:
        return FileFact("missing")
    if page is None:
        return None
    if page.invalid:
        return FileFact("invalid_title")
    # A page may outlive its file, and a file be shown without a page.
    version = page.imageinfo[0] if page.imageinfo else FileVersion(filemissing=True)
    if version.filemissing or version.filehidden:
        return FileFact("missing", version.descriptionurl)
    author, licence, licence_url = (
        _plain_text(version.extmetadata.get(key, {}).get("value")) for key in _METADATA
    )
    return FileFact(
        "ok" if version.thumburl else "no_thumbnail",
        version.descriptionurl,
        author,
        licence,
        licence_url,
        version.timestamp,
        version.thumburl,
    )


def _plain_text(html: Any) -> str | None:
    """Return the text of an HTML fragment without what browsers hide; None if nothing is left, or it is no text."""
    if not isinstance(html, str):
        return None
    # A tag around the text, without which Beautiful Soup takes an address for a mistake.
    soup = BeautifulSoup(f"<p>{html}</p>", "lxml")
    for hidden in soup.find_all(style=re.compile(r"display:\s*none")):
        hidden.decompose()
    return " ".join(soup.get_text().split()) or None
