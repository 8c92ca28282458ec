"""Shapes of the JSON documents that the action APIs of Wikidata and Commons send, as pydantic models.

Only the parts that hgld reads are declared. Servers, caches and proxies sometimes send other JSON; what does not fit
raises ValueError, and the client repeats the call. The shapes are those of format version 2:
https://www.mediawiki.org/wiki/API:Query and https://www.wikidata.org/w/api.php?action=help&modules=wbgetentities.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from hgld.errors import ConfigurationError

ItemId = Annotated[str, StringConstraints(pattern=r"^Q[1-9][0-9]{0,9}$")]
Revision = Annotated[int, Field(gt=0, lt=2**63)]
Text = Annotated[str, StringConstraints(min_length=1)]
#: PHP writes an empty map as an empty list where its type is not declared.
_EmptyListAsMap = BeforeValidator(lambda value: {} if value == [] else value)


class PropertyError(ConfigurationError):
    """A property does not exist, or its values are no items."""


class Document(BaseModel):
    """Base class of all shapes: values are not converted, and further keys are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


D = TypeVar("D", bound=Document)


def read_document(shape: type[D], value: Any) -> D:
    """Return a JSON value as a model.

    Raises:
        ValueError: The value has another shape; the message names the first place that is odd.
    """
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
            raise ValueError(f'the snaktype is "{self.snaktype}", but datavalue is {self.datavalue}')
        return self


class Statement(Document):
    """A value of a property, with its rank."""

    rank: Literal["preferred", "normal", "deprecated"]
    mainsnak: _Snak


class _Statements(Document):
    statements: list[Statement]


class _TypedSnak(Document):
    datatype: Text


class _TypedStatement(Document):
    mainsnak: _TypedSnak


class _TypedStatements(Document):
    statements: list[_TypedStatement]


class Term(Document):
    """A label or description, in the language that was asked for or one that the server fell back to."""

    language: Text
    value: Text


class _Sitelink(Document):
    title: Text


class _Sitelinks(Document):
    commonswiki: _Sitelink | None = None


class Entity(Document):
    """An entity that exists, with the prop ``info``."""

    id: ItemId
    lastrevid: Revision


class RevisionEntity(Entity):
    """Response with the props ``info`` and ``sitelinks``."""

    sitelinks: Annotated[_Sitelinks, _EmptyListAsMap]

    @property
    def commons_title(self) -> str | None:
        """Title of the page on Commons."""
        return self.sitelinks.commonswiki.title if self.sitelinks.commonswiki else None


class ItemEntity(Entity):
    """Response with the props ``info`` and ``claims``."""

    claims: Annotated[dict[str, Any], _EmptyListAsMap]

    def statements(self, property_id: str) -> list[Statement]:
        """Return the statements of a property.

        Raises:
            PropertyError: The values of the property are no items.
            ValueError: The statements have another shape.
        """
        statements = {"statements": self.claims.get(property_id, [])}
        try:
            return read_document(_Statements, statements).statements
        except ValueError:
            with suppress(ValueError):
                for statement in read_document(_TypedStatements, statements).statements:
                    require_items(property_id, statement.mainsnak.datatype)
            raise


class SitelinkEntity(ItemEntity, RevisionEntity):
    """Response with the props ``info``, ``claims`` and ``sitelinks``."""


class ClassEntity(ItemEntity):
    """Response with the props ``info``, ``labels``, ``descriptions`` and ``claims``."""

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
    """Raise a PropertyError if the values of a property are known to be no items."""
    if datatype not in (None, "wikibase-item"):
        raise PropertyError(
            f"the values of {property_id} are no items, but of the type {datatype}; choose a property whose values "
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


class _Slot(Document):
    content: str


class _Slots(Document):
    main: _Slot


class _Revision(Document):
    slots: _Slots


class _MetadataValue(Document):
    value: Any = None


class _FileMetadata(Document):
    """Values are HTML; those that are no text say nothing."""

    artist: _MetadataValue = Field(default=_MetadataValue(), alias="Artist")
    licence: _MetadataValue = Field(default=_MetadataValue(), alias="LicenseShortName")
    licence_url: _MetadataValue = Field(default=_MetadataValue(), alias="LicenseUrl")


class FileVersion(Document):
    """The current version of a file, with the iiprops ``url``, ``timestamp`` and ``extmetadata``."""

    descriptionurl: Text | None = None
    thumburl: Text | None = None
    timestamp: Text | None = None
    filemissing: bool = False
    filehidden: bool = False
    extmetadata: Annotated[_FileMetadata, _EmptyListAsMap] = _FileMetadata()


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
            name: getattr(self, name) + getattr(part, name) if name in lists else getattr(part, name)
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
