"""Encoders with a cache: loaded once, equal to those without, and undisturbed by a cache that is damaged or full."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hgld.errors import ConfigurationError
from hgld.labels import encoders
from hgld.labels.encoders import NGrams, load_cached_encoder

TEXTS = ["lake", "church building", "bay"]


class Loader:
    """Stands for ``load_encoder``, and counts what it loads and encodes."""

    def __init__(self) -> None:
        self.loaded: list[tuple[str, str | None]] = []
        self.batches: list[list[str]] = []

    def __call__(self, name: str, device: str | None = None) -> "Loader":
        self.loaded.append((name, device))
        return self

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.batches.append(list(texts))
        return NGrams().encode(texts)


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Loader:
    loader = Loader()
    monkeypatch.setattr(encoders, "load_encoder", loader)
    monkeypatch.setenv("HGLD_CACHE", str(tmp_path / "cache"))
    return loader


def cached_files(folder: Path) -> list[Path]:
    return sorted((folder / "cache" / "text-vectors").glob("*"))


def test_second_encoder_is_not_loaded(loader: Loader) -> None:
    first = load_cached_encoder("minilm", "cpu").encode(TEXTS)
    second = load_cached_encoder("minilm", "cpu").encode(TEXTS)
    np.testing.assert_array_equal(first, NGrams().encode(TEXTS))
    np.testing.assert_array_equal(second, first)
    assert (loader.loaded, loader.batches) == ([("minilm", "cpu")], [TEXTS])


def test_another_batch_device_encoder_or_version_is_encoded(
    loader: Loader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tmp_path / "weights.pt"
    checkpoint.write_text("old")
    encoder = f"open_clip:ViT-B-32/{checkpoint}"
    for name, device, texts in [
        ("minilm", "cpu", TEXTS),
        ("minilm", "cpu", TEXTS[:2]),
        ("minilm", "cpu", TEXTS[::-1]),
        ("minilm", "meta", TEXTS),
        (encoder, "cpu", TEXTS),
    ]:
        load_cached_encoder(name, device).encode(texts)
    assert len(loader.batches) == 5
    os.utime(checkpoint, (0, 0))
    load_cached_encoder(encoder, "cpu").encode(TEXTS)
    monkeypatch.setattr(encoders, "version", lambda package: "next")
    load_cached_encoder("minilm", "cpu").encode(TEXTS)
    assert len(loader.batches) == 7


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY\x01\x00", b"text"], ids=["empty", "cut off", "another file"])
def test_damaged_file_is_replaced(content: bytes, loader: Loader, tmp_path: Path) -> None:
    expected = load_cached_encoder("minilm", "cpu").encode(TEXTS)
    (path,) = cached_files(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(content)
    np.testing.assert_array_equal(load_cached_encoder("minilm", "cpu").encode(TEXTS), expected)
    assert path.read_bytes() == whole


def test_file_of_other_vectors_is_replaced(loader: Loader, tmp_path: Path) -> None:
    expected = load_cached_encoder("minilm", "cpu").encode(TEXTS)
    (path,) = cached_files(tmp_path)
    np.save(path, expected[:2])
    np.testing.assert_array_equal(load_cached_encoder("minilm", "cpu").encode(TEXTS), expected)


def test_a_cache_that_cannot_be_written_is_ignored(
    loader: Loader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file, where a folder should be")
    np.testing.assert_array_equal(load_cached_encoder("minilm", "cpu").encode(TEXTS), NGrams().encode(TEXTS))

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setenv("HGLD_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr(np, "save", full)
    np.testing.assert_array_equal(load_cached_encoder("minilm", "cpu").encode(TEXTS), NGrams().encode(TEXTS))
    assert len(loader.batches) == 2
    assert not list((tmp_path / "other" / "text-vectors").glob("*"))


def test_oldest_files_make_room(loader: Loader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "MAX_FILES", 2)
    encoder = load_cached_encoder("minilm", "cpu")
    for age, text in enumerate(["a", "b", "c"]):
        encoder.encode([text])
        newest = max(cached_files(tmp_path), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, (age, age))
    assert len(cached_files(tmp_path)) == 2
    encoder.encode(["c"])
    encoder.encode(["a"])
    assert loader.batches == [["a"], ["b"], ["c"], ["a"]]


def test_spelling_is_not_cached_and_names_are_checked(loader: Loader, tmp_path: Path) -> None:
    load_cached_encoder("ngrams").encode(TEXTS)
    assert not cached_files(tmp_path)
    with pytest.raises(ConfigurationError, match='no encoder is called "bert"'):
        load_cached_encoder("bert")
