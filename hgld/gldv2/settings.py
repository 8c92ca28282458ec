"""Settings of ``hgld fetch``, in a module that is fast to import for help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hgld.errors import ConfigurationError
from hgld.wikimedia.settings import ClientConfig

HOST_URL = "https://s3.amazonaws.com/google-landmark"
#: Number of tar files of photographs by split.
N_SHARDS = {"train": 500, "index": 100, "test": 20}


@dataclass(frozen=True)
class DownloadConfig:
    """Time limits and retries of downloads.

    Args:
        max_retries: Largest number of retries in a row without progress.
        timeout_s: Seconds within which a server must begin to answer, and send each further 64 KiB.
        backoff_s: Seconds before the first retry; the wait doubles with each further retry.
    """

    max_retries: int = 5
    timeout_s: float = 60.0
    backoff_s: float = 1.0

    def __post_init__(self) -> None:
        if self.max_retries < 0 or self.timeout_s <= 0 or self.backoff_s < 0:
            raise ConfigurationError(
                "`max_retries` and `backoff_s` cannot be negative, and `timeout_s` must be above 0"
            )


@dataclass(frozen=True)
class FetchConfig:
    """Settings of a download of the dataset's files.

    Args:
        split: Split to download: train, index or test.
        metadata: Download the CSV files.
        images: Download the tar files of photographs.
        shards: Numbers of the tar files to download, such as 0:4 or 0,3 on the command line; train
            has 0:499, index 0:99, test 0:19. Default: all.
        workers: Number of parallel downloads, 1 to 16.
        base_url: Address of the dataset's host or a mirror.
        verify: Verify existing files by MD5, and download damaged ones again.
        force: Download existing files again.
        download: Time limits and retries.
    """

    split: str
    metadata: bool = False
    images: bool = False
    shards: Sequence[int] | None = None
    workers: int = 4
    base_url: str = HOST_URL
    verify: bool = False
    force: bool = False
    download: DownloadConfig = field(default_factory=DownloadConfig)

    def __post_init__(self) -> None:
        if self.split not in N_SHARDS:
            raise ConfigurationError(
                f'`split` is "{self.split}"; expected one of {", ".join(N_SHARDS)}'
            )
        if not (self.metadata or self.images):
            raise ConfigurationError("nothing to fetch: ask for `metadata`, `images` or both")
        if self.shards is not None and not self.images:
            raise ConfigurationError(
                "`shards` requires `images`, as only the photographs are in tar files"
            )
        if not 1 <= self.workers <= 16:
            raise ConfigurationError(f"`workers` is {self.workers}; expected 1 to 16")
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(
                f'`base_url` is "{self.base_url}"; expected a URL such as {HOST_URL}'
            )


@dataclass(frozen=True)
class PhotographsConfig:
    """Settings of a download of single photographs.

    Args:
        source: ``commons``; ``shards`` for the tar files of the dataset's host or a mirror; or a
            folder with tar files, or the table of ``hgld index-images`` in one.
        split: Split of the photographs, which names the folder of the tar files.
        width: Width of the thumbnails from Commons in pixels; narrower photographs keep their size.
        shards: Numbers of the tar files to search, for ``shards``.
        base_url: Address of the dataset's host or a mirror, for ``shards``.
        client: Address of Commons, and limits on requests to it.
        download: Time limits and retries of downloads of tar files.
    """

    source: str | Path = "commons"
    split: str = "train"
    width: int = 500
    shards: tuple[int, ...] | None = None
    base_url: str = HOST_URL
    client: ClientConfig | None = None
    download: DownloadConfig = field(default_factory=DownloadConfig)

    def __post_init__(self) -> None:
        if self.split not in N_SHARDS:
            raise ConfigurationError(
                f'`split` is "{self.split}"; expected one of {", ".join(N_SHARDS)}'
            )
        if self.source == "commons" and self.client is None:
            raise ConfigurationError("`client` is needed for photographs from Commons")
        if self.source not in ("commons", "shards") and not Path(self.source).exists():
            raise ConfigurationError(
                f"{self.source}: no such file or folder; expected commons, shards, a folder of tar files, or the "
                "table of hgld index-images in one"
            )
        if self.source != "shards" and self.shards is not None:
            raise ConfigurationError(
                "`shards` are tar files of a mirror; without one, leave them out"
            )

    def origin(self) -> dict[str, Any]:
        """Return the settings that all photographs of a folder share, as JSON."""
        if self.source == "commons":
            assert self.client is not None
            return {
                "source": "commons",
                "split": self.split,
                "width": self.width,
                "url": self.client.commons_url,
            }
        return {"source": "tar files", "split": self.split}
