"""Every public Python name, from the rooms that export it."""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module
from types import ModuleType

from sphinx.pycode import ModuleAnalyzer

import hgld
from hgld.tables import TableSpec


def python_pages() -> dict[str, str]:
    """Return a page for each room that exports names, and the list of them."""
    rooms = [f"hgld.{module.name}" for module in pkgutil.iter_modules(hgld.__path__) if module.ispkg]
    pages = {f"{room}.rst": page for room in rooms if (page := _page(room))}
    names = "\n".join(f"   {name.removesuffix('.rst')}" for name in pages)
    shortcuts = ", ".join(f"``hgld.{name}``" for name in hgld.__all__ if not _is_room_or_private(name))
    about = f"The names below may be relied on. {shortcuts} are also offered by ``hgld`` itself.\n\n"
    pages["python.rst"] = _heading("Python") + about + f".. toctree::\n   :maxdepth: 1\n\n{names}\n"
    return pages


def _is_room_or_private(name: str) -> bool:
    return name.startswith("__") or isinstance(getattr(hgld, name), ModuleType)


def _page(room: str) -> str:
    module = import_module(room)
    entries = [_entry(module, name) for name in getattr(module, "__all__", ()) if name not in ("app",)]
    is_public = entries and not room.endswith(".cli")
    return _heading(room) + (inspect.getdoc(module) or "") + "\n\n" + "\n".join(entries) if is_public else ""


def _entry(room: ModuleType, name: str) -> str:
    value, full_name = getattr(room, name), f"{room.__name__}.{name}"
    if inspect.isclass(value):
        return f".. autoclass:: {full_name}\n   :members:\n"
    if inspect.isroutine(value):
        return f".. autofunction:: {full_name}\n"
    lines = [value.about] if isinstance(value, TableSpec) else _comment(room, name)
    comment = "\n".join(f"   {line}" for line in lines)
    return f".. py:data:: {full_name}\n\n{comment}\n"


def _comment(room: ModuleType, name: str) -> list[str]:
    """Return the lines of the comment ``#:`` above a constant in the module that defines it."""
    for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
        documented = ModuleAnalyzer.for_module(module.name).find_attr_docs()
        if ("", name) in documented:
            return documented["", name]
    return []


def _heading(text: str) -> str:
    return f"{text}\n{'=' * len(text)}\n\n"
