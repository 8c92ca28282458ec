"""Page titles of MediaWiki: read from URLs, normalised, and written into URL paths.

The rules are those of MediaWiki's title parser as far as they decide which page is meant. A title that breaks other
rules (illegal characters, more than 255 bytes) is passed on unchanged; the server reports it as invalid.
"""

from __future__ import annotations

import re
import unicodedata
from html import unescape
from urllib.parse import parse_qsl, quote, unquote, urlsplit

CATEGORY_PREFIX = "Category:"
#: Categories that the templates of soft redirects on Commons put their pages into.
REDIRECT_CATEGORIES = ("Category:Category redirects", "Category:Non-empty category redirects")

_HOSTS = re.compile(r"(www\.)?(commons(\.m)?|upload)\.wikimedia\.org", re.IGNORECASE)
#: Begins an address without a scheme.
_HOST_ALONE = re.compile(f"(//)?{_HOSTS.pattern}/", re.IGNORECASE)
_SPACES = re.compile("[ _\u00a0\u1680\u180e\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
_CHARACTER_REFERENCE = re.compile(r"&#?\w+;")
_UNSENDABLE = re.compile("[|\x00-\x1f\x7f]")
_DIRECTION_MARKS = re.compile("[\u200e\u200f\u202a-\u202e]")
#: A parameter with a value, such as ``uselang=fr``; the rest of a title with a raw question mark seldom looks so.
_PARAMETER = re.compile(r"[\w.%\[\]-]+=.*", re.DOTALL)
#: Parameters that are also written without a value.
_FLAGS = ("debug", "printable", "safemode")


def title_of_url(url: str) -> str:
    """Return the normalised title of the category that a URL of Wikimedia Commons names.

    Accepted are ``http`` and ``https``, or no scheme, the desktop, mobile and upload hosts, and both
    ``/wiki/Category:...`` and ``index.php?title=Category:...``, also with ``&amp;`` as in the source of a page. The
    fragment is dropped, and so are all parameters but ``title``, whether of MediaWiki, translators or trackers. A
    query without any parameter is part of the title, whose question mark was not written as ``%3F``.

    Raises:
        ValueError: It is not that of a category, or its query mixes parameters with other text.

    >>> title_of_url("http://commons.wikimedia.org/wiki/Category:Caf%C3%A9_de_Flore?uselang=fr#Media")
    'Category:Café de Flore'
    >>> title_of_url("http://commons.wikimedia.org/wiki/Category:Where_is_Edge?_(film)")
    'Category:Where is Edge? (film)'
    """
    expected = "expected one such as https://commons.wikimedia.org/wiki/Category:Mount_Rainier"
    url = _CHARACTER_REFERENCE.sub(lambda match: unescape(match[0]), url.strip())
    if _HOST_ALONE.match(url):
        url = f"https://{url.removeprefix('//')}"
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        raise ValueError(f'"{url}" is not a URL; {expected}') from None
    if parts.scheme not in ("http", "https") or not _HOSTS.fullmatch(host):
        raise ValueError(f'"{url}" is not a URL of Wikimedia Commons; {expected}')
    try:
        title = (
            _title_in_path(url)
            if parts.path.startswith("/wiki/")
            else _title_in_query(url, parts.query)
        )
    except UnicodeDecodeError:
        raise ValueError(
            f'"{url}" has percent-encoded bytes that are not UTF-8; {expected}'
        ) from None
    title = normalise_title(title)
    if not title.startswith(CATEGORY_PREFIX) or title == CATEGORY_PREFIX:
        raise ValueError(f'"{url}" is not the URL of a category; {expected}')
    return title


def _title_in_path(url: str) -> str:
    """Return the title after ``/wiki/``, with the query if that can only be part of the title."""
    # Not from urlsplit, which does not tell a trailing question mark from none.
    path, question_mark, query = url.partition("#")[0].partition("?")
    title = path.partition("/wiki/")[2]
    are_parameters = [_is_parameter(part) for part in re.split("[?&]", query)]
    if question_mark and not any(are_parameters):
        title += f"?{query}"
    elif question_mark and not all(are_parameters):
        raise ValueError(
            f'"{url}" is ambiguous: "?{query}" is part of the title, or parameters of the page, or both; write a '
            "question mark of the title as %3F and its & as %26, and leave out the parameters"
        )
    return unquote(title, errors="strict")


def _title_in_query(url: str, query: str) -> str:
    """Return the parameter ``title``; an empty string without one."""
    parameters = parse_qsl(query, keep_blank_values=True, errors="strict")
    titles = [value for name, value in parameters if name == "title"]
    others = [part for part in query.split("&") if part and not _is_parameter(part)]
    if titles and (len(titles) > 1 or others):
        found = f'"{others[0]}" is no parameter of a page' if others else "it has several titles"
        raise ValueError(
            f'"{url}" is ambiguous: {found}; write an & of the title as %26, and leave out the parameters'
        )
    return titles[0] if titles else ""


def _is_parameter(text: str) -> bool:
    return text in _FLAGS or _PARAMETER.fullmatch(text) is not None


def normalise_title(raw: str) -> str:
    """Return a title as MediaWiki stores it.

    The result is in NFC, with single spaces for runs of spaces and underscores, without direction marks, with
    ``Category:`` capitalised and the first letter after it in title case, except for ß, as
    https://phabricator.wikimedia.org/T292552 decided: Georgian has no capitals there, although Unicode has.

    >>> normalise_title("category:lime_kiln  Point ")
    'Category:Lime kiln Point'
    """
    text = _SPACES.sub(" ", _DIRECTION_MARKS.sub("", raw)).strip(" ").removeprefix(":").lstrip(" ")
    namespace, colon, name = text.partition(":")
    if colon and namespace.strip(" ").lower() == "category":
        return CATEGORY_PREFIX + _capitalised(name.strip(" "))
    return _capitalised(text)


def is_sendable(title: str) -> bool:
    """Return whether a title can be sent in a list of titles.

    Titles with ``|`` or control characters cannot, nor an empty one; no page has such a title.

    >>> is_sendable("Category:AC/DC"), is_sendable("Category:AC|DC")
    (True, False)
    """
    return bool(title) and _UNSENDABLE.search(title) is None


def title_path(title: str) -> str:
    """Return a title as written in the path of a URL, after ``/wiki/``.

    >>> title_path("Category:Where is Edge?")
    'Category:Where_is_Edge%3F'
    """
    return quote(title.replace(" ", "_"), safe="/:@!$*(),;'~-._")


def _capitalised(text: str) -> str:
    first = text[:1]
    return unicodedata.normalize("NFC", (first if first == "ß" else first.title()) + text[1:])
