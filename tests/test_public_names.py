"""The names that rooms export, some of them imported on first use."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import pytest

import hgld

ROOMS = [f"hgld.{module.name}" for module in pkgutil.iter_modules(hgld.__path__) if module.ispkg]


@pytest.mark.parametrize("name", ["hgld", *ROOMS])
def test_every_exported_name_can_be_imported(name: str) -> None:
    room = import_module(name)
    for exported in getattr(room, "__all__", []):
        assert getattr(room, exported) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = room.no_such_name
