"""The groups of a review as a tree: the names above each group, and the places for labels and new groups.

If the groups are kinds of cheese, a label may be known only as a cheese. In a taxonomy, a catch-all group holds such
labels: its path repeats the name "cheese" (:func:`hgld.taxonomy.groups.read_taxonomy`). A review adds the catch-all
group of a name when an annotator chooses that name for the first time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hgld.taxonomy.groups import Group, allows_catch_all
from hgld.taxonomy.trees import join_path, tree_paths

#: Names from the top of a tree downwards.
TreePath = tuple[str, ...]

_CATCH_ALL = "not known more exactly"


@dataclass(frozen=True, slots=True)
class Place:
    """A group, or a name above groups, that a label can be put into.

    Args:
        path: Names from the top to the place.
        key: Key of the group; None for a name above groups that has no catch-all group yet.
        is_inner: Whether it is a name above groups.
    """

    path: TreePath
    key: str | None
    is_inner: bool

    @property
    def name(self) -> str:
        """The last name of the path."""
        return self.path[-1]

    @property
    def choice(self) -> str:
        """Value of a form to choose the place: ``group:KEY``, or ``above:PATH`` without a group."""
        if self.key is None:
            return f"above:{join_path(self.path)}"
        return f"group:{self.key}"


class GroupTree:
    """The groups of a taxonomy with the names above them.

    Attributes:
        levels: Names of the levels of the taxonomy, finest first.
        has_icons: Whether the names above all groups are natural and human-made, as in H-GLDv2. Pages then show an
            icon instead of the name.

    Args:
        groups: Groups by key, all of one taxonomy.
    """

    def __init__(self, groups: Mapping[str, Group]) -> None:
        self.groups = groups
        self.levels = next(iter(groups.values())).levels
        roots = {group.root for group in groups.values()}
        self.has_icons = len(self.levels) == 2 and roots <= {"natural", "human-made"}
        self._paths = dict(zip(groups, tree_paths(groups.values()), strict=True))
        self._keys = {path: key for key, path in self._paths.items()}

    def above(self, key: str) -> str:
        """Return the text beside the name of a group on a page: the names above it; empty with icons."""
        if self.has_icons or key not in self._paths:
            return ""
        path = self._paths[key]
        if _repeats_name(path):
            return text_above(path[:-1], is_inner=True)
        return text_above(path, is_inner=False)

    def titles(self) -> dict[str, str]:
        """Return the path of each group as text, by key in the order of the tree; with icons, the name alone."""
        if self.has_icons:
            return {key: group.name for key, group in self.groups.items()}
        titles = {}
        for place in self.places():
            if place.key is not None:
                path = join_path(place.path)
                titles[place.key] = f"{path}, {_CATCH_ALL}" if place.is_inner else path
        return titles

    def places(self) -> list[Place]:
        """Return all places for a label in the order of the tree; with icons, in the order of names."""
        if self.has_icons:
            by_name = sorted(self.groups.values(), key=lambda group: group.name.casefold())
            return [Place((group.name,), group.key, is_inner=False) for group in by_name]
        inner = self._inner_paths()
        places = []
        for path in self._all_paths():
            if path in inner:
                key = self.key_at((*path, path[-1]))
                if key is not None or allows_catch_all(self.levels):
                    places.append(Place(path, key, is_inner=True))
            elif not _repeats_name(path):
                places.append(Place(path, self._keys[path], is_inner=False))
        return places

    def key_at(self, path: TreePath) -> str | None:
        """Return the key of the group with this path; None without such a group."""
        return self._keys.get(path)

    def inner_path(self, text: str) -> TreePath | None:
        """Return the path above groups with this text; None without such a path."""
        for path in self._inner_paths():
            if join_path(path) == text:
                return path
        return None

    def parents(self) -> dict[str, TreePath]:
        """Return the paths below which a group can be added, by their texts, in the order of the tree."""
        inner = self._inner_paths()
        parents = {}
        for path in self._all_paths():
            has_room = len(path) < len(self.levels)
            if path in inner or (has_room and not _repeats_name(path)):
                parents[join_path(path)] = path
        return parents

    def new_value(self, path: TreePath, name: str, guideline: str) -> dict[str, Any]:
        """Return the value for a new group below a path, see the kind ``group`` in :mod:`hgld.review.state`."""
        n_levels = len(self.levels) - len(path)
        names = [name] * n_levels + list(reversed(path))
        value: dict[str, Any] = {"name": name, "root": names[-1], "guideline": guideline}
        if len(names) > 2:
            value["between"] = names[1:-1]
        return value

    def is_taken(self, path: TreePath, name: str) -> bool:
        """Return whether a new group below a path cannot have this name.

        The new group repeats its name at all levels below the path. No group may have the name at these levels.
        """
        n_levels = len(self.levels) - len(path)
        for group in self.groups.values():
            for taken_name in group.path[:n_levels]:
                if taken_name.casefold() == name.casefold():
                    return True
        return False

    def _inner_paths(self) -> set[TreePath]:
        """Return the paths of the names above groups."""
        paths = set()
        for path in self._paths.values():
            for n_names in range(1, len(path)):
                paths.add(path[:n_names])
        return paths

    def _all_paths(self) -> list[TreePath]:
        """Return the paths of all groups and of all names above them, each before the paths that continue it."""
        below: defaultdict[TreePath, dict[TreePath, None]] = defaultdict(dict)
        for path in self._paths.values():
            for n_names in range(1, len(path) + 1):
                below[path[: n_names - 1]][path[:n_names]] = None
        ordered: list[TreePath] = []
        waiting: list[TreePath] = [()]
        while waiting:
            path = waiting.pop()
            ordered.append(path)
            waiting += reversed(below[path])
        return ordered[1:]


def text_above(path: TreePath, *, is_inner: bool) -> str:
    """Return the text beside the last name of a path on a page.

    >>> text_above(("Food", "Dairy", "Gouda"), is_inner=False), text_above(("Food", "Dairy"), is_inner=True)
    ('Food > Dairy', 'Food, not known more exactly')
    """
    parts = [join_path(path[:-1])] if len(path) > 1 else []
    if is_inner:
        parts.append(_CATCH_ALL)
    return ", ".join(parts)


def _repeats_name(path: TreePath) -> bool:
    """Return whether a path belongs to a catch-all group."""
    return len(path) > 1 and path[-1] == path[-2]
