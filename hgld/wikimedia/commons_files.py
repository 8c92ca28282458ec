"""Facts about files of Commons: author, licence and the address of a thumbnail.

https://www.mediawiki.org/wiki/API:Imageinfo gives facts about fifty files a request. Addresses of
thumbnails are taken from its response and never constructed, as
https://phabricator.wikimedia.org/T414805 asks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup

from hgld.wikimedia.api_documents import FileVersion
from hgld.wikimedia.api_facts import CommonsResponse, query_titles
from hgld.wikimedia.client import WikimediaClient
from hgld.wikimedia.titles import is_sendable, normalise_title

#: Widths of thumbnails in pixels that Wikimedia makes:
#: https://www.mediawiki.org/wiki/Common_thumbnail_sizes
THUMBNAIL_WIDTHS = (20, 40, 60, 120, 250, 330, 500, 960, 1280, 1920, 3840)
#: Number of files in one request.
FILES_PER_REQUEST = 50
_UPLOAD_PATH = re.compile("/wikipedia/commons/(?:thumb/)?[0-9a-f]/[0-9a-f]{2}/([^/]+)(?:/[^/]+)?")
#: Metadata of files: their author, their licence and its address.
_METADATA = ("Artist", "LicenseShortName", "LicenseUrl")


class FileFact(NamedTuple):
    """Facts of Commons about a file, after redirects.

    Args:
        status: ``ok``, or the reason why the file has no thumbnail, as in the table
            ``photographs``.
        page: Address of the file's page.
        author: Author in plain text.
        licence: Short name of the licence, such as ``CC BY-SA 3.0``.
        licence_url: Address of the licence.
        uploaded_at: Upload time of the current version of the file, in ISO 8601.
        thumbnail_url: Address of the thumbnail, or of the file itself if it is not wider.
    """

    status: Literal["ok", "missing", "invalid_title", "no_thumbnail"]
    page: str | None = None
    author: str | None = None
    licence: str | None = None
    licence_url: str | None = None
    uploaded_at: str | None = None
    thumbnail_url: str | None = None


def file_title_of_url(url: str) -> str:
    """Return the title of the file that the address of an upload or of a thumbnail names.

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
    """Request facts about up to fifty files by title; files that the response lacks are left out.

    Args:
        client: Client of Commons.
        titles: Titles of files.
        width: Width of thumbnails in pixels, one of :data:`THUMBNAIL_WIDTHS`.
    """
    facts = {title: FileFact("invalid_title") for title in titles if not is_sendable(title)}
    sendable = [title for title in titles if title not in facts]
    if sendable:
        parameters = {
            "prop": "imageinfo",
            "redirects": "1",
            "iiprop": "url|timestamp|extmetadata",
            "iiurlwidth": str(width),
            "iiextmetadatafilter": "|".join(_METADATA),
            "iiextmetadatalanguage": "en",
        }
        response = query_titles(client, sendable, parameters)
        for title in sendable:
            fact = _file_fact(title, response)
            if fact is not None:
                facts[title] = fact
    return facts


def _file_fact(requested: str, response: CommonsResponse) -> FileFact | None:
    title, problem, _ = response.follow(requested)
    page = response.page(title)
    if problem is not None:
        return FileFact("missing")
    if page is None:
        return None
    if page.invalid:
        return FileFact("invalid_title")
    # A page may exist without its file, and a file may exist without a page.
    version = page.imageinfo[0] if page.imageinfo else FileVersion(filemissing=True)
    if version.filemissing or version.filehidden:
        return FileFact("missing", version.descriptionurl)
    return FileFact(
        status="ok" if version.thumburl else "no_thumbnail",
        page=version.descriptionurl,
        author=_metadata_text(version, "Artist"),
        licence=_metadata_text(version, "LicenseShortName"),
        licence_url=_metadata_text(version, "LicenseUrl"),
        uploaded_at=version.timestamp,
        thumbnail_url=version.thumburl,
    )


def _metadata_text(version: FileVersion, key: str) -> str | None:
    """Return the visible text of a metadata value, which is HTML; None without visible text."""
    html = version.extmetadata.get(key, {}).get("value")
    if not isinstance(html, str):
        return None
    # Without a tag around the text, Beautiful Soup warns about text that is an address.
    soup = BeautifulSoup(f"<p>{html}</p>", "lxml")
    for hidden in soup.find_all(style=re.compile(r"display:\s*none")):
        hidden.decompose()
    return " ".join(soup.get_text().split()) or None
