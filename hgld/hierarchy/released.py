"""The labels of H-GLDv2 as they were released, from the host of GLDv2 into a cache.

The addresses are those that the README of github.com/cvdfoundation/google-landmark gives. The host publishes
checksums of the tar files with photographs, but none of these files. So the first download cannot be compared with
anything but the size that the server says; its SHA-256 is kept, and the cached file is held against it every time.
"""

from __future__ import annotations

import os
from pathlib import Path

from hgld.errors import SourceError
from hgld.gldv2.download import ChecksumError, DownloadConfig, Downloader
from hgld.gldv2.files import HOST_URL
from hgld.hierarchy.official import FILES
from hgld.io.files import atomic_write, sha256_of
from hgld.progress import Progress

#: What :func:`hgld.load_hierarchy` calls them.
NAME = "h-gldv2"


def released_files(folder: Path | None = None, *, progress: Progress | None = None) -> list[Path]:
    """The released CSV files of both splits, downloaded where they are not in the cache.

    Args:
        folder: the cache; by default ``h-gldv2`` in the folder that the environment variable HGLD_CACHE
            names, else in ``~/.cache/hgld``.
        progress: told of bytes.

    Raises:
        SourceError: they cannot be had, or the host has other files than those that were cached first.
    """
    folder = folder or Path(os.environ.get("HGLD_CACHE", Path.home() / ".cache" / "hgld")) / NAME
    host = os.environ.get("HGLD_GLDV2_URL", HOST_URL).rstrip("/")
    # Someone waits for it: no use in being patient for long.
    downloader = Downloader(DownloadConfig(max_retries=2))
    files = []
    for name in FILES.values():
        path, digest = folder / name, folder / f"{name}.sha256"
        known = digest.read_text(encoding="ascii").split()[0] if digest.is_file() else None
        try:
            downloader.download(f"{host}/metadata/{name}", path, sha256=known, progress=progress)
        except ChecksumError as error:
            raise SourceError(
                f"{path} is damaged, and what the host has now is not what it was: {error}\nto take the host's "
                f"files as they are now, delete {folder}"
            ) from error
        except SourceError as error:
            raise SourceError(
                f"the released labels of H-GLDv2 could not be downloaded: {error}\nwithout a network, bring "
                f"{' and '.join(FILES.values())} here by other means and load their folder"
            ) from error
        if known is None:
            with atomic_write(digest) as draft:
                draft.write_text(f"{sha256_of(path)}  {name}\n", encoding="ascii")
        files.append(path)
    return files
