"""Folders and sets of files that appear whole, also after kills at every change of the file system."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hgld.errors import ConflictError
from hgld.io.files import file_digests, finish_replacing, folder_draft, replace_folder, replace_together
from tests.child_processes import run_script

NAMES = ("a.csv", "a.xlsx", "b.csv")

KILLED_FOLDERS = """
import shutil, sys
from pathlib import Path
from hgld.io.files import folder_draft, replace_folder
from tests.kill_points import kill_points

home = Path(sys.argv[1])
out = home / "release"

def prepare():
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    if sys.argv[2] == "existing":
        write("old")

def write(text):
    with folder_draft(out) as draft:
        (draft / "data").mkdir()
        for name in ("README.md", "data/a.csv"):
            (draft / name).write_text(text)
        replace_folder(draft, out)

def content(folder):
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}

def whole(text):
    return {"README.md": text, "data/a.csv": text}

seen = set()
for number in kill_points(lambda: write("new"), home, prepare):
    seen.add("".join(sorted(set(content(out).values()))) if out.exists() else "nothing")
    assert not out.exists() or content(out) in (whole("old"), whole("new")), number
    with folder_draft(out):
        if sys.argv[2] == "existing":
            assert content(out) in (whole("old"), whole("new")), "an interrupted replacement is undone"
    write("newer")
    assert content(out) == whole("newer")
    assert [path.name for path in home.iterdir()] == ["release"], number
print(number, *sorted(seen))
"""

KILLED_SETS = """
import shutil, sys
from pathlib import Path
from hgld.io.files import file_digests, finish_replacing, replace_together
from tests.io.test_folders import NAMES, content
from tests.kill_points import kill_points

home = Path(sys.argv[1])
out = home / "review"

def prepare():
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    if sys.argv[2] == "existing":
        out.mkdir()
        (out / "notes.txt").write_text("mine")
        for name in NAMES[:2]:
            (out / name).write_text("old")

def write(text="new"):
    finish_replacing(out)
    with replace_together(out, file_digests(out, NAMES)) as staging:
        for name in NAMES:
            (staging / name).write_text(text)

mine = {"notes.txt": "mine"} if sys.argv[2] == "existing" else {}
old = {**mine, **dict.fromkeys(NAMES[:2], "old")} if mine else {}
new = {**mine, **dict.fromkeys(NAMES, "new")}
mixed = 0
for number in kill_points(write, home, prepare):
    mixed += content(out) not in (old, new)
    finish_replacing(out)
    assert content(out) in (old, new), number
    write("newer")
    assert content(out) == {**mine, **dict.fromkeys(NAMES, "newer")}
    assert [path.name for path in home.iterdir()] == ["review"], number
print(number, mixed)
"""


def content(folder: Path) -> dict[str, str]:
    """Return the text of each file that is not hidden."""
    return {path.name: path.read_text() for path in folder.glob("*") if path.is_file()}


@pytest.mark.parametrize(("state", "seen"), [("new", "nothing"), ("existing", "new nothing old")])
def test_killed_write_of_a_folder_leaves_it_whole(tmp_path: Path, state: str, seen: str) -> None:
    number, _, contents = run_script(KILLED_FOLDERS, tmp_path / "home", state).strip().partition(" ")
    assert int(number) >= 4
    assert contents == seen


@pytest.mark.parametrize(("state", "mixed"), [("new", "0"), ("existing", "2")])
def test_killed_replacement_of_files_is_finished_or_undone(tmp_path: Path, state: str, mixed: str) -> None:
    # In an existing folder, files are renamed one by one: kills between the three renames leave both versions.
    number, kills_between = run_script(KILLED_SETS, tmp_path / "home", state).split()
    assert int(number) >= 4
    assert kills_between == mixed


def test_failure_keeps_the_folder(tmp_path: Path) -> None:
    out = tmp_path / "release"
    with folder_draft(out) as draft:
        (draft / "a").write_text("old")
        replace_folder(draft, out)
    with pytest.raises(UnicodeEncodeError), folder_draft(out) as draft:
        (draft / "a").write_text("é", encoding="ascii")
    assert content(out) == {"a": "old"}
    assert list(tmp_path.iterdir()) == [out]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "review"
    path.mkdir()
    for name in NAMES:
        (path / name).write_text("old")
    return path


def replace(folder: Path, then: Callable[[], object] = lambda: None) -> None:
    """Replace the files by new ones, which are written before ``then`` is called."""
    with replace_together(folder, file_digests(folder, NAMES)) as staging:
        for name in NAMES:
            (staging / name).write_text("new")
        then()


def test_files_saved_meanwhile_are_kept(folder: Path) -> None:
    with pytest.raises(ConflictError, match=r"a\.xlsx: changed while"):
        replace(folder, lambda: (folder / "a.xlsx").write_text("mine"))
    assert content(folder) == {"a.csv": "old", "a.xlsx": "mine", "b.csv": "old"}
    assert sorted(path.name for path in folder.iterdir()) == sorted(NAMES)


def test_files_saved_after_a_kill_are_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("hgld.io.files.finish_replacing", interrupt)
        with pytest.raises(KeyboardInterrupt):
            replace(folder)
    (folder / "a.xlsx").write_text("mine")
    for _ in range(2):
        with pytest.raises(ConflictError, match=r"a\.xlsx: changed after .*\.review\.part/a\.xlsx; copy what"):
            finish_replacing(folder)
    assert content(folder) == {"a.csv": "new", "a.xlsx": "mine", "b.csv": "old"}
    (folder / ".review.part" / "a.xlsx").replace(folder / "a.xlsx")
    finish_replacing(folder)
    assert content(folder) == dict.fromkeys(NAMES, "new")
    assert sorted(path.name for path in folder.iterdir()) == sorted(NAMES)


def interrupt(folder: Path) -> None:
    raise KeyboardInterrupt
