"""Comparison of printed outputs with real ones: words and integers are equal, measured numbers nearly."""

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

_Item = TypeVar("_Item")

#: Stands for any lines where it is alone on a line, and for any text within a line.
ELLIPSIS = "..."

#: What differs from run to run; of two outputs, only the kind is compared.
_VARYING = {
    "address": r"https?://(?:127\.0\.0\.1|localhost)[^\s\"'<>]*",
    "time": r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?)?",
    "duration": r"\d+:\d\d(?::\d\d)?\b|\d[\d,.]* ?(?:ms|s|min|h|seconds?|minutes?|hours?)\b",
    "rate": r"\d[\d,.]*(?: [a-z]+)?(?:/s\b| per second\b| a second\b)",
    "share": r"\d+ ?% of the time\b",
    "digest": r"\b(?=[0-9a-f]*\d)[0-9a-f]{12,}\b",
}
_TOKEN = re.compile(
    "|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _VARYING.items())
    + r"|(?P<decimal>(?<![\w.])[+-]?\d[\d,]*\.\d+(?:e[+-]?\d+)?|\d+e[+-]?\d+)"
    + r"|(?P<word>\.\.\.|\d+(?:,\d{3})*|\w+|\S)"
)
#: Two decimals are equal if they differ by at most this share of the printed one, or by a unit of its last digit.
#: Embeddings, and what is trained on them, differ so much between processors.
RELATIVE_TOLERANCE = 0.02


def outputs_match(printed: str, actual: str, tolerance: float = 0.0) -> bool:
    """Return whether an output is the one that a page prints.

    Args:
        printed: Output on the page; ``...`` stands for any lines or any text.
        actual: Output of a run.
        tolerance: Absolute difference of two decimals that is accepted beside :data:`RELATIVE_TOLERANCE`.
    """

    def tokens_match(printed: tuple[str, str], actual: tuple[str, str]) -> bool:
        return _tokens_match(printed, actual, tolerance)

    def lines_match(printed: str, actual: str) -> bool:
        return _match(_tokens(printed), _tokens(actual), tokens_match, any_items=("word", ELLIPSIS))

    return _match(_lines(printed), _lines(actual), lines_match, any_items=ELLIPSIS)


def abbreviate(printed: str, actual: str) -> str:
    """Return an actual output, abbreviated as the printed one is if that is done at one place only."""
    head, *rest = re.split(r"^\.\.\.\n", printed, flags=re.MULTILINE)
    lines = actual.splitlines(keepends=True)
    n_head, n_tail = head.count("\n"), rest[0].count("\n") if rest else 0
    if len(rest) != 1 or len(lines) <= n_head + n_tail + 1:
        return actual
    return "".join([*lines[:n_head], f"{ELLIPSIS}\n", *lines[len(lines) - n_tail :]])


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def _tokens(line: str) -> list[tuple[str, str]]:
    return [(match.lastgroup or "", match[0]) for match in _TOKEN.finditer(line)]


def _tokens_match(printed: tuple[str, str], actual: tuple[str, str], tolerance: float) -> bool:
    (kind, text), (actual_kind, actual_text) = printed, actual
    if kind != actual_kind or kind in _VARYING:
        return kind == actual_kind
    if kind != "decimal":
        return text == actual_text
    expected, found = (float(number.replace(",", "")) for number in (text, actual_text))
    last_digit = 10.0 ** -len(re.sub(r"e.*|.*\.", "", text)) if "." in text else 1.0
    exponent = float(f"1e{text.partition('e')[2] or 0}")
    accepted = max(RELATIVE_TOLERANCE * abs(expected), 1.001 * last_digit * exponent, tolerance)
    return abs(expected - found) <= accepted


def _match(
    printed: Sequence[_Item], actual: Sequence[_Item], equal: Callable[[_Item, _Item], bool], any_items: _Item
) -> bool:
    """Return whether two sequences are equal, where one item of the printed sequence stands for any others."""
    reached = {0}  # lengths of beginnings of `actual` that the items so far can stand for
    for item in printed:
        if item == any_items:
            reached = set(range(min(reached), len(actual) + 1)) if reached else reached
        else:
            reached = {length + 1 for length in reached if length < len(actual) and equal(item, actual[length])}
    return len(actual) in reached
