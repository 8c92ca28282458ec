"""Commands that write end in one line when the place is wrong, read-only or full, and leave nothing half-written."""

import json
import os
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from tests.child_processes import run_child, single_thread_environment
from tests.datasets.pictures import save_pictures

CHECKOUT = Path(__file__).parent.parent
#: Commands with the option ``-o``.
WITH_OUT = [
    "adjudicate",
    "agreement",
    "benchmark",
    "build",
    "clean",
    "cluster",
    "complete",
    "copy-store",
    "decisions",
    "demo",
    "embed",
    "embed-images",
    "export",
    "fetch",
    "import-sheet",
    "index-images",
    "manifest folder",
    "manifest gldv2",
    "manifest table",
    "push-model",
    "release",
    "repack",
    "scrape",
    "stats",
    "suggest",
    "train",
]
#: The options of every command that name a file or folder to write.
OUTPUTS = [(command, "-o") for command in WITH_OUT] + [
    ("agreement", "--figure"),
    ("build", "--csv"),
    ("clean", "--removed"),
    ("compare", "--changes"),
    ("evaluate", "--per-query"),
    ("evaluate", "--per-label"),
    ("evaluate", "--write-predictions"),
    ("evaluate", "--page"),
    ("review", "--store"),
    ("search", "--out"),
    ("search", "--page"),
]
#: Run every command with nothing but one of its outputs in each place; print exit codes and stderr as JSON.
SCRIPT = """
import json, sys
from click.testing import CliRunner
from typer.main import get_command
from hgld.cli import app
outputs, *places = sys.argv[1:]
outcomes, hgld = [], get_command(app)
for command, option in json.loads(outputs):
    for place in places:
        result = CliRunner().invoke(hgld, [*command.split(), option, place])
        outcomes.append((f"{command} {option}", place, result.exit_code, result.stderr))
print(json.dumps(outcomes))
"""


def mounted(folder: Path, options: str) -> list[str]:
    """Return the beginning of a command that runs with a file system in memory at ``folder``, seen by it alone."""
    if os.geteuid() or not shutil.which("unshare"):
        pytest.skip("only root can mount file systems")
    folder.mkdir(exist_ok=True)
    script = f'mount -t tmpfs -o {options} tmpfs "$0" && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, str(folder)]


def own_images(folder: Path) -> None:
    """Write six images, two tables of their labels, and the embeddings of all and of four of them."""
    from hgld.models import load_model
    from hgld.models.image_embedding import embed_images
    from hgld.models.settings import EmbedImagesConfig

    save_pictures(folder / "images", *[f"{number}.jpg" for number in range(6)])
    rows = [f"{number}.jpg,{'train' if number % 2 else 'test'},c{number // 2}\n" for number in range(6)]
    (folder / "labels.csv").write_text("path,split,class\n" + "".join(rows[:4]))
    (folder / "more.csv").write_text("path,split,class\n" + "".join(rows))
    model = load_model("test_resnet", "none", size=32, resize=32)
    for table in ("labels.csv", "more.csv"):
        out = folder / ("few.npy" if table == "labels.csv" else "all.npy")
        embed_images(folder / table, out, model, EmbedImagesConfig(workers=0), root=folder / "images")


def test_output_below_a_file_or_in_a_read_only_folder_is_refused_before_the_work(tmp_path: Path) -> None:
    file, folder = tmp_path / "file", tmp_path / "read-only"
    file.write_text("precious")
    errors = {
        str(file / "out.parquet"): f"error: {file} is a file",
        str(folder / "new" / "out.parquet"): f"error: {folder} is read-only",
    }
    command = [*mounted(folder, "ro"), sys.executable, "-c", SCRIPT, json.dumps(OUTPUTS), *errors]
    child = run_child(command, cwd=CHECKOUT)
    for name, place, exit_code, text in json.loads(child.stdout):
        assert exit_code == 1, f"{name}: {text}"
        (line,) = text.splitlines()
        assert line.startswith(errors[place]), name
    assert file.read_text() == "precious"


@pytest.mark.parametrize("command", [pytest.param("compare", marks=pytest.mark.slow), "stats"])
def test_disk_that_fills_up_ends_in_one_line_and_leaves_nothing(command: str, tmp_path: Path) -> None:
    """The work is done, and its output does not fit."""
    header = "landmark_id,hierarchical_label,natural_or_human_made\n"
    rows = "".join(f"{number},group {number % 50},natural\n" for number in range(5_000))
    labels, other, disk = tmp_path / "train_labels.csv", tmp_path / "train_other.csv", tmp_path / "disk"
    labels.write_text(header + rows)
    other.write_text(f"{header}1,lake,natural\n")
    arguments = {
        "compare": [labels, other, "--changes", disk / "changes.csv"],
        "stats": [labels, "-o", disk / "x.png"],
    }
    run = shlex.join([sys.executable, "-m", "hgld", command, *map(str, arguments[command])])
    script = f"{run}; code=$?; ls -A {disk}; exit $code"
    child = run_child([*mounted(disk, "size=32k"), "sh", "-c", script], exit_code=1, cwd=CHECKOUT)
    assert child.stdout == ""
    (line,) = child.stderr.splitlines()
    assert line.startswith("error: ")
    assert "No space left on device; free some space, then run the same command again" in line


FULL = """
import json, os, sys
from pathlib import Path
from click.testing import CliRunner
from typer.main import get_command
from hgld.cli import app

disk, hgld = Path(sys.argv[1]), get_command(app)
try:
    with (disk / "full").open("wb", buffering=0) as stream:
        while True:
            stream.write(bytes(4096))
except OSError:
    pass
outcomes = []
for command in json.loads(sys.argv[2]):
    result = CliRunner().invoke(hgld, command.split())
    outcomes.append((command, result.exit_code, result.stderr, os.listdir(disk)))
print(json.dumps(outcomes))
"""


@pytest.mark.slow
def test_full_disk_under_own_images(tmp_path: Path) -> None:
    """From embeddings to a page and a published model; ``test_stage.py`` has tables."""
    disk = tmp_path / "disk"
    own_images(tmp_path)
    commands = [
        f"push-model test_resnet --pretrained none -o {disk}/model",
        *(f"search images/0.jpg --embeddings all.npy --{place}" for place in (
            f"out {disk}/x.csv", f"out {disk}/x.json", f"out {disk}/x.parquet", f"page {disk}/x.html"
        )),
    ]  # fmt: skip
    child = [*mounted(disk, "size=64k"), sys.executable, "-c", FULL, str(disk), json.dumps(commands)]
    for command, exit_code, text, left in json.loads(
        run_child(child, cwd=tmp_path, environment=single_thread_environment()).stdout
    ):
        assert exit_code == 1, f"{command}: {text}"
        (line,) = text.splitlines()
        assert line.startswith("error: "), command
        assert "free some space, then run the same command again" in line, command
        assert left == ["full"], command


KILLED = """
import shutil, sys
from pathlib import Path
from click.testing import CliRunner
from typer.main import get_command
from hgld.cli import app
from tests.kill_points import kill_points

before, command = sys.argv[1:]
hgld, folder, old = get_command(app), Path("out").absolute(), Path("old").absolute()

def run(text=command):
    result = CliRunner().invoke(hgld, text.split())
    assert result.exit_code == 0, result.output

def files(folder=folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

def visible():
    return {name: content for name, content in files().items() if not name.startswith(".")}

def prepare():
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(old, folder)

folder.mkdir()
run(before)
folder.rename(old)
former = files(old)
prepare()
run()
new = files()
assert former.keys() == new.keys() and all(not name.startswith(".") for name in new)
for number in kill_points(run, folder, prepare):
    left = visible()
    whole = left in (former, new)
    # Of several files, some may be missing until the next run, but those of two runs are never side by side.
    assert whole or len(former) > 1 and (left.items() <= former.items() or left.items() <= new.items()), number
    run()
    assert files().keys() == new.keys(), (number, "the next run removes what is left")
print(number)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "command"),
    [
        (
            "search images/0.jpg --embeddings all.npy --top 2 --out out/x.csv",
            "search images --embeddings all.npy --top 2 --out out/x.csv",
        ),
        (
            "push-model test_resnet --pretrained none --license mit -o out/model",
            "push-model test_resnet --pretrained none --license bsd -o out/model",
        ),
    ],
    ids=["search", "push-model"],
)
def test_killed_commands_leave_old_or_new_files(before: str, command: str, tmp_path: Path) -> None:
    own_images(tmp_path)
    child = [sys.executable, "-c", KILLED, before, command]
    assert int(run_child(child, cwd=tmp_path, environment=single_thread_environment()).stdout) >= 2


@pytest.mark.slow
def test_photographs_that_do_not_fit_are_refused_before_the_work(shared: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    run = [sys.executable, "-m", "hgld", "fetch", "gldv2", "--ids", "washington", "--from", str(shared / "wa_gldv2")]
    script = f"{shlex.join([*run, '-o', str(disk)])}; code=$?; ls {disk}/train; exit $code"
    child = run_child([*mounted(disk, "size=8m"), "sh", "-c", script], exit_code=1, cwd=CHECKOUT)
    error, absent = child.stderr.splitlines()
    assert "the photographs need about 41.7 MB, but the disk has only 7." in error
    assert "No such file" in absent


@pytest.mark.slow
def test_checkpoints_and_embeddings_that_do_not_fit_are_errors_of_the_storage(tmp_path: Path) -> None:
    """torch and safetensors raise errors of their own for a full disk."""
    disk = tmp_path / "disk"
    script = f"""
import os
from pathlib import Path
import torch
from hgld.models import load_model, save_checkpoint
from hgld.models.model_loading import write_model
from hgld.tables.embeddings import write_embeddings
folder = Path({str(disk)!r})
for name, write in {{
    "last.pt": lambda path: save_checkpoint(path, {{"model": torch.zeros(100_000)}}),
    "embeddings.safetensors": lambda path: write_embeddings(path, torch.zeros(2, 50_000), ["a", "b"]),
    "model.safetensors": lambda path: write_model(load_model("test_vit", "none"), path.parent),
}}.items():
    try:
        write(folder / name)
    except OSError as error:
        print(error.strerror, Path(error.filename).name.partition(".")[0])
print(os.listdir(folder))
"""
    child = run_child([*mounted(disk, "size=32k"), sys.executable, "-c", script], cwd=CHECKOUT)
    assert child.stdout.splitlines() == [
        "Input/output error last",
        "No space left on device embeddings",
        "No space left on device model",
        "[]",
    ]
