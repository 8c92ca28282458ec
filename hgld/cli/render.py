"""Draw tables as text for the terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import StringIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

_NUMBER = re.compile(r"-?[\d,]+(\.\d+)?%?|-?inf|nan")
#: Wider than any table: lines are never wrapped, so that they can be searched and cut by other programs.
_WIDTH = 10_000


def aligned(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    r"""Return the lines of a table with aligned columns: numbers to the right, texts to the left.

    Args:
        header: Title of each column.
        rows: Cells of each row. Integers get commas between thousands, floats four decimals; texts stay as they are,
            and count as numbers if they are written as one, perhaps with a percent sign.

    >>> print("\n".join(aligned(["group", "landmarks"], [["church", 15204], ["sea", 7]])))
    group   landmarks
    church     15,204
    sea             7
    """
    texts = [[_text(value) for value in row] for row in rows]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column, title in enumerate(header):
        numeric = all(_NUMBER.fullmatch(row[column]) for row in texts)
        table.add_column(Text(title), justify="right" if numeric else "left", header_style="", no_wrap=True)
    for row in texts:
        table.add_row(*map(Text, row))
    console = Console(file=StringIO(), width=_WIDTH, color_system=None)
    with console.capture() as captured:
        console.print(table)
    return [line.rstrip() for line in captured.get().splitlines()]


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
