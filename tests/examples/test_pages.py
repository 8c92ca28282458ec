"""Every example on a page is run as it is printed, or the page says why not."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.pages import RUN_LANGUAGES, Block, Page, read_page
from tests.examples.runner import Shell, apply_edits, difference, run_page
from tests.examples.worlds import SHARED_WORLDS, WORLDS, open_worlds
from tests.preloaded import preloaded_hgld
from tests.test_docs import CHECKOUT, DOCUMENTS

PAGES = {path.relative_to(CHECKOUT).as_posix(): path for path in DOCUMENTS}
#: Languages of blocks that show something, and are not run; the site has to know how to colour them (not csv).
SHOWN_LANGUAGES = ("text", "yaml", "json", "toml", "ini", "html", "bibtex", "math")


def _problems(page: Page) -> list[str]:
    """Return what keeps examples of a page from being run, without a reason on the page."""
    found = [
        f"line {block.line}: language {block.language!r}" for block in page.blocks if not _is_known(block.language)
    ]
    # An indented block of commands, below a blank line.
    for match in re.finditer(r"\n\n {4}(?:\$ )?((?:hgld|pip|git|make|python) .*)", page.text):
        found.append(f"line {page.text.count(chr(10), 0, match.start(1)) + 1}: an indented block: {match[1]}")
    if not page.worlds and page.reason is None:
        run = [block for block in page.blocks if block.language in RUN_LANGUAGES and block.reason is None]
        found += [f"line {block.line}: no first line says in which world it runs" for block in run]
    found += [
        f"line {block.line}: a hidden command of hgld"
        for block in page.blocks
        if block.hidden and re.search(r"^\$ hgld ", block.source, re.MULTILINE)
    ]
    if "clone" in page.worlds:
        found += [f"line {block.line}: not all is shown and run" for block in page.blocks if not _is_plain(block)]
    found += [f"there is no world {world!r}" for world in page.worlds if world not in WORLDS]
    return found


def _is_plain(block: Block) -> bool:
    return not block.hidden and block.reason is None and block.file is None


def _is_known(language: str) -> bool:
    return language in RUN_LANGUAGES or language in SHOWN_LANGUAGES or language.startswith("{")


@pytest.mark.parametrize("name", PAGES)
def test_blocks_are_run_or_say_why_not(name: str) -> None:
    problems = _problems(read_page(PAGES[name]))
    assert not problems, "\n".join([name, *problems])


def _pages_that_run() -> list[str]:
    return [name for name, path in PAGES.items() if read_page(path).worlds]


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the command ``hgld``, which does not import its libraries anew for each example."""
    with preloaded_hgld(tmp_path_factory.mktemp("hgld")) as folder:
        yield folder


@pytest.mark.slow
@pytest.mark.parametrize("name", _pages_that_run())
def test_examples(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    page = read_page(PAGES[name])
    write = request.config.getoption("--write-outputs", default=False)
    shared = request.getfixturevalue("shared") if set(page.worlds) & set(SHARED_WORLDS) else None
    if {"wikimedia", "washington", "birds"} & set(page.worlds):
        request.getfixturevalue("replica")  # which makes the servers importable
    folder, state, pictures = (tmp_path / part for part in ("hgld", "state", "pictures"))
    for path in (folder, state, pictures):
        path.mkdir()
    with open_worlds(page.worlds, folder, shared, CHECKOUT / "docs/pictures" if write else pictures) as environment:
        if "clone" not in page.worlds:
            environment["PATH"] = f"{request.getfixturevalue('preloaded')}{os.pathsep}{environment['PATH']}"
        edits = run_page(page, Shell(folder, environment, state))
    if write and edits:
        page.path.write_text(apply_edits(page.text, edits), encoding="utf-8")
    elif edits:
        pytest.fail(f"outputs differ (make examples writes them):\n{difference(page, edits)}", pytrace=False)
