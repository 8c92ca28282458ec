"""Fixtures that several rooms share."""

import atexit
import functools
import gc
import os
import pkgutil
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
import typer.main
import typer.testing

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

    from tests.slurm_cluster import SlurmCluster

# No deadline: the first example of a test may import something heavy, and other machines are slower than this one.
hypothesis.settings.register_profile("hgld", deadline=None, derandomize=True)
hypothesis.settings.register_profile("quick", deadline=None, derandomize=True, max_examples=25)
hypothesis.settings.register_profile("fuzz", deadline=None, max_examples=1000, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "hgld"))

_CHECKOUT = Path(__file__).parent.parent

# Assertions of helpers say what they compare, as those of tests do; this comes before any helper is imported.
pytest.register_assert_rewrite(
    *(f"tests.{module.name}" for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
)

# Typer reads the signatures of all commands whenever one is invoked, which takes longer than most commands run.
typer.main.get_command = functools.cache(typer.main.get_command)
typer.testing._get_command = typer.main.get_command  # type: ignore[attr-defined]


def pytest_collection() -> None:
    """Collect no garbage while tests and their modules are imported: nearly all of those objects stay."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Exclude the imported modules from garbage collection, which otherwise walks through millions of objects."""
    gc.enable()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # tests leave much, and little of it in cycles
    # By default PyTorch gives some warnings only once in a process, which may be while a test ignores them.
    if torch := sys.modules.get("torch"):
        torch.set_warn_always(True)
    # The interpreter has to free all objects at its end, or triton prints what it regards as leaks. Not earlier, as
    # pytest collects garbage several times when it ends.
    atexit.register(gc.unfreeze)


@pytest.fixture(scope="session", autouse=True)
def small_pictures(pytestconfig: pytest.Config) -> Iterator[None]:
    """Save figures with a third of the pixels, as most of their time goes into compressing them.

    Pictures that are written to pages of the documentation keep their size.
    """
    writes_pages = pytestconfig.getoption("--write-outputs", default=False)
    style = sys.modules.get("hgld.figures.style")
    with pytest.MonkeyPatch.context() as patch:
        if style and not writes_pages:
            patch.setattr(style, "DPI", 50)
        yield


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the user's cache out of the tests, and the tests out of the cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HGLD_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data and reference servers: ``HGLD_SHARED``, else ``shared`` beside the checkout."""
    path = Path(os.environ.get("HGLD_SHARED", _CHECKOUT.parent / "shared"))
    if not path.is_dir():
        pytest.skip(f"no real data: {path} does not exist (set HGLD_SHARED)")
    return path


@pytest.fixture(scope="session")
def replica(shared: Path) -> Callable[..., Any]:
    """``replica("washington.json.gz", error_rate=0.1)``: a server to be used in a ``with`` block."""
    if sys.version_info < (3, 11):
        pytest.skip("the replica needs Python 3.11: on an older one its resets leave connections open")
    sys.path.insert(0, str(shared))
    from wikimedia_replica import ReplicaServer  # type: ignore[import-not-found, unused-ignore]

    def start(world: str, **faults: Any) -> Any:
        path = shared / "wikimedia_replica" / "worlds" / world
        return ReplicaServer(world if world.startswith("stress:") else path, **faults)

    return start


@pytest.fixture(scope="session")
def washington(shared: Path) -> Path:
    """844 real landmarks in GLDv2's own layout."""
    return shared / "wa_gldv2" / "train_label_to_category.csv"


@pytest.fixture(scope="session")
def cluster(shared: Path) -> "Iterator[SlurmCluster]":
    """A SLURM cluster of two nodes with a core each."""
    from tests.slurm_cluster import slurm_cluster

    with slurm_cluster(shared) as started:
        yield started


@pytest.fixture(scope="session")
def browser() -> "Iterator[Chrome]":
    """A headless Chromium that reaches nobody but this machine."""
    if not all(map(shutil.which, ("chromium", "chromedriver"))):
        pytest.skip("chromium and chromedriver are not installed")
    from tests.examples.keyboard import open_browser

    opened = open_browser()
    yield opened
    opened.quit()
