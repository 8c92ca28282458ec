"""Texts that an annotator enters: names, guidelines and comments, cleaned and limited in length, and numbers."""

from __future__ import annotations

from hgld.io.csv_files import without_control_characters
from hgld.review.actions import InvalidActionError

#: Longest texts in characters. The fields of the page have the same limits.
MAX_CLUSTER_NAME = 200
MAX_GROUP_NAME = 100
MAX_GUIDELINE = 500
MAX_COMMENT = 2000


def cluster_name(text: str) -> str:
    """Return the name of a cluster in one line.

    Raises:
        InvalidActionError: It is empty or too long; so for the other functions.
    """
    return _single_line("name", text, MAX_CLUSTER_NAME, "enter a name")


def group_name(text: str) -> str:
    """Return the name of a group in one line.

    >>> group_name("quay  or wharf ")
    'quay or wharf'
    """
    return _single_line("name", text, MAX_GROUP_NAME, "enter a name")


def guideline(text: str) -> str:
    """Return the guideline of a group in one line."""
    return _single_line("guideline", text, MAX_GUIDELINE, "describe in one line what belongs to the group")


def comment(text: str) -> str:
    """Return a comment, which may be empty."""
    return _limited("comment", without_control_characters(text), MAX_COMMENT)


def parse_number(text: str) -> int | None:
    """Return a number of at most 18 digits 0 to 9; None if the text is anything else.

    >>> parse_number("12"), parse_number("-1"), parse_number("²"), parse_number("9" * 5000)
    (12, None, None, None)
    """
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else None


def _single_line(what: str, text: str, longest: int, if_empty: str) -> str:
    text = " ".join(without_control_characters(text).split())
    if not text:
        raise InvalidActionError(if_empty)
    return _limited(what, text, longest)


def _limited(what: str, text: str, longest: int) -> str:
    if len(text) > longest:
        raise InvalidActionError(f"the {what} has {len(text):,} characters; the longest has {longest:,}")
    return text
