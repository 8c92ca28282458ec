"""Modules and public names of packages that are imported on first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from hgld.errors import similar_names


def lazy_exports(
    package: str, modules: Mapping[str, str | None]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions ``__getattr__`` and ``__dir__`` of a package (PEP 562).

    ``hgld --help`` then needs neither numpy nor Arrow nor torch, though rooms offer what does.

    Args:
        package: Name of the package, its ``__name__``.
        modules: Module that defines each public name, relative to the package; None for submodules. Names that the
            package imports itself need no entry.

    >>> get, names = lazy_exports("email", {"mime": None, "message_from_string": "parser"})
    >>> get("mime").__name__, "mime" in names()
    ('email.mime', True)
    """

    def get(name: str) -> Any:
        if name not in modules:
            similar = similar_names(name, names())
            hint = f"; did you mean {similar[0]}?" if similar else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        module = modules[name]
        if module is None:
            return import_module(f"{package}.{name}")
        return getattr(import_module(f"{package}.{module}"), name)

    def names() -> list[str]:
        return list(sys.modules[package].__all__)

    return get, names


class _LazyModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


def lazy_module(name: str) -> Any:
    """Return a stand-in for a module, which is imported when an attribute of the stand-in is first asked for.

    numpy and pyarrow take as long to import as all of a stage whose output is up to date. Modules that such a stage
    imports use stand-ins, and import the modules themselves for type checkers only.

    >>> lazy_module("math").sqrt(4.0)
    2.0
    """
    return _LazyModule(name)
