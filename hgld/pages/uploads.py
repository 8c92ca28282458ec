"""Files that a page uploads."""

from __future__ import annotations

from email.message import Message

from starlette.exceptions import HTTPException
from starlette.requests import Request


async def read_upload(request: Request) -> bytes:
    """Return the file in the body of a request: the body itself, or the first file of a form.

    Scripts send a file as it is, and forms without script as ``multipart/form-data`` (RFC 7578). Nothing is written
    to disk, and :class:`~hgld.pages.limits.LimitsMiddleware` limits the size.

    Raises:
        HTTPException: A form has no file.
    """
    body = await request.body()
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
