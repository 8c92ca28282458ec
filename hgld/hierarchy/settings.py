"""Settings of hierarchies, in a module that is fast to import for help."""

from __future__ import annotations

from dataclasses import dataclass

from hgld.errors import ConfigurationError, require, require_at_least

#: Difference of cosines that changes the weight of a vote by the factor e: tau of Wu et al. (2018).
TEMPERATURE = 0.07


@dataclass(frozen=True)
class BuildConfig:
    """Settings of the hierarchy.

    Args:
        allow_undecided: Exclude landmarks whose label is undecided.
        extra_levels: Add N levels between group and root, from "subclass of" (P279).
        multi: Keep landmarks with several labels, with a list of all their groups.
        completed_above: Lowest score of the groups that are taken from photographs.
        levels_from: Take groups and levels from the classes above the labels on Wikidata instead of
            decisions: ``parents``, or ``parents:genus,family,order`` to name the levels, finest
            first. Labels with ambiguous classes are excluded and listed. Default: decisions and
            taxonomy.
    """

    allow_undecided: bool = False
    extra_levels: int = 0
    multi: bool = False
    completed_above: float = 0.8
    levels_from: str | None = None

    def __post_init__(self) -> None:
        if self.levels_from is not None and self.levels_from.partition(":")[0] != "parents":
            raise ConfigurationError(
                f'`levels_from` is "{self.levels_from}"; expected parents, or parents: and the levels, finest first'
            )
        require_at_least(0, extra_levels=self.extra_levels)
        require(
            0 <= self.completed_above <= 1,
            "a score from 0 to 1",
            completed_above=self.completed_above,
        )
