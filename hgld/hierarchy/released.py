"""The released labels of H-GLDv2, downloaded from the host of GLDv2 into a cache.

The addresses are those in the README of github.com/cvdfoundation/google-landmark. The host publishes checksums of
the tar files of photographs, but not of these files: the first download can only be compared with the size that the
server reports. Its SHA-256 is stored, and the cached file is verified against it on every use.
"""

from __future__ import annotations

import os
from pathlib import Path

from hgld.errors import ConfigurationError, SourceError
from hgld.gldv2.download import ChecksumError, DownloadConfig, Downloader
from hgld.gldv2.files import HOST_URL
from hgld.hierarchy.official import OFFICIAL_FILES
from hgld.io.files import atomic_write, cache_folder, sha256_of
from hgld.progress import Progress

#: Name of the released labels for :func:`hgld.load_hierarchy`.
H_GLDV2 = "h-gldv2"


def released_files(folder: Path | None = None, *, progress: Progress | None = None) -> list[Path]:
    """Return the released CSV files of both splits, downloading those that are not in the cache.

    Args:
        folder: Cache; by default ``h-gldv2`` in the user's cache folder, see :func:`hgld.io.files.cache_folder`.
        progress: Reports downloaded bytes.

    Raises:
        SourceError: The files cannot be downloaded, or the files of the host changed since they were cached.
    """
    folder = folder or cache_folder(H_GLDV2)
    host = os.environ.get("HGLD_GLDV2_URL", HOST_URL).rstrip("/")
    # Few retries: this runs interactively.
    downloader = Downloader(DownloadConfig(max_retries=2))
    paths = []
    for name in OFFICIAL_FILES.values():
        path, digest_file = folder / name, folder / f"{name}.sha256"
        digest = digest_file.read_text(encoding="ascii").split()[0] if digest_file.is_file() else None
        try:
            downloader.download(f"{host}/metadata/{name}", path, sha256=digest, progress=progress)
        except ChecksumError as error:
            raise SourceError(
                f"{path} is damaged, and the file of the host has changed: {error}\nto use the current files of the "
                f"host, delete {folder}"
            ) from error
        except (ConfigurationError, SourceError) as error:
            raise SourceError(
                f"the released labels of H-GLDv2 could not be downloaded: {error}\nwithout a network, obtain "
                f"{' and '.join(OFFICIAL_FILES.values())} elsewhere and load their folder"
            ) from error
        if digest is None:
            with atomic_write(digest_file) as draft:
                draft.write_text(f"{sha256_of(path)}  {name}\n", encoding="ascii")
        paths.append(path)
    return paths
