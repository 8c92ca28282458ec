"""Build the wheel and the sdist, and run the demo and every command's help from each in an empty environment.

Usage: python -m tests.release_check

It takes ten minutes or more and some 14 GB of disk for a while, as each environment gets a PyTorch of its own, so it
is no test. `make release-check` runs it before a version is published.
"""

import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

from hgld.version import __version__

CHECKOUT = Path(__file__).parent.parent
#: Files without which a distribution is incomplete, below its topmost folder.
WHEEL_FILES = ("hgld/py.typed", "hgld/_resources/annotations/taxonomy.csv", "hgld/_resources/sample/pages.csv")
SDIST_FILES = ("LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "hgld/py.typed", "annotations/taxonomy.csv")
#: Greatest size of the wheel in bytes.
MAX_WHEEL_SIZE = 3_000_000
#: Run in the environment, outside the checkout: it has to find everything in the installed package.
SMOKE_TEST = """
import importlib, pkgutil, subprocess, sys
from importlib.metadata import metadata
from pathlib import Path

import numpy as np
import typer.main

import hgld
from hgld.cli import app

assert Path(hgld.__file__).is_relative_to(sys.prefix), hgld.__file__
assert metadata("hgld")["License-Expression"] == "Apache-2.0"
rooms = ["hgld", *(f"hgld.{module.name}" for module in pkgutil.iter_modules(hgld.__path__) if module.ispkg)]
names = [(room, name) for room in rooms for name in getattr(importlib.import_module(room), "__all__", ())]
for room, name in names:
    getattr(importlib.import_module(room), name)

labels = np.array([[0, 0], [0, 0], [1, 0], [1, 0]])
result = hgld.evaluate_retrieval(np.eye(2)[labels[:, 0]], labels)
assert result.means["H-AP"] == 1.0, result


def commands(group, path):
    for name, command in sorted(group.commands.items()):
        yield [*path, name]
        if hasattr(command, "commands"):
            yield from commands(command, [*path, name])


listed = list(commands(typer.main.get_command(app), []))
for path in listed:
    shown = subprocess.run([Path(sys.prefix) / "bin" / "hgld", *path, "--help"], capture_output=True, text=True)
    assert shown.returncode == 0 and "Usage" in shown.stdout, (path, shown.stderr)
print(f"{len(names)} public names, {len(listed)} commands")
"""


def main() -> None:
    """Check both distributions; a failure ends with what the command printed."""
    with tempfile.TemporaryDirectory(prefix="hgld-release-") as name:
        folder = Path(name)
        _run(sys.executable, "-m", "build", "--outdir", folder / "dist", CHECKOUT)
        (wheel,) = (folder / "dist").glob("*.whl")
        (sdist,) = (folder / "dist").glob("*.tar.gz")
        _check_contents(wheel, sdist)
        for distribution in (wheel, sdist):
            _try(distribution, folder / distribution.suffix.strip("."))
    print(f"hgld {__version__} can be released")


def _check_contents(wheel: Path, sdist: Path) -> None:
    assert __version__ in wheel.name, wheel.name
    assert __version__ in sdist.name, sdist.name
    size = wheel.stat().st_size
    assert size <= MAX_WHEEL_SIZE, f"{wheel.name} has {size:,} bytes; expected {MAX_WHEEL_SIZE:,} or fewer"
    print(f"== {wheel.name}: {size:,} bytes")
    with zipfile.ZipFile(wheel) as archive:
        missing = set(WHEEL_FILES) - set(archive.namelist())
        assert not missing, f"{wheel.name} lacks {missing}"
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert set(SDIST_FILES) <= inside, f"{sdist.name} lacks {set(SDIST_FILES) - inside}"


def _try(distribution: Path, folder: Path) -> None:
    """Install a distribution into a new environment, and run the demo and the smoke test in an empty folder."""
    print(f"== {distribution.name}", flush=True)
    venv.create(folder / "venv", with_pip=True)
    program = folder / "venv" / "bin"
    _run(program / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", distribution)
    work = folder / "work"
    work.mkdir()
    shown = _run(program / "hgld", "--version", cwd=work)
    assert shown.split()[-1] == __version__, shown
    demo = _run(program / "hgld", "demo", cwd=work)
    assert (work / "data/demo/hierarchy.parquet").is_file(), demo
    print(demo.strip().splitlines()[-1])
    print(_run(program / "python", "-I", "-c", SMOKE_TEST, cwd=work).strip())


def _run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a command without the checkout's modules; return what it printed, or end with that."""
    child = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=cwd, check=False)
    if child.returncode != 0:
        sys.exit(f"exit code {child.returncode} of {' '.join(map(str, command))}\n{child.stdout}\n{child.stderr}")
    return child.stdout


if __name__ == "__main__":
    main()
