"""The runner of examples notices what is wrong on a page."""

import os
from pathlib import Path

import pytest

from tests.assertions import not_none
from tests.examples.outputs import abbreviate, outputs_match
from tests.examples.pages import console_steps, read_page
from tests.examples.runner import Shell, apply_edits, run_page

PRINTED = (
    "844 landmarks in 5.7 s (148 landmarks/s)\nH-AP  0.8312 [0.81, 0.85]\nhttp://127.0.0.1:3178/open?key=a1\nend"
)


INTERVAL = "-0.22 [-1.08, +0.55] 844"


@pytest.mark.parametrize(
    ("printed", "actual", "equal"),
    [
        (PRINTED, PRINTED, True),
        (PRINTED, PRINTED.replace("5.7 s", "11 s").replace("148 landmarks/s", "9.5 landmarks/s"), True),
        (PRINTED, PRINTED.replace("0.8312", "0.8313").replace("3178/open?key=a1", "4000/open?key=zz"), True),
        (PRINTED, PRINTED.replace("  ", " "), True),
        (PRINTED, PRINTED.replace("0.8312", "0.7312"), False),
        (PRINTED, PRINTED.replace("0.8312", "8312"), False),
        (PRINTED, PRINTED.replace("844", "845"), False),
        (PRINTED, PRINTED.replace("landmarks in", "labels in"), False),
        (PRINTED, PRINTED.replace("\nend", ""), False),
        (PRINTED, PRINTED + "\nmore", False),
        (PRINTED, "", False),
        ("1e-3", "2.1e-3", False),
        ("-0.001", "-0.002", True),
        ("", "anything", False),
        # An ellipsis stands for any text.
        ("...", "", True),
        ("...\nlast", "first\nsecond\nlast", True),
        ("...\nlast", "last", True),
        ("...\nlast", "last\nmore", False),
        ("a\n...\nb\n...\nc", "a\nx\nb\nc", True),
        ("a\n...\nb\n...\nc", "a\nx\nc", False),
        ("written to ... (12 rows)", "written to a/b.csv (12 rows)", True),
        ("written to ... (12 rows)", "written to a/b.csv (13 rows)", False),
        # The tolerance of a block is 0.5.
        (INTERVAL, "+0.20 [-1.5, +0.9] 844", True),
        (INTERVAL, "+0.30 [-1.08, +0.55] 844", False),
        (INTERVAL, "-0.22 [-1.08, +0.55] 845", False),
    ],
)
def test_outputs_match(printed: str, actual: str, equal: bool) -> None:
    assert outputs_match(printed, actual, tolerance=0.5 if printed == INTERVAL else 0.0) is equal


def test_abbreviate_keeps_as_many_lines_as_before() -> None:
    assert abbreviate("a\n...\nz\n", "b\n1\n2\n3\ny\n") == "b\n...\ny\n"
    assert abbreviate("a\n", "b\n1\n") == "b\n1\n"


PAGE = """<!-- examples: empty -->
# A page

<!-- hidden
$ export GREETING=hello && mkdir below && cd below
-->

<!-- file: names.txt -->
```text
ada
```

```console
$ echo $GREETING \\
    again
hello again
$ cat <<'END'
$ no command
END
...
$ cat names.txt missing
ada
error: ...
...
```

```python
import os
from pathlib import Path

name = Path("names.txt").read_text()
```

```python
>>> os.environ["GREETING"]
'hello'
>>> name
'ada\\n'
>>> print("two\\n\\nlines")
two
<BLANKLINE>
lines
```

<!-- not run: needs
     a GPU -->
```console
$ false
```

<!-- tolerance: 0.5 -->
```console
$ echo 1.25
1.5
```
"""


@pytest.fixture
def page_file(tmp_path: Path) -> Path:
    return tmp_path / "page.md"


def run(page_file: Path, text: str) -> str:
    """Run a page, and return its text with the outputs of this run."""
    page_file.write_text(text, encoding="utf-8")
    folder, state = page_file.parent / "folder", page_file.parent / "state"
    folder.mkdir()
    state.mkdir()
    page = read_page(page_file)
    return apply_edits(page.text, run_page(page, Shell(folder, os.environ, state)))


def test_a_true_page_stays_as_it_is(page_file: Path) -> None:
    true = PAGE.replace("error: ...\n", "...\n").replace(" missing", "")
    assert run(page_file, true) == true
    assert (page_file.parent / "folder/below/names.txt").read_text() == "ada\n"


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("\nhello again\n", "\nhello you\n"), ("'ada\\n'\n", "'eve\\n'\n"), ("<BLANKLINE>\nlines", "<BLANKLINE>\nline")],
)
def test_outputs_that_differ_are_replaced(page_file: Path, wrong: str, right: str) -> None:
    true = PAGE.replace("error: ...\n", "...\n").replace(" missing", "")
    assert run(page_file, true.replace(wrong, right)) == true


@pytest.mark.parametrize(
    "text",
    [
        PAGE,  # `cat` fails, and its message is not one of ours, which pages print after `error:`
        PAGE.replace("error: ...\n...", "...").replace("echo $GREETING", "false"),
        PAGE.replace(" missing", ""),  # the printed error does not occur
        PAGE.replace(" missing\nada\nerror: ...", "\nada").replace('Path("names.txt")', 'Path("other.txt")'),
    ],
    ids=["fails otherwise", "command fails", "does not fail", "code fails"],
)
def test_failures_are_noticed(page_file: Path, text: str) -> None:
    if text == PAGE:
        assert "cat: missing" in run(page_file, text)
    else:
        with pytest.raises((AssertionError, FileNotFoundError)):
            run(page_file, text)


def test_blocks_of_a_page(page_file: Path) -> None:
    page_file.write_text(PAGE, encoding="utf-8")
    page = read_page(page_file)
    assert page.worlds == ("empty",)
    assert [(block.language, block.hidden, block.reason, block.file, block.tolerance) for block in page.blocks] == [
        ("console", True, None, None, 0.0),
        ("text", False, None, "names.txt", 0.0),
        ("console", False, None, None, 0.0),
        ("python", False, None, None, 0.0),
        ("python", False, None, None, 0.0),
        ("console", False, "needs a GPU", None, 0.0),
        ("console", False, None, None, 0.5),
    ]
    assert [step.command for step in console_steps(page.blocks[2])] == [
        "echo $GREETING \\\n    again",
        "cat <<'END'\n$ no command\nEND",
        "cat names.txt missing",
    ]
    for block in page.blocks:
        assert page.text[block.start :].startswith(block.source)


def test_assertions_of_helpers_say_what_they_compare() -> None:
    with pytest.raises(AssertionError, match="assert None is not None"):
        not_none(None)
