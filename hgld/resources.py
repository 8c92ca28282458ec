"""Where the files that come with hgld are: in a checkout beside the package, in a wheel inside it."""

from __future__ import annotations

from pathlib import Path

from hgld.errors import ConfigurationError

_PACKAGE = Path(__file__).parent


def annotation_file(name: str) -> Path:
    """The file ``annotations/<name>``: the taxonomy, the irrelevant labels, the guideline."""
    return _find("annotations", name)


def sample_file(name: str) -> Path:
    """The file ``data/sample/<name>``: the landmarks that ``hgld demo`` runs on."""
    return _find("data/sample", name)


def _find(folder: str, name: str) -> Path:
    in_checkout = _PACKAGE.parent / folder / name
    in_wheel = _PACKAGE / "_resources" / folder.rpartition("/")[2] / name
    for path in (in_checkout, in_wheel):
        if path.is_file():
            return path
    raise ConfigurationError(
        f"{name} is part of hgld, but it is neither at {in_checkout} nor at {in_wheel}; install hgld again"
    )
