"""Pages with examples: their fenced blocks, and how each of them is run.

The first line of a page with examples names the world in which they run, or several (see `worlds.py`)::

    <!-- examples: washington -->

or says why none of them is run::

    <!-- examples: not run, they measure whole machines for hours -->

All blocks of a page run in the order of the page, in one folder:

* `console`: lines that begin with `$ ` are commands, what follows them is their output. A line that ends with a
  backslash is continued, and a here-document belongs to its command. A command has to succeed, unless a line of
  its printed output begins with `error:`.
* `python`: a doctest, if it has a line that begins with `>>> `, else a script. Both share one namespace, and have the
  environment variables that commands before them exported. In the world `clone` each is a doctest of its own, run in
  the environment of the page.
* `bash`: a script that has to succeed.

Comments before a block change what is done with it:

* `<!-- not run: needs a GPU -->`: it is not run, for the reason given.
* `<!-- file: settings.yaml -->`: its text is written to this file. Any language can be a file.
* `<!-- tolerance: 0.5 -->`: its decimals may differ by so much, as after a training, which rounding errors change.
* `<!-- hidden` ... `-->` holds commands as a `console` block does, which readers do not see: what stands for hosts or
  people, copies pictures, or removes what an earlier block wrote. Readers see all commands of hgld.

Other languages (`text`, `yaml`, `json`, ...) show something, and are not run.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sybil import Document, Region
from sybil.parsers.abstract.lexers import BlockLexer
from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer

#: Languages of blocks that are run.
RUN_LANGUAGES = ("console", "python", "bash")

_FENCES = RawFencedCodeBlockLexer(re.compile(r"(?P<language>[^\n]*)\n"))
_HIDDEN = BlockLexer(re.compile(r"^<!-- hidden\n", re.MULTILINE), r"(?<=\n)-->")
_WORLD = re.compile(r"<!-- examples: (?:not run, (?P<reason>.+?)|(?P<worlds>[\w ]+)) -->\n")
_REASON = re.compile(r"<!-- not run: ([^>]+?) -->\s*\Z")
_TOLERANCE = re.compile(r"<!-- tolerance: ([\d.]+) -->\s*\Z")
_FILE = re.compile(r"<!-- file: (\S+) -->\s*\Z")
_HERE_DOCUMENT = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block or a hidden comment of a page.

    Args:
        language: What the fence says; ``console`` for hidden comments.
        source: The text between the fences.
        start: Position of this text in that of the page.
        line: Number of its first line, from 1.
        hidden: Whether it is a comment.
        reason: Why it is not run; None if the page does not say.
        file: Path, below the folder of the page, to which its text is written; None if it is no file.
        tolerance: Absolute difference of decimals in its outputs that is accepted.
    """

    language: str
    source: str
    start: int
    line: int
    hidden: bool = False
    reason: str | None = None
    file: str | None = None
    tolerance: float = 0.0


@dataclass(frozen=True, slots=True)
class Page:
    """A Markdown file with the blocks in it.

    Args:
        path: The file.
        text: Its text.
        worlds: Names of the worlds of its examples; empty if none of them is run.
        reason: Why none of them is run; None if the page does not say.
        blocks: Its fenced blocks and hidden comments, in their order.
    """

    path: Path
    text: str
    worlds: tuple[str, ...]
    reason: str | None
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """A command of a console block with the output printed below it.

    Args:
        command: The command without its prompt; continued lines and here-documents are in it as they are printed.
        output: Lines between this command and the next one.
        start: Position of the output in the text of the page.
    """

    command: str
    output: str
    start: int


def read_page(path: Path) -> Page:
    """Read a Markdown file and find its blocks."""
    document = Document.parse(str(path), _find_blocks)
    head = _WORLD.match(document.text)
    return Page(
        path,
        document.text,
        worlds=tuple((head["worlds"] or "").split()) if head else (),
        reason=head["reason"] if head else None,
        blocks=tuple(example.parsed for example in document.examples()),
    )


def _find_blocks(document: Document) -> Iterable[Region]:
    for region in _HIDDEN(document):
        region.parsed = _block(document, region, "console", hidden=True)
        yield region
    for region in _FENCES(document):
        region.parsed = _block(document, region, str(region.lexemes["language"]).strip())
        yield region


def _block(document: Document, region: Region, language: str, hidden: bool = False) -> Block:
    source = region.lexemes["source"]
    start = region.start + source.offset
    before = document.text[: region.start]
    reason, file, tolerance = (pattern.search(before) for pattern in (_REASON, _FILE, _TOLERANCE))
    return Block(
        language,
        str(source),
        start,
        line=document.text.count("\n", 0, start) + 1,
        hidden=hidden,
        reason=" ".join(reason[1].split()) if reason else None,
        file=file[1] if file else None,
        tolerance=float(tolerance[1]) if tolerance else 0.0,
    )


def console_steps(block: Block) -> list[Step]:
    """Divide a console block into commands and their outputs, without what stands before the first command."""
    steps: list[Step] = []
    lines = block.source.splitlines(keepends=True)
    positions = [block.start]
    for line in lines:
        positions.append(positions[-1] + len(line))
    index = 0
    while index < len(lines):
        if not lines[index].startswith("$ "):
            index += 1
            continue
        first, index = index, _command_end(lines, index)
        command = "".join(lines[first:index])[2:].rstrip("\n")
        output_start = index
        while index < len(lines) and not lines[index].startswith("$ "):
            index += 1
        steps.append(Step(command, "".join(lines[output_start:index]), positions[output_start]))
    return steps


def _command_end(lines: list[str], index: int) -> int:
    """Return the index after the last line of the command that begins at ``index``."""
    here_document = _HERE_DOCUMENT.search(lines[index])
    while lines[index].endswith("\\\n"):
        index += 1
        here_document = here_document or _HERE_DOCUMENT.search(lines[index])
    if here_document:
        while lines[index].strip() != here_document[2]:
            index += 1
    return index + 1
