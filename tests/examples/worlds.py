"""Worlds in which the examples of pages run: what is in their folder, and who answers.

* `empty`: an empty folder.
* `wikimedia`: a replica of Commons and Wikidata on this machine, which hgld's environment variables name. It knows
  Washington's landmarks. A year passes on it when `${HGLD_COMMONS_URL%/commons}/__later__` is requested.
* `washington`: the same; the list of these landmarks and the decisions on their labels, where a clone of hgld has
  them; and their photographs in `data/washington`, as `hgld fetch gldv2 --ids washington` leaves them.
* `birds`: a replica of Commons and Wikidata that knows 328 species of birds, and their list in `birds.csv`.
* `products`: product labels in `products.csv` and a tree of them in `tree.csv`.
* `grocery`: the repository of the Grocery Store dataset, which `git clone` gets by its address.
* `clone`: a clone of hgld. Its environment `.venv` has pip and the packages that hgld requires, so that `make`
  downloads none, and lacks hgld. Pages of this world show all that is run.
* `sample`: the local server of `hgld demo --serve`, which hgld's environment variables name.
* `browser`: Chromium, for `keyboard.py`; pages are skipped where it is not installed.

A page may need several of them. In all, `hgld` and `python` are those of the tests, `EXAMPLES` is the folder of these
modules, whose scripts hidden commands use, and `PICTURES` the folder to which a page copies pictures that it shows:
`docs/pictures` when outputs are written (`make examples`), else a folder that nobody looks at.
"""

import os
import shutil
import site
import subprocess
import sys
import tarfile
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from hgld.demo.sample import read_sample, serve_sample
from tests.examples.changing_wikimedia import serve_changing_wikimedia

_CHECKOUT = Path(__file__).parents[2]
#: Worlds that are made from the shared folder of real data.
SHARED_WORLDS = ("wikimedia", "washington", "birds", "products", "grocery")
WORLDS = ("empty", "sample", "browser", "clone", *SHARED_WORLDS)


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
            elif name == "clone":
                environment = _open_clone(folder, environment)
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


def _open_clone(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Copy what git would clone, and return the environment variables of its reader.

    The environment `.venv` of the clone finds packages that hgld requires in the environment of the tests.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=_CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.rstrip("\0").split("\0"):
        if (_CHECKOUT / name).is_file():  # and not removed since the last commit
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(_CHECKOUT / name, folder / name)
    environment_folder = folder / ".venv"
    venv.create(environment_folder)
    (packages,) = environment_folder.glob("lib/python*/site-packages")
    (packages / "tests.pth").write_text("\n".join(site.getsitepackages()), encoding="utf-8")
    kept = {name: value for name, value in environment.items() if name not in ("PYTHONPATH", "EXAMPLES")}
    # The value 0 of the second variable switches the isolation off.
    return kept | {"PATH": os.environ["PATH"], "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"}


def _require_browser() -> None:
    if not all(map(shutil.which, ("chromium", "chromedriver"))):
        pytest.skip("chromium and chromedriver are not installed")


@contextmanager
def _open_wikimedia(folder: Path, shared: Path) -> Iterator[Mapping[str, str]]:
    with serve_changing_wikimedia(shared) as url:
        yield {"HGLD_COMMONS_URL": f"{url}/commons", "HGLD_WIKIDATA_URL": f"{url}/wikidata"}


@contextmanager
def _open_washington(folder: Path, shared: Path) -> Iterator[Mapping[str, str]]:
    source = shared / "wa_gldv2"
    subset = folder / "data" / "subsets" / "washington"
    shutil.copytree(_CHECKOUT / subset.relative_to(folder), subset)
    shutil.copytree(_CHECKOUT / "annotations", folder / "annotations")
    # copyfile leaves out permissions: the shared folder is read-only, and commands write into this one.
    photographs = folder / "data" / "washington"
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        target = photographs / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    hierarchy = "train_label_to_hierarchical.csv"
    shutil.copyfile(subset / hierarchy, photographs / hierarchy)
    with _open_wikimedia(folder, shared) as environment:
        yield environment


@contextmanager
def _open_birds(folder: Path, shared: Path) -> Iterator[Mapping[str, str]]:
    from wikimedia_replica import ReplicaServer  # type: ignore[import-not-found, unused-ignore]

    shutil.copyfile(shared / "other_domains/birds/list.csv", folder / "birds.csv")
    with ReplicaServer(shared / "wikimedia_replica/worlds/birds.json.gz") as server:
        url = server.base_url
        yield {"HGLD_COMMONS_URL": f"{url}/commons", "HGLD_WIKIDATA_URL": f"{url}/wikidata"}


@contextmanager
def _open_products(folder: Path, shared: Path) -> Iterator[Mapping[str, str]]:
    for name in ("products.csv", "tree.csv"):
        shutil.copyfile(shared / "other_domains/plain" / name, folder / name)
    yield {}


@contextmanager
def _open_grocery(folder: Path, shared: Path) -> Iterator[Mapping[str, str]]:
    repository = folder.parent / "GroceryStoreDataset"
    dataset = repository / "dataset"
    dataset.mkdir(parents=True)
    for path in sorted((shared / "grocery").glob("*.tar")):
        with tarfile.open(path) as archive:
            archive.extractall(dataset, filter="data")
    # The shared folder has no pictures by the shops. Copies of photographs are where they are in the repository.
    for product in sorted({photograph.parent for photograph in dataset.glob("test/**/*.jpg")}):
        picture = dataset / "iconic-images-and-descriptions" / product.relative_to(dataset / "test") / "Iconic.jpg"
        picture.parent.mkdir(parents=True)
        shutil.copyfile(next(product.glob("*.jpg")), picture)
    git = ["git", "-c", "user.name=x", "-c", "user.email=x", "-C", str(repository)]
    for arguments in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "Photographs"]):
        subprocess.run([*git, *arguments], check=True)
    yield {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{repository}.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://github.com/marcusklasson/GroceryStoreDataset",
    }


_OPEN: dict[str, Callable[[Path, Path], AbstractContextManager[Mapping[str, str]]]] = {
    "wikimedia": _open_wikimedia,
    "washington": _open_washington,
    "birds": _open_birds,
    "products": _open_products,
    "grocery": _open_grocery,
}
