"""Losses of other packages, which they declare as entry points."""

from __future__ import annotations

from collections.abc import Collection
from importlib.metadata import EntryPoint, entry_points

from hgld.errors import ConfigurationError
from hgld.losses.base import Loss
from hgld.losses.loss_specs import LossSpec, spec

#: Group of the entry points: ``name = "module:constructor"``, where the name is that of the loss in settings.
GROUP = "hgld.losses"


def installed_losses(taken: Collection[str]) -> dict[str, LossSpec]:
    """Return the specifications of losses that installed packages declare, by their names in settings.

    A constructor is a subclass of :class:`~hgld.losses.Loss`, whose parameters become options as those of hgld's own
    losses do (:func:`~hgld.losses.loss_specs.spec`); or it is a :class:`~hgld.losses.loss_specs.LossSpec`.

    Args:
        taken: Names of hgld's own losses.

    Raises:
        ConfigurationError: A name is taken or declared twice, or a declared loss cannot be imported or is none.
    """
    found: dict[str, LossSpec] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        if entry.name in taken or entry.name in found:
            raise ConfigurationError(f"{_origin(entry)}: there is another loss of this name; choose a new one")
        found[entry.name] = _load(entry)
    return found


def _load(entry: EntryPoint) -> LossSpec:
    try:
        loaded = entry.load()
        if isinstance(loaded, LossSpec):
            return loaded
        if isinstance(loaded, type) and issubclass(loaded, Loss):
            return spec(loaded)
    except Exception as error:  # whatever the import of somebody's module may raise
        raise ConfigurationError(f"{_origin(entry)}: {type(error).__name__}: {error}") from error
    raise ConfigurationError(f"{_origin(entry)}: it is no subclass of hgld.losses.Loss")


def _origin(entry: EntryPoint) -> str:
    package = f" of {entry.dist.name}" if entry.dist is not None else ""
    return f"the loss {entry.name} ({entry.value}){package}"
