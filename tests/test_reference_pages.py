"""The generated reference documents every command, option, setting, table and public name."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from hgld import errors
from tests.test_public_names import PUBLIC_NAMES

EXTENSIONS = Path(__file__).parent.parent / "docs" / "_extensions"


@pytest.fixture(scope="module")
def pages_of() -> Iterator[Callable[[str], dict[str, str]]]:
    """The pages that a module of the site's extension writes, by their names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXTENSIONS))

        def write(kind: str) -> dict[str, str]:
            pages: dict[str, str] = getattr(import_module(f"{kind}_reference"), f"{kind}_pages")()
            return pages

        yield write
        for name in [name for name in sys.modules if name.endswith("_reference") or name == "markdown_text"]:
            del sys.modules[name]


def rows(page: str) -> list[list[str]]:
    """The cells of all rows of the tables in a page, without headers."""
    lines = re.findall(r"^\| (.*) \|$", page.replace("\\|", "¦"), re.MULTILINE)
    return [line.split(" | ") for line in lines if line.startswith("`")]


def test_every_command_and_option_is_explained(pages_of: Callable[[str], dict[str, str]]) -> None:
    (page,) = pages_of("command").values()
    sections = re.split(r"^### ", page, flags=re.MULTILINE)[1:]
    assert {"hgld scrape", "hgld manifest table", "hgld reject fit"} <= {s.partition("\n")[0] for s in sections}
    assert [row for row in rows(page) if not row[1].strip()] == []
    assert "## Other" not in page, "commands without a panel"


@pytest.mark.parametrize("page", ["training_settings.md", "benchmark_settings.md", "rejection_settings.md"])
def test_every_setting_is_explained(pages_of: Callable[[str], dict[str, str]], page: str) -> None:
    settings = rows(pages_of("settings")[page])
    assert len(settings) > 20
    # The name of one of several kinds of sections needs no explanation.
    assert [row[0] for row in settings if not row[-1].strip() and not row[0].endswith(".name`")] == []


def test_every_error_is_explained(pages_of: Callable[[str], dict[str, str]]) -> None:
    (page,) = pages_of("error").values()
    listed = {name.strip("`"): meaning for name, _, meaning in rows(page)}
    raised = {name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception)}
    assert listed.keys() == raised
    assert all(listed.values())
    # The tree says what the caller does next.
    assert {name for name in raised if f" {name} " not in page.partition("| error")[0]} == {"HgldError"}


def test_every_public_name_has_an_entry(pages_of: Callable[[str], dict[str, str]]) -> None:
    pages = pages_of("python")
    for room in PUBLIC_NAMES.keys() - {"hgld"}:
        entries = re.findall(rf"^\.\. [\w:]+:: {room}\.(\w+)$", pages[f"{room}.rst"], re.MULTILINE)
        assert sorted(entries) == PUBLIC_NAMES[room].split()


def test_every_constant_is_explained(pages_of: Callable[[str], dict[str, str]]) -> None:
    for name, page in pages_of("python").items():
        for constant, text in re.findall(r"^\.\. py:data:: (\S+)\n\n(.*)$", page, re.MULTILINE):
            assert text.strip(), f"{constant} in {name}"
