"""Lay out summaries as text for the terminal: lines, counts and tables."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from io import StringIO

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_NUMBER = re.compile(r"-?[\d,]+(\.\d+)?%?|-?inf|nan")
#: Characters of a line of sentences, and of tables that go on below.
WIDTH = 80
#: Wider than any table: lines are never wrapped, so that they can be searched and cut by other programs.
_WIDTH = 10_000


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
    return "–" if math.isnan(value) else f"{100 * value:.2f}"


def aligned(
    header: Sequence[str], rows: Sequence[Sequence[object]], *, indent: str = ""
) -> list[str]:
    r"""Return the lines of a table with aligned columns: numbers to the right, texts to the left.

    Args:
        header: Title of each column.
        rows: Cells of each row. Integers get commas between thousands, floats four decimals; texts stay as they are,
            and count as numbers if they are written as one, perhaps with a percent sign. Rows may be shorter than the
            header.
        indent: Beginning of each line.

    >>> print("\n".join(aligned(["group", "landmarks"], [["church", 15204], ["sea", 7]])))
    group   landmarks
    church     15,204
    sea             7
    """
    texts = [[*map(_text, row), *[""] * (len(header) - len(row))] for row in rows]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column, title in enumerate(header):
        numeric = all(_NUMBER.fullmatch(row[column]) for row in texts)
        table.add_column(
            Text(title), justify="right" if numeric else "left", header_style="", no_wrap=True
        )
    for row in texts:
        table.add_row(*map(Text, row))
    console = Console(file=StringIO(), width=_WIDTH, color_system=None)
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
    """Return a table with named rows; columns that do not fit the width continue in a further table below.

    ``corner`` is the title above the names. Rows have cells by column; tables in which a row has no cell omit it.
    """
    console = Console(
        file=StringIO(), width=width, color_system=None, highlight=False, emoji=False, markup=False
    )
    with console.capture() as captured:
        while columns:
            n_shown = len(columns)
            while (
                n_shown > 1
                and _natural_width(_framed(corner, columns[:n_shown], rows), console) > width
            ):
                n_shown -= 1
            console.print(_framed(corner, columns[:n_shown], rows), "")
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
            table.add_row(Text(name), *(cells.get(column, "") for column in columns))
    return table


def _natural_width(table: Table, console: Console) -> int:
    return Measurement.get(console, console.options.update(width=_WIDTH), table).maximum


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
