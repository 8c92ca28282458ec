"""The walks of docs/how-to/own_images.md: its own commands, on every twentieth grocery and with tiny settings."""

from __future__ import annotations

import re
import shlex
import shutil
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hgld.cli import app
from tests.datasets.logos import save_logos, write_logo_table

DOCUMENT = Path(__file__).parent.parent / "docs" / "how-to" / "own_images.md"
#: Settings with which a training takes seconds.
TINY = "--set image.size=32 --set image.resize=32 --set epochs=null --set steps=2 --set batch_size=16 --set workers=0"
#: What is added to a command of the document, by its name.
ADDED = {"train": TINY, "embed-images": "--workers 0"}


def commands(section: str) -> list[str]:
    """Return the commands in a section of the document."""
    text = DOCUMENT.read_text(encoding="utf-8")
    (body,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return re.findall(r"^\$ hgld (.*)", body, re.MULTILINE)


def run(command: str, added: str | None = None) -> str:
    added = ADDED.get(command.partition(" ")[0], "") if added is None else added
    result = CliRunner().invoke(app, shlex.split(f"{command} {added}"))
    assert result.exit_code == 0, f"hgld {command}\n{result.output}"
    return result.stdout


@pytest.fixture
def groceries(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every twentieth grocery, in data/grocery as in the document, and the last of them as photo.jpg."""
    folder = tmp_path / "data" / "grocery"
    folder.mkdir(parents=True)
    header, *rows = (shared / "grocery" / "images.csv").read_text().splitlines()
    (folder / "images.csv").write_text("\n".join([header, *rows[::20]]) + "\n")
    wanted = {row.partition(",")[0] for row in rows[::20]}
    with tarfile.open(folder / "images.tar", "w") as few:
        for path in sorted((shared / "grocery").glob("*.tar")):
            with tarfile.open(path) as archive:
                for member in archive:
                    if member.name in wanted:
                        few.addfile(member, archive.extractfile(member))
                        (tmp_path / "photo.jpg").write_bytes(archive.extractfile(member).read())  # type: ignore[union-attr]
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.slow
def test_from_a_table_and_tar_files(groceries: Path) -> None:
    manifest, train, embed, evaluate, search, push = commands("A table and tar files")
    assert "with labels at 3 levels (81 product, 43 group, 3 kind)" in run(manifest)
    assert "2 steps; H-AP" in run(train)
    assert "images embedded in 1,280 dimensions" in run(embed)
    assert "leave-one-out" in run(evaluate)
    assert Path("worst.html").read_text(encoding="utf-8").count("<img ") > 20
    run(search)
    assert Path("search.html").read_text(encoding="utf-8").count("<img ") >= 11
    assert "with 1 evaluation on its card" in run(push)
    assert "H-AP" in Path("model/README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_from_a_folder(groceries: Path) -> None:
    with tarfile.open(groceries / "images.tar") as archive:
        archive.extractall("unpacked", filter="data")
    shutil.copytree("unpacked/test", "photographs")
    manifest, train, embed, search = commands("A folder")
    assert "with labels at 2 levels" in run(manifest)
    assert "2 steps; H-AP" in run(train)
    assert "images embedded in 1,280 dimensions" in run(embed)
    run(search)
    assert Path("answers.html").read_text(encoding="utf-8").count("<img ") >= 11


@pytest.mark.slow
def test_with_several_labels_per_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_logo_table(Path("logos.csv"), save_logos(Path("logos"), 80))
    manifest, train, embed, evaluate = commands("Several labels per image")
    assert "labels per image at 3 levels (8 section, 5 division, 3 category)" in run(manifest)
    # Some of these drawings have no features left at 32 pixels.
    assert "2 steps; H-AP" in run(train, TINY.replace("=32", "=48"))
    assert "images embedded in 1,280 dimensions" in run(embed)
    assert "(thesis, Algorithm 1)" in run(evaluate)
