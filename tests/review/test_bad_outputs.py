"""Commands that write report a bad place in one line, before they do any work."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import run_hgld

COMMANDS = {
    "review": ["review", "{clusters}", "--annotator", "ada", "--no-open", "--store"],
    "decisions": ["decisions", "{missing}", "-o"],
    "import-sheet": ["import-sheet", "{missing}", "--annotator", "ada", "-o"],
    "agreement": ["agreement", "{missing}", "{missing}", "-o"],
    "agreement figure": ["agreement", "{missing}", "{missing}", "--figure"],
    "adjudicate": ["adjudicate", "{missing}", "{missing}", "--rule", "agree-only", "-o"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_folder_in_place_of_a_file(name: str, tmp_path: Path, tables: Callable[..., Path]) -> None:
    clusters, folder = tables(), tmp_path / "folder"
    folder.mkdir()
    arguments = [part.format(clusters=clusters, missing=tmp_path / "missing") for part in COMMANDS[name]]
    assert run_hgld(*arguments, folder, code=1).stderr == f"error: {folder} is a folder; name a file in it\n"
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", [*COMMANDS, "export"])
def test_place_below_a_file(name: str, tmp_path: Path, tables: Callable[..., Path]) -> None:
    clusters, file = tables(), tmp_path / "file"
    file.touch()
    command = COMMANDS.get(name, ["export", "{missing}", "--annotators", "ada", "-o"])
    arguments = [part.format(clusters=clusters, missing=tmp_path / "missing") for part in command]
    result = run_hgld(*arguments, file / "out", code=1)
    assert result.stderr.startswith(f"error: {file} is a file")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        ["review", "{clusters}", "--annotator", "ada", "--no-open"],
        [
            *("adjudicate", "a.csv", "b.csv", "-o", "{out}", "--clusters", "{clusters}", "--annotator", "ada"),
            "--no-open",
        ],
        ["import-sheet", "{clusters}", "--annotator", "ada"],
    ],
    ids=lambda command: str(command[0]),
)
def test_default_place_below_a_file(command: list[str], tmp_path: Path) -> None:
    """The inputs do not exist, so the place is checked before they are read."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("review", "../decisions"):
        (folder / name).touch()
    arguments = [part.format(clusters=folder / "clusters.parquet", out=tmp_path / "out.csv") for part in command]
    assert " is a file, so nothing can be written below it" in run_hgld(*arguments, code=1).stderr
