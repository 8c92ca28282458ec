"""Lay out summaries as text for the terminal: lines, counts and tables."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Literal

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_NUMBER = re.compile(r"-?[\d,]+(\.\d+)?%?|-?inf|nan")
#: Largest number of characters of a line of sentences, and of tables that continue below.
WIDTH = 80
#: Wider than any table: lines are not wrapped, so that other programs can search and cut them.
_UNLIMITED = 10_000


def listed(counts: Mapping[str, int]) -> str:
    """Return counts with their names, separated by commas.

    >>> listed({"train": 1200, "test": 3})
    '1,200 train, 3 test'
    """
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def percent(value: float) -> str:
    """Return a share in percent with two decimals; a dash for NaN.

    >>> percent(0.12345), percent(float("nan"))
    ('12.35', '–')
    """
    if math.isnan(value):
        return "–"
    return f"{100 * value:.2f}"


def aligned(
    header: Sequence[str], rows: Sequence[Sequence[object]], *, indent: str = ""
) -> list[str]:
    r"""Return the lines of a table with aligned columns: numbers to the right, texts to the left.

    Args:
        header: Title of each column.
        rows: Cells of each row; a row may be shorter than the header. Integers get commas between
            thousands, floats four decimals, and texts stay as they are. A text that is written as a
            number, perhaps with a percent sign, counts as a number.
        indent: Beginning of each line.

    >>> print("\n".join(aligned(["group", "landmarks"], [["church", 15204], ["sea", 7]])))
    group   landmarks
    church     15,204
    sea             7
    """
    texts_by_row = []
    for row in rows:
        texts = [_text(cell) for cell in row]
        texts += [""] * (len(header) - len(texts))
        texts_by_row.append(texts)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column, title in enumerate(header):
        is_numeric = all(_NUMBER.fullmatch(texts[column]) for texts in texts_by_row)
        justify: Literal["left", "right"] = "right" if is_numeric else "left"
        table.add_column(Text(title), justify=justify, header_style="", no_wrap=True)
    for texts in texts_by_row:
        table.add_row(*map(Text, texts))
    console = Console(file=StringIO(), width=_UNLIMITED, color_system=None)
    with console.capture() as captured:
        console.print(table)
    return [f"{indent}{line}".rstrip() for line in captured.get().splitlines()]


def wrapped_table(
    corner: str,
    columns: Sequence[str],
    rows: Sequence[tuple[str, Mapping[str, str]]],
    *,
    width: int = WIDTH,
) -> str:
    """Return a table with named rows; columns beyond the width continue in a further table below.

    Args:
        corner: Title above the names of rows.
        columns: Titles of the columns.
        rows: Name and cells by column of each row. A table in which a row has no cell omits the row.
        width: Largest number of characters of a line.
    """
    console = Console(
        file=StringIO(), width=width, color_system=None, highlight=False, emoji=False, markup=False
    )
    with console.capture() as captured:
        while columns:
            n_shown = len(columns)
            table = _framed(corner, columns, rows)
            while n_shown > 1 and _natural_width(table, console) > width:
                n_shown -= 1
                table = _framed(corner, columns[:n_shown], rows)
            console.print(table, "")
            columns = columns[n_shown:]
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def _framed(
    corner: str, columns: Sequence[str], rows: Sequence[tuple[str, Mapping[str, str]]]
) -> Table:
    """Return a table with a line below its header."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(corner, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for name, cells in rows:
        if any(column in cells for column in columns):
            shown_cells = [cells.get(column, "") for column in columns]
            table.add_row(Text(name), *shown_cells)
    return table


def _natural_width(table: Table, console: Console) -> int:
    """Return the width of a table without wrapped lines."""
    return Measurement.get(console, console.options.update(width=_UNLIMITED), table).maximum


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)
