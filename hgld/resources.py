"""Locate files that come with hgld, beside the package or inside a wheel, and import the packages of its extras."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from hgld.errors import ConfigurationError

_PACKAGE = Path(__file__).parent


def annotation_file(name: str) -> Path:
    """Return the path of ``annotations/<name>``, such as the taxonomy, the irrelevant labels or the guideline.

    Raises:
        ConfigurationError: The installation lacks the file.

    >>> annotation_file("taxonomy.csv").name
    'taxonomy.csv'
    """
    return _find("annotations", name)


def sample_file(name: str) -> Path:
    """Return the path of ``data/sample/<name>``, a file about the landmarks of ``hgld demo``.

    Raises:
        ConfigurationError: The installation lacks the file.
    """
    return _find("data/sample", name)


def preset_folder() -> Path:
    """Return the path of ``pipelines/benchmarks``, which holds the settings of trainings and comparisons.

    Raises:
        ConfigurationError: The installation lacks the folder.
    """
    return _find("pipelines", "benchmarks")


def rejection_folder() -> Path:
    """Return the path of ``pipelines/rejection``, which holds the settings of comparisons of rejection scores.

    Raises:
        ConfigurationError: The installation lacks the folder.
    """
    return _find("pipelines", "rejection")


def subset_file(name: str) -> Path:
    """Return the path of ``data/subsets/<name>``, a list about a part of GLDv2.

    Raises:
        ConfigurationError: The installation lacks the file.

    >>> subset_file("washington/train.csv").name
    'train.csv'
    """
    return _find("data/subsets", name)


def import_extra(module: str, extra: str | None = None, *, name: str | None = None) -> Any:
    """Import a module of a package that hgld does not require.

    Args:
        module: Name of the module.
        extra: Extra of hgld that the package belongs to. Default: the name of the module.
        name: Name of the package in the error message. Default: the name of the module.

    Raises:
        ConfigurationError: The package is not installed, or cannot be imported.
    """
    try:
        return import_module(module)
    except ImportError as error:
        problem = f"cannot be imported ({error})"
        if isinstance(error, ModuleNotFoundError):
            problem = "is not installed"
        raise ConfigurationError(
            f"{name or module} {problem}; type pip install '.[{extra or module}]' in a clone of hgld"
        ) from error


def _find(folder: str, name: str) -> Path:
    in_checkout = _PACKAGE.parent / folder / name
    in_wheel = _PACKAGE / "_resources" / folder.rpartition("/")[2] / name
    for path in (in_checkout, in_wheel):
        if path.exists():
            return path
    raise ConfigurationError(
        f"{name} is part of hgld, but it is neither at {in_checkout} nor at {in_wheel}; install hgld again"
    )
