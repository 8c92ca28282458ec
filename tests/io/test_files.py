"""Atomic writes and digests."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from hgld.io.files import atomic_write, digest_of, sha256_of


def test_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.png"
    with atomic_write(path) as draft:
        assert draft.suffix == ".png"
        draft.write_text("old")
    with pytest.raises(UnicodeEncodeError), atomic_write(path) as draft:
        draft.write_text("new é", encoding="ascii")
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_digests_of_a_file_of_several_blocks(tmp_path: Path) -> None:
    data = bytes(range(256)) * 10_000
    (tmp_path / "a").write_bytes(data)
    assert sha256_of(tmp_path / "a") == hashlib.sha256(data).hexdigest()
    assert digest_of(tmp_path / "a", "md5") == hashlib.md5(data).hexdigest()
