"""Tables as text, for what the commands print."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBER = re.compile(r"-?[\d,]+(\.\d+)?%?|-?inf|nan")


def aligned(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    r"""Lines of a table: numbers to the right, texts to the left.

    Whole numbers get commas between thousands, other numbers four digits after the point. A text that is a number
    already, perhaps a percentage, stands as it is.

    >>> print("\n".join(aligned(["group", "landmarks"], [["church", 15204], ["sea", 7]])))
    group   landmarks
    church     15,204
    sea             7
    """
    texts = [header, *([_text(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    right = [all(_NUMBER.fullmatch(line[n]) for line in texts[1:]) for n in range(len(header))]
    return [
        "  ".join(
            text.rjust(width) if numbers else text.ljust(width)
            for text, width, numbers in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in texts
    ]


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
