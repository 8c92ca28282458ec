"""Settings of ``hgld taxonomy import``, in a module that is fast to import for help."""

from __future__ import annotations

from dataclasses import dataclass

from hgld.errors import ConfigurationError, require_at_least

FURTHER_COLUMNS = ("items", "guideline", "key", "merged")
#: Columns of the table ``hierarchy`` that are not levels.
RESERVED = frozenset(
    ("split", "id", "page", "label", "groups", "label_source", "landmark_id", "category", "entity")
)
#: Names that a level cannot have.
NO_LEVELS = (*FURTHER_COLUMNS, *sorted(RESERVED))


@dataclass(frozen=True)
class ImportConfig:
    """Settings of the import of a tree.

    Args:
        levels: Names of the levels, finest first, separated by commas; for a CSV file without paths, the names
            of the columns. Default: level3,level2,level1 and so on.
        root: Class of Wikidata that is imported with its subclasses, such as Q23397.
        depth: Number of levels below that class. Default: all.
    """

    levels: tuple[str, ...] = ()
    root: str | None = None
    depth: int | None = None

    def __post_init__(self) -> None:
        known = ", ".join(NO_LEVELS)
        for name in self.levels:
            if not name or name in NO_LEVELS or self.levels.count(name) > 1:
                raise ConfigurationError(
                    f'`levels` has "{name}"; give each level a name of its own, other than {known}'
                )
        require_at_least(1, depth=self.depth)
