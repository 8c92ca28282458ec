"""Tables of results as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from io import StringIO

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text


def rows_table(rows: Mapping[str, Mapping[str, float]], *, width: int = 80) -> str:
    """Format means in percent, a row for each name, in a table of at most this width."""
    metrics = list(next(iter(rows.values())))
    cells = {
        name: ["–" if math.isnan(means[metric]) else f"{100 * means[metric]:.2f}" for metric in metrics]
        for name, means in rows.items()
    }
    return text_table("mean in %", metrics, cells, width=width)


def text_table(corner: str, heads: Sequence[str], rows: Mapping[str, Sequence[str]], *, width: int = 80) -> str:
    """Format texts as a table for a terminal; columns that do not fit go into a further one."""
    console = Console(file=StringIO(), width=width, color_system=None, highlight=False, emoji=False, markup=False)

    def table_of(chosen: Sequence[str]) -> Table:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column(corner, overflow="fold")
        for head in chosen:
            table.add_column(head, justify="right", no_wrap=True)
        for name, cells in rows.items():
            cell_of = dict(zip(heads, cells, strict=True))
            table.add_row(Text(name), *(cell_of[head] for head in chosen))
        return table

    unlimited = console.options.update(width=10_000)
    columns = heads
    with console.capture() as text:
        while columns:
            n_shown = len(columns)
            while (
                n_shown > 1
                and Measurement.get(console, unlimited, table_of(columns[:n_shown])).maximum > console.width
            ):
                n_shown -= 1
            console.print(table_of(columns[:n_shown]), "")
            columns = columns[n_shown:]
    return "\n".join(line.rstrip() for line in text.get().splitlines())
