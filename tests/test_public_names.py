"""The public names of hgld and its rooms: which there are, and that each can be imported and is documented."""

import pkgutil
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import hgld

ROOMS = [f"hgld.{module.name}" for module in pkgutil.iter_modules(hgld.__path__) if module.ispkg]
#: Rooms for the inside of hgld.
INTERNAL_ROOMS = {"hgld.cli", "hgld.compute", "hgld.demo", "hgld.figures", "hgld.io", "hgld.pages"}
PUBLIC_ROOMS = ["hgld", *sorted({*ROOMS} - INTERNAL_ROOMS)]


@pytest.mark.parametrize("room", PUBLIC_ROOMS)
def test_public_names_can_be_imported_and_are_documented(room: str) -> None:
    module = import_module(room)
    assert module.__doc__
    assert module.__all__
    assert sorted(dir(module)) == sorted(module.__all__)
    for name in module.__all__:
        value = getattr(module, name)
        if callable(value) and not hasattr(value, "__origin__"):  # aliases of types have no docstring of their own
            assert value.__doc__, name
            assert value.__doc__.partition("\n")[0].rstrip().endswith((".", ":", "::")), name
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = module.no_such_name


def test_losses_are_found_in_any_case() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'HAPPIER'; did you mean happier"):
        _ = hgld.losses.HAPPIER  # type: ignore[attr-defined]


@pytest.mark.parametrize("room", PUBLIC_ROOMS)
def test_no_module_hides_a_public_name(room: str) -> None:
    # Once imported, a module is an attribute of its package, which comes before names that are imported on first use.
    package = import_module(room)
    modules = {module.name for module in pkgutil.iter_modules(package.__path__) if not module.ispkg}
    for name in modules.intersection(package.__all__):
        import_module(f"{room}.{name}")
        assert not isinstance(getattr(package, name), ModuleType), name


def test_page_of_promised_names_lists_the_internal_packages() -> None:
    page = Path(__file__).parents[1] / "docs/reference/promised_names.md"
    _, not_promised = page.read_text(encoding="utf-8").split("**Not promised**")
    packages = re.findall(r"`(hgld\.[a-z_]+)`", not_promised)
    assert {*packages} == INTERNAL_ROOMS
