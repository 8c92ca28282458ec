"""Files at addresses of fsspec: ``s3://``, ``gs://``, ``hf://``, ``http://`` and ``https://``.

An address may stand where a path does. ``pathlib`` makes one slash of two, which :func:`address` undoes, so code that
hands paths on need not know. Tables and embeddings are copied to the cache (:func:`local_copy`), as Arrow and memory
maps want files; images, and those in tar files, are read one by one where they are (:func:`read_bytes`).
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hgld.errors import ConfigurationError, InputError, SourceError
from hgld.io.files import atomic_write, cache_folder

_ADDRESS = re.compile(r"(s3|gs|hf|https?):/{1,2}([^/].*)")


def address(path: Path) -> str | None:
    """Return the address that a path stands for; None if it is on this machine.

    >>> address(Path("s3://bucket/train.csv")), address(Path("data/train.csv"))
    ('s3://bucket/train.csv', None)
    """
    match = _ADDRESS.fullmatch(path.as_posix())
    return f"{match[1]}://{match[2]}" if match else None


def local_copy(path: Path) -> Path:
    """Return a file in the cache with the content of a remote one, downloaded if that has changed.

    Of embeddings, their ids and records are copied, too; of a folder, as of embeddings in parts, all files in it.
    A path on this machine is returned as it is.

    Raises:
        InputError: There is no such file.
        ConfigurationError: A package for the protocol is not installed.
        SourceError: The server cannot be reached, or refuses access.
    """
    if (url := address(path)) is None:
        return path
    copy = _copies() / path.as_posix().replace(":/", "/", 1)
    with _open(url) as (files, remote):
        if is_folder(path):
            for name in files.ls(remote, detail=False):
                _download(files, name, copy / name.rsplit("/", 1)[-1])
            return copy
        _download(files, remote, copy)
        if path.suffix in (".npy", ".safetensors"):
            stem = remote.removesuffix(path.suffix)
            for ending in (".ids.txt", ".made.json", f".deviations{path.suffix}"):
                if files.exists(stem + ending):
                    _download(files, stem + ending, copy.with_suffix(ending))
    return copy


def is_folder(path: Path) -> bool:
    """Return whether a path is that of a folder; remote ones are those without a suffix, which asks no server."""
    url = address(path)
    return path.is_dir() if url is None else not (url.count("/") > 2 and path.suffix)


def files_below(folder: Path) -> dict[str, str]:
    """Return the paths of all files below a remote folder, relative to it and sorted, with what identifies each."""
    url = str(address(folder))
    with _open(url) as (files, remote):
        found = files.find(remote, detail=True)
        below = {name.removeprefix(remote).lstrip("/"): _digest(info) for name, info in found.items()}
    if not below:
        raise InputError(f"{url}: no such folder, or no files in it")
    return {name: below[name] for name in sorted(below) if not name.startswith(".") and "/." not in name}


def folder_of(path: Path) -> Path:
    """Return the folder of a file; of a copy in the cache, that of the original."""
    if not path.is_relative_to(_copies()):
        return path.parent
    protocol, *parts = path.relative_to(_copies()).parent.parts
    return Path(f"{protocol}:", *parts)


def absolute(path: Path) -> Path:
    """Return the absolute path of a file on this machine; an address is one."""
    return path if address(path) else path.absolute()


def read_bytes(path: Path, start: int | None = None, end: int | None = None) -> bytes:
    """Return the content of a file, or of its bytes from ``start`` to ``end``.

    Raises:
        OSError: It is a file on this machine that cannot be read, or there is no such remote file.
        SourceError: The server cannot be reached, or refuses access.
    """
    if (url := address(path)) is None:
        return path.read_bytes()[start:end]
    try:
        with _open(url) as (files, remote):
            return bytes(files.cat_file(remote, start=start, end=end))
    except InputError as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url) from error


def size_of(path: Path) -> int:
    """Return the size of a file in bytes; 0 if there is none, or its server does not say."""
    if (url := address(path)) is None:
        return path.stat().st_size if path.is_file() else 0
    with suppress(InputError), _open(url) as (files, remote):
        return int(files.size(remote) or 0)
    return 0


def require_local(path: Path) -> None:
    """Raise a :class:`ConfigurationError` if something is to be written at a remote address."""
    if (url := address(path)) is not None:
        raise ConfigurationError(f"{url}: results are written on this machine; name a local path, and copy it")


def _copies() -> Path:
    return cache_folder("remote").absolute()


def _download(files: Any, remote: str, copy: Path) -> None:
    """Copy a file, unless the copy is that of what the server describes."""
    described = copy.with_name(f".{copy.name}.source")
    digest = _digest(files.info(remote))
    if not (copy.is_file() and described.is_file() and described.read_text() == digest):
        with atomic_write(copy) as draft:
            files.get_file(remote, str(draft))
        with atomic_write(described) as draft:
            draft.write_text(digest)


def _digest(info: Mapping[str, Any]) -> str:
    """Return a digest of what a server says of a file: its name, size and, most often, a time or a digest."""
    return hashlib.sha256(repr(sorted(info.items(), key=str)).encode()).hexdigest()


@contextmanager
def _open(url: str) -> Iterator[tuple[Any, str]]:
    """Yield the file system of an address, and the path in it; say in a line what is wrong with either."""
    from fsspec.core import url_to_fs

    try:
        yield url_to_fs(url)
    except FileNotFoundError as error:
        raise InputError(f"{url}: no such file or bucket") from error
    except ImportError as error:
        raise ConfigurationError(f"{url}: {error}") from error  # which names the package
    except Exception as error:  # of botocore, aiohttp, gcsfs and others
        reason = " ".join(str(error).split()) or type(error).__name__
        raise SourceError(f"{url}: cannot be read: {reason}") from error
