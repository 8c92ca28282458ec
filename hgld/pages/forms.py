"""Fields of the forms that a page sends."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.datastructures import ImmutableMultiDict
from starlette.exceptions import HTTPException
from starlette.requests import Request

FormFields = ImmutableMultiDict[str, str]
#: Fields of a form; the largest has one for every label of a review.
_MAX_FIELDS = 40_000


async def read_form(request: Request) -> FormFields:
    """Return the fields of a URL-encoded form.

    Raises:
        HTTPException: The form has too many fields.
    """
    text = (await request.body()).decode("utf-8", "replace")
    try:
        return ImmutableMultiDict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS))
    except ValueError:
        raise HTTPException(400, f"too many fields; a form has at most {_MAX_FIELDS:,}") from None
