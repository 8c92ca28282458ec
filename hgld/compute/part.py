"""A part of work that is divided among jobs, such as those of an array on a cluster."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from hgld.errors import ConfigurationError

T = TypeVar("T")


@dataclass(frozen=True)
class Part:
    """One of several parts of nearly the same size, into which work is divided in order.

    Args:
        number: Number of the part, from 1.
        count: Number of parts.

    Raises:
        ConfigurationError: The number is not one of 1 to ``count``.
    """

    number: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise ConfigurationError(f"`part` is {self}; expected 1/{self.count} to {self.count}/{self.count}")

    @classmethod
    def parse(cls, text: str) -> Part:
        """Return the part that a text such as ``3/16`` names.

        Raises:
            ConfigurationError: The text names no part.

        >>> Part.parse("3/16")
        Part(number=3, count=16)
        """
        match = re.fullmatch(r"(\d+)/([1-9]\d*)", text.strip())
        if match is None:
            raise ConfigurationError(f'`part` is "{text}"; expected a part and the number of parts, such as 3/16')
        return cls(int(match[1]), int(match[2]))

    def of(self, items: Sequence[T]) -> Sequence[T]:
        """Return the items of this part, which are consecutive: all parts together have each item once.

        >>> [Part(number, 3).of("abcdefgh") for number in (1, 2, 3)]
        ['ab', 'cde', 'fgh']
        """
        n_items = len(items)
        return items[n_items * (self.number - 1) // self.count : n_items * self.number // self.count]

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


def format_numbers(numbers: Sequence[int]) -> str:
    """Format ascending numbers as SLURM writes the tasks of an array.

    >>> format_numbers([3, 7, 8, 9, 12])
    '3,7-9,12'
    """
    runs = list[list[int]]()
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
