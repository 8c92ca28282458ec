"""Publish a hierarchy: data files, dataset card, datasheet, Croissant metadata and checksums in one folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgld.lazy import lazy_exports

if TYPE_CHECKING:
    from hgld.release.checksums import verify_checksums
    from hgld.release.publish import ReleaseConfig, ReleaseSummary, write_release

__all__ = ["ReleaseConfig", "ReleaseSummary", "verify_checksums", "write_release"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "ReleaseConfig": "publish",
        "ReleaseSummary": "publish",
        "verify_checksums": "checksums",
        "write_release": "publish",
    },
)
