"""Colours of methods, the same in all figures."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

from hgld.benchmark.benchmark_settings import BenchmarkSettings, SweepSettings
from hgld.figures.style import FAINT, LINES

#: Colours of methods that many comparisons have, so that figures of different comparisons can be read side by side.
_FAMILIAR = {
    "untrained": FAINT,
    **dict(zip(("happier", "smooth_ap", "csl", "sup_ap", "roadmap_pairs", "roadmap"), LINES, strict=False)),
}


def method_colours(settings: BenchmarkSettings) -> dict[str, str]:
    """Return the colour of each method of a comparison, whichever of them are selected or drawn.

    Methods of other names than the familiar ones take the remaining colours: first those of the figures, then those
    of sweeps. Colours repeat where there are more methods than colours.
    """
    drawn = settings.pictures.curves if settings.pictures else ()
    swept = (curve.method for sweep in settings.sweeps.values() for curve in sweep.curves.values())
    names = dict.fromkeys([*drawn, *swept, *settings.methods])
    familiar = {name: colour for name, colour in _FAMILIAR.items() if name in names}
    free = cycle([colour for colour in LINES if colour not in familiar.values()])
    return familiar | {name: next(free) for name in names if name not in familiar}


def curve_colours(sweep: SweepSettings, of_methods: Mapping[str, str]) -> dict[str, str]:
    """Return the colour of each curve of a sweep: that of its method, or another for further curves of a method."""
    taken = {of_methods[curve.method] for curve in sweep.curves.values()}
    free = cycle([colour for colour in LINES if colour not in taken] or LINES)
    colours: dict[str, str] = {}
    for title, curve in sweep.curves.items():
        colour = of_methods[curve.method]
        colours[title] = next(free) if colour in colours.values() else colour
    return colours
