"""Worlds in which the examples of pages run: what is in their folder, and who answers.

* `empty`: an empty folder.
* `washington`: `train_label_to_category.csv` of Washington's landmarks, their photographs in `data/washington` as
  `hgld fetch gldv2 --ids washington` leaves them, and a replica of Commons and Wikidata on this machine, which hgld's
  environment variables name. A year passes on it when `${HGLD_COMMONS_URL%/commons}/__later__` is requested.
* `grocery`: the Grocery Store dataset in `data/grocery/dataset`, with the folders that its repository has
  (`train/Fruit/Apple/Golden-Delicious/...`), and a table of its photographs in `data/grocery/images.csv`.

* `sample`: the local server of `hgld demo --serve`, which hgld's environment variables name.
* `browser`: Chromium, for `keyboard.py`; pages are skipped where it is not installed.

A page may need several of them. In all, `hgld` and `python` are those of the tests, `EXAMPLES` is the folder of these
modules, whose scripts hidden commands use, and `PICTURES` the folder to which a page copies pictures that it shows:
`docs/pictures` when outputs are written (`make examples`), else a folder that nobody looks at.
"""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from hgld.demo.sample import read_sample
from hgld.demo.server import serve_sample
from hgld.resources import subset_file
from tests.examples.changing_wikimedia import serve_changing_wikimedia

_CHECKOUT = Path(__file__).parents[2]
#: Worlds that are made from the shared folder of real data.
SHARED_WORLDS = ("washington", "grocery")
WORLDS = ("empty", "sample", "browser", *SHARED_WORLDS)


@contextmanager
def open_worlds(names: Sequence[str], folder: Path, shared: Path | None, pictures: Path) -> Iterator[dict[str, str]]:
    """Fill the folder of a page, serve what its commands ask for, and yield their environment variables.

    Args:
        names: Of :data:`WORLDS`; what they hold is put into one folder.
        folder: Empty folder in which the examples run.
        shared: Folder of real data, for the worlds that are made from it.
        pictures: Value of the variable ``PICTURES``.
    """
    environment = _environment(folder, pictures)
    with ExitStack() as stack:
        for name in names:
            if name == "sample":
                environment |= stack.enter_context(_open_sample())
            elif name == "browser":
                _require_browser()
            elif name in SHARED_WORLDS:
                assert shared is not None, f"the world {name} is made from the shared folder"
                environment |= stack.enter_context(_OPEN[name](folder, shared))
        yield environment


def _environment(folder: Path, pictures: Path) -> dict[str, str]:
    """Return variables that do not depend on who runs the tests, but for the cache of hgld."""
    kept = {key: os.environ[key] for key in ("HGLD_CACHE", "HGLD_COMPILE", "NUMBA_CACHE_DIR") if key in os.environ}
    return {
        **kept,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(_CHECKOUT),
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "COLUMNS": "118",
        "OMP_NUM_THREADS": "1",
        "EXAMPLES": str(Path(__file__).parent),
        "PICTURES": str(pictures),
    }


@contextmanager
def _open_sample() -> Iterator[Mapping[str, str]]:
    with serve_sample(read_sample()) as url:
        yield {"HGLD_COMMONS_URL": f"{url}/commons", "HGLD_WIKIDATA_URL": f"{url}/wikidata"}


def _require_browser() -> None:
    if not all(map(shutil.which, ("chromium", "chromedriver"))):
        pytest.skip("chromium and chromedriver are not installed")


@contextmanager
def _open_washington(folder: Path, shared: Path) -> Iterator[Mapping[str, str]]:
    source = shared / "wa_gldv2"
    shutil.copyfile(source / "train_label_to_category.csv", folder / "train_label_to_category.csv")
    # copyfile leaves out permissions: the shared folder is read-only, and commands write into this one.
    photographs = folder / "data" / "washington"
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        target = photographs / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    hierarchy = "train_label_to_hierarchical.csv"
    shutil.copyfile(subset_file(f"washington/{hierarchy}"), photographs / hierarchy)
    with serve_changing_wikimedia(shared) as url:
        yield {
            "HGLD_COMMONS_URL": f"{url}/commons",
            "HGLD_WIKIDATA_URL": f"{url}/wikidata",
            "HGLD_CONTACT": "you@example.org",
        }


@contextmanager
def _open_grocery(folder: Path, shared: Path) -> Iterator[Mapping[str, str]]:
    dataset = folder / "data" / "grocery" / "dataset"
    dataset.mkdir(parents=True)
    shutil.copyfile(shared / "grocery" / "images.csv", dataset.parent / "images.csv")
    for path in sorted((shared / "grocery").glob("*.tar")):
        with tarfile.open(path) as archive:
            archive.extractall(dataset, filter="data")
    yield {}


_OPEN: dict[str, Callable[[Path, Path], AbstractContextManager[Mapping[str, str]]]] = {
    "washington": _open_washington,
    "grocery": _open_grocery,
}
