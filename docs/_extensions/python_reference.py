"""Every public Python name, from the rooms that export it."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType

from sphinx.pycode import ModuleAnalyzer

import hgld
from hgld.tables import TableSpec

#: Rooms by what they are for, in the order in which one meets them.
_ROOMS: Mapping[str, Sequence[str]] = {
    "Measure and search": ("hierarchy", "evaluation", "inspection", "rejection", "search"),
    "Train": ("datasets", "audit", "losses", "models", "training", "benchmark"),
    "Label": ("gldv2", "wikimedia", "labels", "completion", "taxonomy", "review", "release"),
    "Files": ("tables",),
}


def python_pages() -> dict[str, str]:
    """Return a page for each room that exports names, and the list of them."""
    rooms = {name: f"hgld.{name}" for names in _ROOMS.values() for name in names}
    pages = {f"{room}.rst": _page(import_module(room)) for room in rooms.values()}
    shortcuts = ", ".join(
        _link(f"hgld.{name}", _home(name)) for name in dir(hgld) if not _is_room_or_private(name)
    )
    parts = [
        _heading("Python", "="),
        f"The names below may be relied on. ``hgld`` itself also offers {shortcuts}.\n",
    ]
    for title, names in _ROOMS.items():
        rows = [
            (f":doc:`{rooms[name]}`", _summary(inspect.getdoc(import_module(rooms[name]))))
            for name in names
        ]
        parts += [_heading(title, "-"), _table(rows)]
    hidden = "\n".join(f"   {room}" for room in rooms.values())
    return pages | {"python.rst": "\n".join([*parts, f".. toctree::\n   :hidden:\n\n{hidden}\n"])}


def _is_room_or_private(name: str) -> bool:
    return name.startswith("__") or isinstance(getattr(hgld, name), ModuleType)


def _home(name: str) -> str:
    """Return the full name under which a shortcut has its entry."""
    homes = (import_module(f"hgld.{room}") for names in _ROOMS.values() for room in names)
    return next(
        (f"{home.__name__}.{name}" for home in homes if name in home.__all__), f"hgld.errors.{name}"
    )


def _link(text: str, target: str) -> str:
    return f":py:obj:`{text} <{target}>`"


def _page(room: ModuleType) -> str:
    """Return the page of a room: all names with a line each, then their entries, by kind."""
    names = sorted((name for name in room.__all__ if name != "app"), key=str.lower)
    kinds: dict[str, list[str]] = {"Functions": [], "Classes": [], "Constants": []}
    for name in names:
        value = getattr(room, name)
        kinds[
            "Classes"
            if inspect.isclass(value)
            else "Functions"
            if inspect.isroutine(value)
            else "Constants"
        ] += [name]
    kinds = {kind: members for kind, members in kinds.items() if members}
    parts = [_heading(room.__name__, "="), f"{inspect.getdoc(room)}\n"]
    for kind, members in kinds.items():
        rows = [
            (_link(name, f"{room.__name__}.{name}"), _summary(_text(room, name)))
            for name in members
        ]
        parts += [_heading(kind, "-"), _table(rows)]
    parts += [
        _heading("Details", "-"),
        *(_entry(room, name) for members in kinds.values() for name in members),
    ]
    return "\n".join(parts)


def _table(rows: Sequence[tuple[str, str]]) -> str:
    lines = (f"   * - {first}\n     - {second}" for first, second in rows)
    return ".. list-table::\n   :widths: auto\n\n" + "\n".join(lines) + "\n"


def _summary(text: str | None) -> str:
    r"""Return the first sentence of the first paragraph of a text.

    >>> _summary("Rank\nall. In blocks.")
    'Rank all.'
    """
    paragraph = " ".join((text or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.) +(?=[A-Z`:])", paragraph)[0]


def _text(room: ModuleType, name: str) -> str:
    """Return what is said about a name: its docstring, or the comment above it."""
    value = getattr(room, name)
    if inspect.isclass(value) or inspect.isroutine(value):
        return inspect.getdoc(value) or ""
    return value.about if isinstance(value, TableSpec) else "\n".join(_comment(room, name))


def _entry(room: ModuleType, name: str) -> str:
    value, full_name = getattr(room, name), f"{room.__name__}.{name}"
    if inspect.isclass(value):
        hidden = ", ".join(name for name in vars(value) if _only_implements(value, name))
        return (
            f".. autoclass:: {full_name}\n   :members:\n"
            + f"   :exclude-members: {hidden}\n" * bool(hidden)
        )
    if inspect.isroutine(value):
        return f".. autofunction:: {full_name}\n"
    comment = "\n".join(f"   {line}" for line in _text(room, name).splitlines())
    return f".. py:data:: {full_name}\n\n{comment}\n"


def _only_implements(kind: type, name: str) -> bool:
    """Return whether a method implements an abstract one, which the base class describes, without a docstring."""
    bases = (vars(base).get(name) for base in kind.__mro__[1:])
    return not vars(kind)[name].__doc__ and any(
        getattr(base, "__isabstractmethod__", False) for base in bases
    )


def _comment(room: ModuleType, name: str) -> list[str]:
    """Return the lines of the comment ``#:`` above a constant in the module that defines it."""
    for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
        documented = ModuleAnalyzer.for_module(module.name).find_attr_docs()
        if ("", name) in documented:
            return documented["", name]
    return []


def _heading(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}\n"
