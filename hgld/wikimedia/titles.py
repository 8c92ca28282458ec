"""Page titles of MediaWiki: read from URLs, normalised, and written into URL paths.

The rules of MediaWiki's title parser are implemented as far as they determine the page. A title
that breaks other rules (illegal characters, more than 255 bytes) is passed on unchanged; the server
reports it as invalid.
"""

from __future__ import annotations

import re
import unicodedata
from html import unescape
from urllib.parse import parse_qsl, quote, unquote, urlsplit

CATEGORY_PREFIX = "Category:"
#: Categories of pages with the templates of soft redirects on Commons.
REDIRECT_CATEGORIES = ("Category:Category redirects", "Category:Non-empty category redirects")

_HOSTS = re.compile(r"(www\.)?(commons(\.m)?|upload)\.wikimedia\.org", re.IGNORECASE)
#: Beginning of an address without a scheme.
_HOST_ALONE = re.compile(f"(//)?{_HOSTS.pattern}/", re.IGNORECASE)
_SPACES = re.compile("[ _\u00a0\u1680\u180e\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
_CHARACTER_REFERENCE = re.compile(r"&#?\w+;")
_UNSENDABLE = re.compile("[|\x00-\x1f\x7f]")
_DIRECTION_MARKS = re.compile("[\u200e\u200f\u202a-\u202e]")
#: A parameter with a value, such as ``uselang=fr``; the part of a title after a question mark
#: seldom matches.
_PARAMETER = re.compile(r"[\w.%\[\]-]+=.*", re.DOTALL)
#: Parameters that may be written without a value.
_FLAGS = ("debug", "printable", "safemode")


def title_of_url(url: str) -> str:
    """Return the normalised title of the category that a URL of Wikimedia Commons names.

    The scheme may be ``http``, ``https`` or missing. Hosts are the desktop, mobile and upload
    hosts, and addresses have the form ``/wiki/Category:...`` or ``index.php?title=Category:...``,
    also with ``&amp;`` as in the source of a page. The fragment is dropped, and so are all
    parameters except ``title``, whether of MediaWiki, translators or trackers. A query without
    parameters is part of the title, with a question mark that was not written as ``%3F``.

    Raises:
        ValueError: The URL does not name a category, or its query mixes parameters with other text.

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
        is_path = parts.path.startswith("/wiki/")
        title = _title_in_path(url) if is_path else _title_in_query(url, parts.query)

    except UnicodeDecodeError:
        raise ValueError(
            f'"{url}" has percent-encoded bytes that are not UTF-8; {expected}'
        ) from None
    title = normalise_title(title)
    if not title.startswith(CATEGORY_PREFIX) or title == CATEGORY_PREFIX:
        raise ValueError(f'"{url}" is not the URL of a category; {expected}')
    return title


def _title_in_path(url: str) -> str:
    """Return the title after ``/wiki/``, with the query if it can only be part of the title."""
    # urlsplit drops a trailing question mark.
    path, question_mark, query = url.partition("#")[0].partition("?")
    title = path.partition("/wiki/")[2]
    if question_mark:
        are_parameters = [_is_parameter(part) for part in re.split("[?&]", query)]
        if not any(are_parameters):
            title += f"?{query}"
        elif not all(are_parameters):
            raise ValueError(
                f'"{url}" is ambiguous: "?{query}" is part of the title, or parameters of the page, or both; write a '
                "question mark of the title as %3F and its & as %26, and leave out the parameters"
            )
    return unquote(title, errors="strict")


def _title_in_query(url: str, query: str) -> str:
    """Return the parameter ``title``; an empty string without one."""
    parameters = parse_qsl(query, keep_blank_values=True, errors="strict")
    titles = [value for name, value in parameters if name == "title"]
    if not titles:
        return ""
    problem = "it has several titles" if len(titles) > 1 else None
    for part in query.split("&"):
        if part and not _is_parameter(part):
            problem = f'"{part}" is not a parameter of a page'
            break
    if problem is not None:
        raise ValueError(
            f'"{url}" is ambiguous: {problem}; write an & of the title as %26, and leave out the parameters'
        )
    return titles[0]


def _is_parameter(text: str) -> bool:
    return text in _FLAGS or _PARAMETER.fullmatch(text) is not None


def normalise_title(raw: str) -> str:
    """Return a title in the form that MediaWiki stores.

    The result is in NFC, with single spaces for runs of spaces and underscores, and without
    direction marks. ``Category:`` is capitalised and the first letter after it is in title case,
    except ß, as decided in https://phabricator.wikimedia.org/T292552. Georgian letters have no
    capitals in title case, although Unicode has them.

    >>> normalise_title("category:lime_kiln  Point ")
    'Category:Lime kiln Point'
    """
    text = _SPACES.sub(" ", _DIRECTION_MARKS.sub("", raw))
    text = text.strip(" ").removeprefix(":").lstrip(" ")
    namespace, colon, name = text.partition(":")
    if colon and namespace.strip(" ").lower() == "category":
        return CATEGORY_PREFIX + _capitalised(name.strip(" "))
    return _capitalised(text)


def is_sendable(title: str) -> bool:
    """Return whether a title can be sent in a list of titles.

    Empty titles and titles with ``|`` or control characters cannot be sent; no page has such a
    title.

    >>> is_sendable("Category:AC/DC"), is_sendable("Category:AC|DC")
    (True, False)
    """
    return bool(title) and _UNSENDABLE.search(title) is None


def title_path(title: str) -> str:
    """Return a title in the form for the path of a URL, after ``/wiki/``.

    >>> title_path("Category:Where is Edge?")
    'Category:Where_is_Edge%3F'
    """
    return quote(title.replace(" ", "_"), safe="/:@!$*(),;'~-._")


def _capitalised(text: str) -> str:
    if not text.startswith("ß"):
        text = text[:1].title() + text[1:]
    return unicodedata.normalize("NFC", text)
