"""Read YAML files with the types of YAML 1.2, and refuse files with too many values."""

from __future__ import annotations

import re
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from hgld.errors import InputError

#: Largest number of values in a file. A value that aliases repeat counts once for each repetition.
_MAX_VALUES = 100_000
#: Number of characters of a value that error messages show.
MAX_QUOTED = 100

#: PyYAML is ten times as fast with libyaml, which its wheels contain.
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_SafeLoader):  # type: ignore[misc]
    """Safe loader with the booleans and numbers of YAML 1.2: ``off`` is a string, ``1e-5`` a number."""


def _resolvers_of_other_types() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """Return PyYAML's resolvers by first character, without the resolvers of booleans and floats."""
    remaining = {}
    for character, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items():
        remaining[character] = [
            (tag, pattern) for tag, pattern in resolvers if not tag.endswith((":bool", ":float"))
        ]
    return remaining


_Loader.yaml_implicit_resolvers = _resolvers_of_other_types()
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|false|False)$"), list("tTfF")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?$|^[-+]?\.(?:inf|nan)$"),
    list("-+.0123456789"),
)


def read_mapping(path: Path, extended_by: Path | None = None) -> dict[str, Any]:
    """Read a YAML file that contains a mapping.

    Args:
        path: The YAML file.
        extended_by: The settings file whose key ``base`` names this file; error messages name it.

    Raises:
        InputError: The file is missing, is not YAML, or contains no mapping.
    """
    try:
        values = deepcopy(_parse_once(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        reference = ""
        if extended_by is not None:
            reference = f', which {extended_by} names as its "base"'
        raise InputError(f"{path}: no such file{reference}") from None
    # PyYAML raises ValueError for impossible dates, and Python for text that is not UTF-8.
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot be read as YAML: {error}") from error
    return require_mapping(values, path)


def require_mapping(values: Any, path: Path) -> dict[str, Any]:
    """Return the values if they are a mapping; raise an :class:`InputError` otherwise."""
    if not isinstance(values, dict):
        raise InputError(
            f"{path}: expected settings such as 'batch_size: 256', found {quote_value(values)}"
        )
    return values


def load_yaml(text: str) -> Any:
    """Return the value of a YAML text.

    Raises:
        yaml.YAMLError: The text is not YAML.
        ValueError: A value contains itself, or aliases repeat values too often.
    """
    value = yaml.load(text, _Loader)  # noqa: S506 - it is a safe loader
    if _count_values(value, {}) > _MAX_VALUES:
        raise ValueError(
            f"its aliases (*name) repeat values until there are more than {_MAX_VALUES:,}"
        )
    return value


@lru_cache(maxsize=64)
def _parse_once(text: str) -> Any:
    """Parse a text once for all rows of a file, which are read one by one."""
    return load_yaml(text)


def _count_values(value: Any, counts: dict[int, int]) -> int:
    """Return the number of values in a value, itself included; repetitions by aliases count.

    Args:
        value: A mapping, a list or a single value.
        counts: Number of values in each mapping and list that was visited, by ``id``; 0 while it is
            being counted.
    """
    if not isinstance(value, dict | list):
        return 1
    if id(value) in counts:
        if counts[id(value)] == 0:
            raise ValueError("a value refers to itself by its alias (*name)")
        return counts[id(value)]
    counts[id(value)] = 0
    items = list(value.values()) if isinstance(value, dict) else value
    count = 1
    for item in items:
        count += _count_values(item, counts)
    counts[id(value)] = count
    return count


def quote_value(value: Any) -> str:
    """Return a value for an error message: strings in quotation marks, long values shortened."""
    if value is None:
        return "nothing"
    is_string = isinstance(value, str)
    text = " ".join(value.split()) if is_string else repr(value)
    if len(text) > MAX_QUOTED:
        text = f"{text[:MAX_QUOTED]}…"
    return f'"{text}"' if is_string else text
