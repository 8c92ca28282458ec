"""Public names of packages, imported on first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(
    package: str, modules: Mapping[str, str | None]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions ``__getattr__`` and ``__dir__`` of a package (PEP 562).

    ``hgld --help`` then needs neither numpy nor Arrow nor torch, though rooms offer what does.

    Args:
        package: Name of the package, its ``__name__``.
        modules: Module that defines each public name, relative to the package; None for submodules.

    >>> get, names = lazy_exports("email", {"mime": None, "message_from_string": "parser"})
    >>> get("mime").__name__, "mime" in names()
    ('email.mime', True)
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = modules[name]
        if module is None:
            return import_module(f"{package}.{name}")
        return getattr(import_module(f"{package}.{module}"), name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return get, names
