"""Packages of extras that are missing or broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from hgld.errors import ConfigurationError
from hgld.resources import import_extra


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import no_such_package", r"broken_package is not installed; type pip install '\.\[search\]'"),
        (
            "raise ImportError('libGL.so.1: cannot open shared object file')",
            r"broken_package cannot be imported \(libGL\.so\.1: cannot open shared object file\); type pip install",
        ),
    ],
)
def test_package_that_cannot_be_imported(
    source: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_package.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match=message):
        import_extra("broken_package", "search")
