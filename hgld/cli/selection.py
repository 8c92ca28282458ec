"""Reduce the application to what one command line needs.

Typer reads the signatures of all commands, several times each, before it looks at the command line; that takes longer
than most commands that have nothing to do. Here a command line that names a command gets this one only, and one that
names none, as in ``hgld --help``, gets all without their parameters.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence

import typer
from typer.main import get_command_name


def reduced(app: typer.Typer, arguments: Sequence[str]) -> typer.Typer:
    """Return the application, or a copy of it that does the same for this command line.

    Args:
        app: Application, or a group of commands in it.
        arguments: Command line after the name of the program, or of the group.
    """
    if any(name.endswith("_COMPLETE") for name in os.environ):  # the shell asks what would complete a command line
        return app
    # Options before the command are flags: the first word is no value of one.
    place = next((n for n, argument in enumerate(arguments) if not argument.startswith("-")), None)
    smaller = copy.copy(app)
    if place is None:
        smaller.registered_commands = [_without_parameters(info) for info in app.registered_commands]
        return smaller
    name, rest = arguments[place], arguments[place + 1 :]
    smaller.registered_commands = [info for info in app.registered_commands if _command_name(info) == name]
    smaller.registered_groups = [copy.copy(info) for info in app.registered_groups if info.name == name]
    for info in smaller.registered_groups:
        if info.typer_instance is not None:
            info.typer_instance = reduced(info.typer_instance, rest)
    # An unknown command: its message suggests others.
    return smaller if smaller.registered_commands or smaller.registered_groups else app


def _command_name(info: typer.models.CommandInfo) -> str | None:
    return info.name or (get_command_name(info.callback.__name__) if info.callback else None)


def _without_parameters(info: typer.models.CommandInfo) -> typer.models.CommandInfo:
    """Return a command with the same name and help."""

    def described() -> None:
        raise AssertionError("a command without its parameters is for help only")

    described.__name__, described.__doc__ = getattr(info.callback, "__name__", ""), info.callback.__doc__
    smaller = copy.copy(info)
    smaller.callback = described
    return smaller
