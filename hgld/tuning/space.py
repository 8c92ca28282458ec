"""The space of a search, and the points that are tried in it.

Points are those of a scrambled Halton sequence: as random as independent draws, but without clusters and gaps, which
finds better settings in as many trials (Bergstra and Bengio, Random Search for Hyper-Parameter Optimization, JMLR
2012, Sec. 4). Each point is independent of the number of trials, so that a search can be extended.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hgld.errors import ConfigurationError

_LOG = "log:"


@dataclass(frozen=True)
class Dimension:
    """A setting that is searched.

    Args:
        key: Its name, such as ``loss.lambda``.
        kind: Whether numbers are drawn uniformly between two ends, or uniformly in their logarithm; or ``values`` are
            chosen, each as often as another.
        values: The two ends, or the values in YAML.
    """

    key: str
    kind: Literal["uniform", "log", "values"]
    values: tuple[str, ...]

    def change(self, position: float) -> str:
        """Return the change of settings at a position from 0 to below 1; numbers have three significant digits.

        >>> parse_dimension("seed=3,5").change(0.5), parse_dimension("optimiser.head.lr=log:1e-4..1e-2").change(0.5)
        ('seed=5', 'optimiser.head.lr=0.001')
        """
        if self.kind == "values":
            return f"{self.key}={self.values[int(position * len(self.values))]}"
        low, high = map(float, self.values)
        if self.kind == "log":
            return f"{self.key}={low * (high / low) ** position:.3g}"
        return f"{self.key}={low + (high - low) * position:.3g}"


def parse_dimension(text: str) -> Dimension:
    """Return the dimension of a text such as ``KEY=0.1..0.9``, ``KEY=log:1e-5..1e-2`` or ``KEY=16,32,64``.

    Raises:
        ConfigurationError: The text has another form, or the ends are not ascending, or not positive for ``log``.
    """
    key, _, text_of_values = text.partition("=")
    ends = tuple(text_of_values.removeprefix(_LOG).split(".."))
    is_log = text_of_values.startswith(_LOG)
    if key and text_of_values and len(ends) == 1 and not is_log:
        return Dimension(key, "values", tuple(text_of_values.split(",")))
    try:
        low, high = map(float, ends)
    except ValueError:
        low = high = math.nan
    if not key or not (0 if is_log else -math.inf) < low < high < math.inf:
        raise ConfigurationError(
            f"`space` is {text}; expected KEY=LOW..HIGH, KEY=log:LOW..HIGH with positive ends, or values KEY=A,B,C"
        )
    return Dimension(key, "log" if is_log else "uniform", ends)


def sample(space: Sequence[Dimension], n: int) -> list[tuple[str, ...]]:
    """Return the changes of settings of n points of a space."""
    from scipy.stats.qmc import Halton

    points = Halton(len(space), seed=0).random(n).tolist()
    return [tuple(each.change(position) for each, position in zip(space, point, strict=True)) for point in points]
