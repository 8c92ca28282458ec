"""Shapes of the JSON documents of the action APIs of Wikidata and Commons, as pydantic models.

Only the parts that hgld reads are declared. Servers, caches and proxies sometimes send other JSON;
a document that does not fit raises ValueError, and the client repeats the call. The shapes follow
format version 2: https://www.mediawiki.org/wiki/API:Query and
https://www.wikidata.org/w/api.php?action=help&modules=wbgetentities.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Literal, TypeVar

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

from hgld.errors import ConfigurationError

ItemId = Annotated[str, StringConstraints(pattern=r"^Q[1-9][0-9]{0,9}$")]
Revision = Annotated[int, Field(gt=0, lt=2**63)]
Text = Annotated[str, StringConstraints(min_length=1)]
#: PHP writes an empty map as an empty list if its type is not declared.
_EmptyListAsMap = BeforeValidator(lambda value: {} if value == [] else value)

D = TypeVar("D", bound=BaseModel)


class PropertyError(ConfigurationError):
    """A property does not exist, or its values are not items."""


class Document(BaseModel):
    """Base class of all shapes: values are not converted, and further keys are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


def read_document(shape: type[D], value: Any) -> D:
    """Return a JSON value as a model.

    Raises:
        ValueError: The value does not fit; the message names the first place that does not.
    """
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, problem["loc"])) or "the document"
        raise ValueError(f"{place}: {problem['msg']}") from None


# -- Wikidata: action=wbgetentities
# ------------------------------------------------------------------------------


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
    """A label or description, in the requested language or in a fallback language."""

    language: Text
    value: Text


class _Sitelink(Document):
    title: Text


class _Sitelinks(Document):
    commonswiki: _Sitelink | None = None


class ItemEntity(Document):
    """An existing item with the props ``info`` and ``claims``."""

    id: ItemId
    lastrevid: Revision
    claims: Annotated[dict[str, Any], _EmptyListAsMap]

    def statements(self, property_id: str) -> list[Statement]:
        """Return the statements of a property.

        Raises:
            PropertyError: The values of the property are not items.
        """
        claims = self.claims.get(property_id, [])
        try:
            return read_document(RootModel[list[Statement]], claims).root
        except ValueError:
            # Only well-formed statements show the datatype of the property.
            with suppress(ValueError):
                for statement in read_document(RootModel[list[_TypedStatement]], claims).root:
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
    """A property; the datatype is None if it does not exist."""

    datatype: Text | None = None
    labels: Annotated[dict[str, Term], _EmptyListAsMap] = {}


def require_items(property_id: str, datatype: str | None) -> None:
    """Raise a :class:`PropertyError` if the values of a property are known not to be items."""
    if datatype not in (None, "wikibase-item"):
        raise PropertyError(
            f"the values of {property_id} are not items, but of the type {datatype}; choose a property whose values "
            "are, such as P31"
        )


class EntitiesDocument(Document):
    """A response; entities are parsed one by one, so that a malformed entity does not spoil it."""

    entities: dict[str, Any]
    warnings: dict[str, Any] = {}

    @property
    def is_truncated(self) -> bool:
        """Whether entities are missing because the response exceeds the API's size limit."""
        return "result" in self.warnings


# -- Commons: action=query
# ---------------------------------------------------------------------------------------


class TitleMapping(Document):
    """An entry of ``normalized`` or ``redirects``."""

    source: Text = Field(alias="from")
    target: Text = Field(alias="to")
    interwiki: str | None = Field(default=None, alias="tointerwiki")


class PageTitle(Document):
    """The title of a page."""

    title: Text


class _PageProperties(Document):
    wikibase_item: ItemId | None = None


class _Revision(Document):
    content: str = Field(validation_alias=AliasPath("slots", "main", "content"))


class FileVersion(Document):
    """Current version of a file, with the iiprops ``url``, ``timestamp`` and ``extmetadata``."""

    descriptionurl: Text | None = None
    thumburl: Text | None = None
    timestamp: Text | None = None
    filemissing: bool = False
    filehidden: bool = False
    extmetadata: Annotated[dict[str, dict[str, Any]], _EmptyListAsMap] = {}


class Page(Document):
    """A page, or the part of a page in one of several responses."""

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
        """Return the page merged with a further part: lists are joined, other values replaced."""
        update = {}
        for name in part.model_fields_set:
            value = getattr(part, name)
            if isinstance(value, list):
                value = getattr(self, name) + value
            update[name] = value
        return self.model_copy(update=update)


class QueryPages(Document):
    """A response; pages are parsed one by one, so that a malformed page does not spoil it."""

    normalized: list[TitleMapping] = []
    redirects: list[TitleMapping] = []
    pages: list[Any] = []

    @model_validator(mode="after")
    def _check_not_empty(self) -> QueryPages:
        if not self.pages and not self.redirects:
            raise ValueError("neither pages nor redirects")
        return self


class QueryDocument(Document):
    """A response, or one part of a response."""

    query: QueryPages
    continuation: dict[str, str | int] | None = Field(default=None, alias="continue")
    batchcomplete: bool = False

    @model_validator(mode="after")
    def _check_complete(self) -> QueryDocument:
        if not self.batchcomplete and not self.continuation:
            raise ValueError("neither batchcomplete nor continue")
        return self
