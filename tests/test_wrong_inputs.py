"""Wrong inputs to the commands from images to an answer: one line that says what to do, and nothing is written.

Those of ``hgld manifest`` are also in ``tests/datasets/test_own_images.py``, wrong places in ``test_storage.py``.
"""

import gzip
import json
import os
import re
import shlex
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from typer.main import get_command

from hgld.cli import app
from tests.datasets.pictures import save_pictures

LABELS = "path,split,class,kind\n" + "".join(
    f"c{c}/{n}.jpg,{'test' if c < 3 else 'train'},c{c},k{c % 2}\n" for c in range(6) for n in range(4)
)
SETTINGS = """
model: {backbone: test_resnet, pretrained: false, pooling: average, dim: 8}
image: {size: 32, resize: 32}
data: {manifest: labels.csv, root: images, test: test}
loss: {name: happier}
sampler: {name: class_balanced, per_class: 2}
batch_size: 4
steps: 1
workers: 0
evaluation: {metrics: [H-AP]}
"""
TABLE = "manifest table {} --images images --levels class,kind -o out.parquet"
FOLDER = "manifest folder images -o out.parquet"
TRAIN = "train settings.yaml -o out"
EMBED = "embed-images --workers 0 --images images --model run -o out.parquet"
EVALUATE = "evaluate --embeddings run.parquet --manifest labels.csv"
SEARCH = "search {} --embeddings run.parquet --page out.html"
FETCH = "fetch gldv2 -o out --ids"
GLDV2_ID = "1272ef793ebba7a2"
NO_CONTACT = {"HGLD_CONTACT": ""}
#: What is saved as an image without being one, by its name.
NO_IMAGES = {
    "c3/0.jpg": b"",
    "c3/1.jpg": b"<!DOCTYPE html><html><body>404</body></html>",
    "c4/0.png": b"a text",
    "c4/1.jpg": b"\xff\xd8\xff\xe0 cut short",
}


def write(name: str, content: str | bytes) -> Callable[[], None]:
    """Return a function that writes a file in the working folder."""

    def file() -> None:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(content.encode() if isinstance(content, str) else content)

    return file


def labels(*replaced: tuple[str, str]) -> Callable[[], None]:
    """Return a function that writes wrong.csv, which is labels.csv with texts replaced."""
    text = LABELS
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new)
    return write("wrong.csv", text)


def no_images() -> None:
    for name, content in NO_IMAGES.items():
        write(f"broken/{name}", content)()
    rows = [f"{name},train,c{name[1]},k" for name in NO_IMAGES]
    write("wrong.csv", "\n".join(["path,split,class,kind", *rows, "c3/9.jpg,test,c3,k\n"]))()


def tar_file(name: str, share: float = 1) -> Callable[[], None]:
    """Return a function that puts the images into a tar file, of which the first part is kept."""

    def archive() -> None:
        with tarfile.open(name, "w") as members:
            members.add(Path("images").resolve(), ".")
        whole = Path(name).read_bytes()
        Path(name).write_bytes(gzip.compress(whole) if name.endswith("gz.tar") else whole[: int(share * len(whole))])

    return archive


def half_written_run() -> None:
    shutil.copytree(Path("run").resolve(), "half")
    record = Path("half/run.json")
    record.write_text(json.dumps(json.loads(record.read_text()) | {"finished": False}))
    whole = Path("half/last.pt").read_bytes()
    Path("half/last.pt").write_bytes(whole[: len(whole) // 2])


def embeddings(ids: list[str], dim: int = 8) -> Callable[[], None]:
    """Return a function that writes embeddings of unknown origin."""

    def file() -> None:
        np.save("other.npy", np.eye(len(ids), dim, dtype=np.float32))
        Path("other.ids.txt").write_text("".join(f"{name}\n" for name in ids))

    return file


def nothing() -> None:
    """Write no file."""


#: All commands; made once, as that takes longer than most mistakes.
HGLD: Any = get_command(app)


@dataclass(frozen=True)
class Case:
    """A command with a mistake.

    Args:
        command: What is typed after ``hgld``.
        message: Regular expression of what it prints after ``error:``, with examples in the same line.
        files: Function that writes what is wrong into the working folder.
        environment: Environment variables.
    """

    command: str
    message: str
    files: Callable[[], None] = nothing
    environment: dict[str, str] = field(default_factory=dict)


CASES = {
    # manifests
    "misspelt column": Case(
        TABLE.format("labels.csv").replace("class,", "clas,"),
        "no column clas; its columns are path, split, class, kind",
    ),
    "columns separated by semicolons": Case(
        TABLE.format("wrong.csv"), "separated by ';'; save it with commas", labels((",", ";"))
    ),
    "workbook": Case(
        TABLE.format("labels.xlsx"), "a spreadsheet; save it as CSV", write("labels.xlsx", b"PK\x03\x04")
    ),
    "UTF-16": Case(TABLE.format("wrong.csv"), "UTF-16.*save it as CSV", write("wrong.csv", LABELS.encode("utf-16"))),
    "web page as a table": Case(
        TABLE.format("wrong.csv"),
        "no column path, class, kind; its columns are",
        write("wrong.csv", "<html>\n</html>\n"),
    ),
    "path twice": Case(
        TABLE.format("wrong.csv"), "1 images have several rows; keep one for each c0/1.jpg", labels(("c0/0", "c0/1"))
    ),
    "two parents": Case(
        TABLE.format("wrong.csv"),
        'class "c0" has several kind: "k0" in .*, "k1" in',
        labels(("c0,k0", "c0,k1"), ("0.jpg,test,c0,k1", "0.jpg,test,c0,k0")),
    ),
    "levels reversed": Case(
        TABLE.format("labels.csv").replace("class,kind", "kind,class"),
        "finest first, which by their numbers of names is class, kind",
    ),
    "empty label": Case(
        TABLE.format("wrong.csv"), "kind is missing in 4 of 24 rows; fill it in", labels(("c0,k0", "c0,"))
    ),
    "missing image": Case(
        TABLE.format("wrong.csv"),
        "1 of 24 paths name no image in images, .*--skip-missing c0/9.jpg",
        labels(("c0/0", "c0/9")),
    ),
    "file instead of a folder": Case(
        FOLDER.replace("images", "labels.csv --depth 1"), "a file, not a folder; name the folder"
    ),
    "tar file cut short": Case(
        TABLE.format("labels.csv --images cut.tar").replace("--images images ", ""),
        "cut.tar: (is cut short at|cannot be read from) byte .*; fetch it again, or make it again",
        tar_file("cut.tar", share=0.6),
    ),
    "compressed tar file": Case(
        "manifest folder gz.tar --depth 1 -o out.parquet",
        "gz.tar: compressed; .* unpack it with gzip -d",
        tar_file("gz.tar"),
    ),
    "test share of everything": Case(
        TABLE.format("labels.csv") + " --test-share 1", "--test-share is 1.0; expected a number between 0 and 1"
    ),
    "split with one set": Case(
        TABLE.format("labels.csv") + " --open-set kind --test-share 0.01",
        "all 24 images are in the training set; choose another --test-share",
    ),
    "unknown level of an open set": Case(
        TABLE.format("labels.csv") + " --open-set clas",
        '--open-set is "clas"; expected one of the levels class, kind',
    ),
    "too deep": Case(FOLDER + " --depth 3", "in fewer than 3 nested folders; --depth 1 fits all images"),
    # training
    "misspelt preset": Case(
        "train hapier --manifest labels.csv -o out", 'neither a preset nor a file "hapier"; did you mean happier'
    ),
    "no manifest": Case(
        f"{TRAIN} --manifest absent.csv", "absent.csv: no such file; expected a manifest: hgld manifest"
    ),
    "folder as manifest": Case(f"{TRAIN} --manifest images", "images: a folder; expected a manifest: hgld manifest"),
    "workbook as manifest": Case(
        f"{TRAIN} --manifest labels.xlsx", "a spreadsheet; save it as CSV", write("labels.xlsx", b"PK\x03\x04")
    ),
    "table without splits": Case(
        f"{TRAIN} --manifest wrong.csv",
        "not a manifest: its columns are path, part, .*hgld manifest table",
        labels(("split", "part")),
    ),
    "no training images": Case(
        f"{TRAIN} --manifest wrong.csv",
        'no split "train" among the images; expected test; divide the images: .*--test-share',
        labels((",train,", ",test,")),
    ),
    "one image of each class": Case(
        f"{TRAIN} --manifest wrong.csv",
        "0 of 1 classes have 2 images or more, and 1 have only one; lower .*, or add images",
        write(
            "wrong.csv",
            "\n".join(line for line in LABELS.splitlines() if ",train," not in line) + "\nc3/0.jpg,train,c3,k1\n",
        ),
    ),
    "no such folder of images": Case(
        f"{TRAIN} --manifest labels.csv --images absent", "absent: no such folder; name the one"
    ),
    "another folder of images": Case(
        f"{TRAIN} --manifest labels.csv --images other",
        "other: none of the 12 images can be read; is this the folder .* c3/0.jpg: other/c3/0.jpg: No such file",
        write("other/readme.txt", "nothing"),
    ),
    "files that are not images": Case(
        f"{TRAIN} --manifest wrong.csv --images broken",
        r"none of the 4 images can be read; .*c3/0.jpg: not an image \(in 0 bytes\) +c3/1.jpg: not an image",
        no_images,
    ),
    "misspelt setting": Case(f"{TRAIN} --set los.name=happier", "los: there is no such setting; did you mean loss"),
    "table as settings": Case(
        "train labels.csv -o out", "expected settings such as 'batch_size: 256', found .{,110}$"
    ),
    "batch of more classes than there are": Case(
        f"{TRAIN} --set batch_size=64", "lower --set sampler.per_class or --set batch_size, or add images"
    ),
    "run that exists": Case("train settings.yaml -o run", r"run: there is a run already .*--resume.*--force"),
    "half-written checkpoint of a run": Case(
        "train settings.yaml -o half --resume",
        "half/last.pt: not a readable checkpoint.*; copy it again, or",
        half_written_run,
    ),
    # embeddings
    "manifest as folder of images": Case(
        EMBED.replace("images --model", "labels.csv --model"),
        "labels.csv: expected a folder of images, or the table of hgld index-images; give a manifest as --manifest",
    ),
    "neither manifest nor images": Case(
        EMBED.replace("--images images", ""), "no images to embed; give their --manifest, or their folder as --images"
    ),
    "option of an earlier version": Case(
        f"{EMBED} --root images", "the option --root of hgld embed-images is called --images now"
    ),
    "word for the things of GLDv2's list": Case(
        "scrape list.csv --split train --entity city --contact a@example.org -o x.parquet",
        "--entity and --entities are words for a list other than GLDv2's; give its --id, too",
    ),
    "folder without images": Case(
        EMBED.replace("images --model", "other --model"),
        "no images in this folder .*; found 1 .txt",
        write("other/a.txt", ""),
    ),
    "folder of files that are not images": Case(
        EMBED.replace("images --model", "broken --model"), "none of the 4 images can be read", no_images
    ),
    "no such split": Case(
        f"{EMBED.replace('--images', '--manifest labels.csv --images')} --split val", 'no split "val"'
    ),
    "folder without a checkpoint": Case(
        EMBED.replace("--model run", "--model images"),
        "images: contains no model; expected the folder of a training, with best.pt",
    ),
    "half-written checkpoint": Case(
        EMBED.replace("--model run", "--model half/last.pt"), "last.pt: not a readable checkpoint", half_written_run
    ),
    "unknown format of embeddings": Case(EMBED.replace("out.parquet", "out.csv"), r"out.csv: .*\.parquet"),
    # evaluation
    "no embeddings": Case(
        EVALUATE.replace("run.parquet", "absent.parquet"), "absent.parquet: no such file; expected the embeddings"
    ),
    "embeddings of other images": Case(
        EVALUATE.replace("run.parquet", "other.npy"),
        "lists none of the 2 images in other.npy: x.jpg, y.jpg .*its ids look like c0/0.jpg.*; name a file",
        embeddings(["x.jpg", "y.jpg"]),
    ),
    "labels without ids": Case(
        EVALUATE.replace("labels.csv", "wrong.csv"),
        "expected id and landmark_id, or id and a column for each level",
        write("wrong.csv", "name,class\na,b\n"),
    ),
    # search
    "no query": Case(
        SEARCH.format(""), "expected a QUERY, an image or a folder, or --text, or --serve; found nothing"
    ),
    "query that is not there": Case(SEARCH.format("absent.jpg"), "absent.jpg: no such file"),
    "query that is no image": Case(
        SEARCH.format("page.jpg"),
        "page.jpg: none of the 1 images can be read: page.jpg: not an image",
        write("page.jpg", "<html>"),
    ),
    "embeddings of another model": Case(
        SEARCH.format("images/c0/0.jpg --model run").replace("run.parquet", "other.npy"),
        "--model has 8 dimensions, but other.npy has 5; name the model that made them",
        embeddings(["x.jpg", "y.jpg"], dim=5),
    ),
    "embeddings of an unknown model": Case(
        SEARCH.format("images/c0/0.jpg").replace("run.parquet", "other.npy"),
        "not recorded .*; give --model",
        embeddings(["x"]),
    ),
    "unknown format of answers": Case(SEARCH.format("images/c0/0.jpg") + " -o out.txt", r"out.txt: .*\.csv"),
    # models
    "model for nowhere": Case("push-model run", "expected OWNER/NAME, --out or both; found neither"),
    "name of a repository without owner": Case("push-model run apples", '"apples" is no name .* owner/name'),
    "folder of something else": Case(
        "push-model run -o images", "files that are not those of a model .* name another folder, or .*--force"
    ),
    "folder of images as a model": Case("push-model images -o out", "contains no model; expected the folder of a"),
    "table as an evaluation": Case(
        "push-model run -o out --evaluation labels.csv", "labels.csv: not the output of hgld evaluate --json"
    ),
    "pretrained weights for a run": Case("push-model run -o out --pretrained none", "run has its own weights"),
    # photographs by id
    "photographs of no folder": Case(
        f"{FETCH} washington --from absent", "absent: no such file or folder; expected commons, shards, a folder of"
    ),
    "no list of ids": Case(f"{FETCH} washingtn", "no such file; expected ids such as .* are called washington"),
    "folder as a list of ids": Case(f"{FETCH} images", "images: a folder; expected ids such as"),
    "workbook of ids": Case(
        f"{FETCH} labels.xlsx", "a spreadsheet; save it as CSV", write("labels.xlsx", b"PK\x03\x04")
    ),
    "empty list of ids": Case(f"{FETCH} ids.txt", "no ids in this file; expected ids", write("ids.txt", "")),
    "table without ids": Case(f"{FETCH} labels.csv", "no column id; found path, .*; expected ids such as"),
    "ids of something else": Case(
        f"{FETCH} ids.txt", "1 of 2 ids are not those of GLDv2.*hello", write("ids.txt", f"{GLDV2_ID}\nhello\n")
    ),
    "ids in UTF-16": Case(
        f"{FETCH} ids.txt", r"line 1: not UTF-8 \(byte 0xff\)", write("ids.txt", f"{GLDV2_ID}\n".encode("utf-16"))
    ),
    "no one to write to": Case(f"{FETCH} ids.txt", "as --contact or in", write("ids.txt", GLDV2_ID), NO_CONTACT),
    "folder without tar files": Case(
        f"{FETCH} ids.txt --from images --plan", "images: no tar files in this folder", write("ids.txt", GLDV2_ID)
    ),
    # presets
    "unknown preset": Case("presets hapier", "hapier.*happier"),
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images, a table of their labels, settings, a run and its embeddings."""
    folder = tmp_path_factory.mktemp("workspace")
    save_pictures(folder / "images", *[f"c{c}/{n}.jpg" for c in range(6) for n in range(4)])
    (folder / "labels.csv").write_text(LABELS)
    (folder / "settings.yaml").write_text(SETTINGS)
    before = Path.cwd()
    try:
        os.chdir(folder)
        commands = (
            "train settings.yaml -o run",
            EMBED.replace("out.parquet", "run.parquet"),
        )
        for command in commands:
            result = CliRunner().invoke(HGLD, shlex.split(command))
            assert result.exit_code == 0, result.output
    finally:
        os.chdir(before)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_byte_order_marks_are_no_mistakes(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spreadsheets write one before the first column of a CSV file."""
    for path in workspace.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    Path("bom.csv").write_text(LABELS, encoding="utf-8-sig")
    for command in (
        TABLE.format("bom.csv"),
        "train settings.yaml -o out --plan --manifest bom.csv --images images",
        "embed-images --workers 0 --manifest bom.csv --images images --model run -o all.parquet",
        "search images/c0/0.jpg --embeddings run.parquet --manifest bom.csv",
        "evaluate --embeddings run.parquet --manifest bom.csv",
    ):
        result = CliRunner().invoke(HGLD, shlex.split(command))
        assert result.exit_code == 0, f"{command}\n{result.output}"


@pytest.mark.parametrize("name", CASES)
def test_wrong_input(name: str, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    for path in workspace.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    case.files()
    before = contents(tmp_path), contents(workspace)
    result = CliRunner().invoke(HGLD, shlex.split(case.command), env=case.environment)
    assert isinstance(result.exception, SystemExit), result.exception
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    first, *examples = result.stderr.splitlines()
    assert first.startswith("error: "), result.stderr
    assert all(line.startswith("  ") for line in examples), result.stderr
    assert re.search(case.message, " ".join([first, *(line.strip() for line in examples)])), result.stderr
    assert (contents(tmp_path), contents(workspace)) == before, "nothing is written"
