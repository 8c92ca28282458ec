"""Every command of hgld, from its help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer.main
from markdown_text import code, table

from hgld.cli import app


def command_pages() -> dict[str, str]:
    """Return the page of all commands, by the panels of ``hgld --help``."""
    sections: dict[str, list[str]] = {}
    for name, panel, command in _commands():
        sections.setdefault(panel, []).append(_section(name, command))
    parts = [
        "# Commands",
        "`hgld COMMAND --help` prints the same. Every command exits with 0, or with 1 and a message of one line.",
    ]
    for panel, texts in sections.items():
        parts += [f"## {panel}", *texts]
    return {"commands.md": "\n\n".join(parts) + "\n"}


def _commands() -> Iterator[tuple[str, str, Any]]:
    """Yield the full name of each command, its panel and the command."""
    root = typer.main.get_command(app)
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        if hasattr(command, "list_commands"):
            context = command.make_context(name, [], resilient_parsing=True)
            for inner in command.list_commands(context):
                yield (
                    f"hgld {name} {inner}",
                    command.rich_help_panel,
                    command.get_command(context, inner),
                )
        elif not command.hidden:
            yield f"hgld {name}", command.rich_help_panel, command


def _section(name: str, command: Any) -> str:
    context = command.make_context(name, [], resilient_parsing=True)
    command = context.command  # of a reader: it is built when it is asked for
    usage = " ".join(command.collect_usage_pieces(context))
    text = re.sub(
        r"^Example: (.*)$", r"```console\n$ \1\n```", command.help or "", flags=re.MULTILINE
    )
    parts = [f"### {name}", f"```text\n{name} {usage}\n```", text]
    rows_by_panel: dict[str | None, list[list[str]]] = {}
    for parameter in command.params:
        if getattr(parameter, "hidden", False) or parameter.name == "help":
            continue
        panel = getattr(parameter, "rich_help_panel", None)
        rows_by_panel.setdefault(panel, []).append(_row(parameter, context))
    for panel, rows in rows_by_panel.items():
        title = panel or "argument or option"
        parts.append(table([title, "meaning", "default"], rows))
    return "\n\n".join(parts)


def _row(parameter: Any, context: Any) -> list[str]:
    record = None
    if parameter.param_type_name == "option":
        record = parameter.get_help_record(context)
    names = record[0] if record else (parameter.metavar or parameter.name.upper())
    return [code(_plain_type(names)), _description(parameter), _default(parameter, context)]


def _description(parameter: Any) -> str:
    return str(getattr(parameter, "help", None) or "")


def _plain_type(names: str) -> str:
    """Return an option with the type of one value, where Typer writes that of the list of all values.

    >>> _plain_type("--classes <list[Path]>")
    '--classes <path>'
    """
    return re.sub(r"<list\[(\w+)\]>", lambda match: f"<{match[1].lower()}>", names)


def _default(parameter: Any, context: Any) -> str:
    """Return the default as it is typed.

    The default of a flag is the name of the flag, and several values are separated by commas.
    """
    if parameter.required:
        return "required"
    shown = getattr(parameter, "show_default", None)
    if isinstance(shown, str):
        return shown
    default = parameter.get_default(context)
    if default is None or default is False or default in ([], ()) or callable(default):
        return ""
    if default is True:
        return code(parameter.opts[0])
    if isinstance(default, (list, tuple)):
        return code(", ".join(map(str, default)))
    return code(default)
