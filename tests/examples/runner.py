"""Run the blocks of a page, and compare or collect their outputs."""

import difflib
import doctest
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from tests.examples.outputs import abbreviate, outputs_match
from tests.examples.pages import RUN_LANGUAGES, Block, Page, console_steps

#: Seconds after which a command is killed.
TIMEOUT_S = 1200
#: Runs a doctest with the ``python`` of a shell.
_DOCTEST = """cat > block.txt <<'END'
{}END
python -m doctest -o ELLIPSIS block.txt
rm block.txt
"""
#: Lines about progress, of which slower machines see more.
_PROGRESS = re.compile(r"^\d\d:\d\d:\d\d INFO .*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Edit:
    """A text of a page that has to be replaced: its position, its length and what comes there instead."""

    start: int
    length: int
    text: str


class Shell:
    """A bash that keeps its folder and exported variables from one command to the next; Python blocks see both.

    Args:
        folder: Working folder of the first command.
        environment: Its environment variables.
        state: Folder for what is kept between commands.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str], state: Path) -> None:
        self.folder = folder
        self.environment = dict(environment)
        self._state = state

    def run(self, command: str) -> tuple[int, str]:
        """Run a command; return its exit code and its output (both streams, without lines about progress)."""
        variables, folder, output = (self._state / name for name in ("variables", "folder", "output"))
        script = f'{command}\nexample_status=$?\nenv -0 > "{variables}"\npwd > "{folder}"\nexit $example_status'
        # A file instead of a pipe: programs in the background do not keep it from ending.
        with output.open("wb") as stream:
            child = subprocess.run(
                ["bash", "-c", script],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT_S,
                check=False,
            )
        if variables.exists():
            entries = variables.read_bytes().decode().rstrip("\0").split("\0")
            self.environment = dict(entry.split("=", 1) for entry in entries)
            self.folder = Path(folder.read_text().rstrip("\n"))
            variables.unlink()
        printed = output.read_text(encoding="utf-8", errors="replace")
        return child.returncode, _PROGRESS.sub("", printed)


def run_page(page: Page, shell: Shell) -> list[Edit]:
    """Run all blocks of a page and return the edits with which its outputs become those of this run.

    Args:
        page: A page with worlds.
        shell: A shell in the folder of the page.

    Raises:
        AssertionError: A command or a block of code fails, or a command succeeds whose printed output is an error.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    edits: list[Edit] = []
    for block in page.blocks:
        place = f"{page.path.name}:{block.line}"
        if block.file is not None:
            file = shell.folder / block.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.source, encoding="utf-8")
        elif block.reason is None and block.language == "python" and "clone" in page.worlds:
            # hgld is installed in an environment of the page.
            _run_bash(replace(block, source=_DOCTEST.format(block.source)), shell, namespace, place)
        elif block.reason is None and block.language in RUN_LANGUAGES:
            edits += _RUNNERS[block.language](block, shell, namespace, place)
    return edits


def _run_console(block: Block, shell: Shell, namespace: dict[str, Any], place: str) -> list[Edit]:
    edits = []
    for step in console_steps(block):
        exit_code, output = shell.run(step.command)
        fails = any(line.startswith("error:") for line in step.output.splitlines())
        assert (exit_code != 0) == fails, f"{place}: exit code {exit_code} of: {step.command}\n{output}"
        if not block.hidden and not outputs_match(step.output, output, block.tolerance):
            ends = output if output.endswith("\n") or not output else f"{output}\n"
            blank = "\n" if step.output.endswith("\n\n") else ""
            edits.append(Edit(step.start, len(step.output), abbreviate(step.output, ends) + blank))
    return edits


def _run_bash(block: Block, shell: Shell, namespace: dict[str, Any], place: str) -> list[Edit]:
    exit_code, output = shell.run(f"set -e\n{block.source}")
    assert exit_code == 0, f"{place}: exit code {exit_code}\n{output}"
    return []


def _run_python(block: Block, shell: Shell, namespace: dict[str, Any], place: str) -> list[Edit]:
    before, path = Path.cwd(), str(shell.folder)
    os.chdir(shell.folder)
    sys.path.insert(0, path)
    try:
        with mock.patch.dict(os.environ, shell.environment):
            if ">>> " in block.source:
                return _run_doctest(block, namespace, place)
            # Lines of messages are those of the page.
            exec(compile("\n" * (block.line - 1) + block.source, place, "exec"), namespace)
    finally:
        os.chdir(before)
        sys.path.remove(path)
    return []


_RUNNERS: dict[str, Callable[[Block, Shell, dict[str, Any], str], list[Edit]]] = {
    "console": _run_console,
    "bash": _run_bash,
    "python": _run_python,
}


class _Checker(doctest.OutputChecker):
    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return outputs_match(_without_marks(want), got, self._tolerance)


class _Runner(doctest.DocTestRunner):
    """Run a doctest, and collect the outputs that differ instead of printing them."""

    def __init__(self, tolerance: float) -> None:
        super().__init__(_Checker(tolerance), verbose=False)
        self.differing: list[tuple[doctest.Example, str]] = []

    def report_failure(self, out: Any, test: doctest.DocTest, example: doctest.Example, got: str) -> None:
        self.differing.append((example, got))

    def report_unexpected_exception(
        self, out: Any, test: doctest.DocTest, example: doctest.Example, exc: Any
    ) -> None:
        raise exc[1]


def _run_doctest(block: Block, namespace: dict[str, Any], place: str) -> list[Edit]:
    examples = doctest.DocTestParser().get_examples(block.source, place)
    test = doctest.DocTest(examples, {}, place, place, block.line - 1, block.source)
    test.globs = namespace  # shared by the blocks of a page, not copied
    runner = _Runner(block.tolerance)
    runner.run(test, clear_globs=False)
    edits = []
    for example, got in runner.differing:
        lines = block.source.splitlines(keepends=True)
        first = example.lineno + example.source.count("\n")
        start = block.start + sum(map(len, lines[:first]))
        marked = "".join(line if line.strip() else "<BLANKLINE>\n" for line in got.splitlines(keepends=True))
        edits.append(Edit(start, len(example.want), abbreviate(example.want, marked)))
    return edits


def _without_marks(text: str) -> str:
    return text.replace("<BLANKLINE>", "")


def apply_edits(text: str, edits: list[Edit]) -> str:
    """Return the text of a page after edits that do not overlap."""
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.start + edit.length :]
    return text


def difference(page: Page, edits: list[Edit]) -> str:
    """Return what edits change on a page, as a unified diff."""
    after = apply_edits(page.text, edits)
    name = page.path.name
    return "\n".join(
        difflib.unified_diff(
            page.text.splitlines(), after.splitlines(), name, f"{name} in this run", lineterm="", n=2
        )
    )
