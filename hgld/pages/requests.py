"""What pages read from requests: forms, uploaded files and the colour theme, with limits on their sizes."""

from __future__ import annotations

from email.message import Message
from urllib.parse import parse_qsl

from starlette.datastructures import ImmutableMultiDict
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

FormFields = ImmutableMultiDict[str, str]
#: Bytes in the body of a request. The largest form decides on all labels of a review at once: about 180 kB for the
#: 5,700 labels of GLDv2.
MAX_BODY_BYTES = 4 * 2**20
#: Fields of a form; the largest has one for every label of a review.
_MAX_FIELDS = 40_000
_THEME_COOKIE, _THEMES = "hgld-theme", ("auto", "light", "dark")


async def _read_body(request: Request, max_bytes: int) -> bytes:
    chunks, n_bytes = [], 0
    async for chunk in request.stream():
        n_bytes += len(chunk)
        if n_bytes > max_bytes:
            raise HTTPException(413, f"a request has at most {max_bytes:,} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


async def read_form(request: Request) -> FormFields:
    """Return the fields of a URL-encoded form."""
    text = (await _read_body(request, MAX_BODY_BYTES)).decode("utf-8", "replace")
    try:
        return ImmutableMultiDict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS))
    except ValueError:
        raise HTTPException(400, f"too many fields; a form has at most {_MAX_FIELDS:,}") from None


async def read_upload(request: Request, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Return the file in the body of a request: the body itself, or the first file of a form.

    Scripts send a file as it is, and forms without script as ``multipart/form-data`` (RFC 7578). Nothing is written
    to disk.
    """
    body = await _read_body(request, max_bytes)
    header = Message()
    header["content-type"] = request.headers.get("content-type", "")
    boundary = header.get_param("boundary")
    if header.get_content_type() != "multipart/form-data" or not isinstance(boundary, str):
        return body
    for part in (b"\r\n" + body).split(b"\r\n--" + boundary.encode("latin-1", "replace"))[1:]:
        head, _, content = part.partition(b"\r\n\r\n")
        if b"filename=" in head.lower():
            return content
    raise HTTPException(400, "the form has no file")


def theme_of(request: Request) -> str:
    """Return the theme of a browser, ``auto`` unless another one was chosen."""
    theme = request.cookies.get(_THEME_COOKIE, "auto")
    return theme if theme in _THEMES else "auto"


def keep_theme(response: Response, theme: str) -> None:
    """Let the browser keep a theme for a year; unknown ones are ignored."""
    if theme in _THEMES:
        response.set_cookie(_THEME_COOKIE, theme, max_age=31_536_000, samesite="strict")


def parse_number(text: str) -> int | None:
    """Return a number of at most 18 digits 0 to 9; None if the text is anything else.

    >>> parse_number("12"), parse_number("-1"), parse_number("²"), parse_number("9" * 5000)
    (12, None, None, None)
    """
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else None
