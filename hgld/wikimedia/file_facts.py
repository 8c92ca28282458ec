"""Facts about files of Commons: where their thumbnails are, who made them, and under which licence.

https://www.mediawiki.org/wiki/API:Imageinfo gives them for fifty files a request. Addresses of thumbnails are taken
from it and never put together, as https://phabricator.wikimedia.org/T414805 asks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup

from hgld.wikimedia.api_documents import FileVersion
from hgld.wikimedia.api_facts import QueryResult, query_titles
from hgld.wikimedia.client import WikimediaClient
from hgld.wikimedia.titles import is_sendable, normalise_title

#: Widths of thumbnails in pixels that Wikimedia makes: https://www.mediawiki.org/wiki/Common_thumbnail_sizes
THUMBNAIL_WIDTHS = (20, 40, 60, 120, 250, 330, 500, 960, 1280, 1920, 3840)
#: Number of files in one request.
FILES_PER_REQUEST = 50

_UPLOAD_PATH = re.compile("/wikipedia/commons/(?:thumb/)?[0-9a-f]/[0-9a-f]{2}/([^/]+)(?:/[^/]+)?")
_METADATA = "Artist|LicenseShortName|LicenseUrl"


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


def request_file_facts(client: WikimediaClient, titles: Sequence[str], width: int) -> dict[str, FileFact]:
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
            "iiextmetadatafilter": _METADATA,
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
    metadata = version.extmetadata
    return FileFact(
        "ok" if version.thumburl else "no_thumbnail",
        version.descriptionurl,
        _plain_text(metadata.artist.value),
        _plain_text(metadata.licence.value),
        _plain_text(metadata.licence_url.value),
        version.timestamp,
        version.thumburl,
    )


def _plain_text(html: Any) -> str | None:
    """Return the text of an HTML fragment without what browsers hide; None if nothing is left."""
    if not isinstance(html, str):
        return None
    # A tag around the text, without which Beautiful Soup takes an address for a mistake.
    soup = BeautifulSoup(f"<p>{html}</p>", "lxml")
    for hidden in soup.find_all(style=re.compile(r"display:\s*none")):
        hidden.decompose()
    return " ".join(soup.get_text().split()) or None
