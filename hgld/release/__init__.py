"""Publish a hierarchy: data files, dataset card, datasheet, Croissant metadata and checksums in one folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgld.lazy import lazy_exports

if TYPE_CHECKING:
    from hgld.release.checksums import verify_checksums
    from hgld.release.publish import ReleaseSummary, write_release
    from hgld.release.settings import ReleaseSettings, write_questions

__all__ = ["ReleaseSettings", "ReleaseSummary", "verify_checksums", "write_questions", "write_release"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "ReleaseSettings": "settings",
        "ReleaseSummary": "publish",
        "verify_checksums": "checksums",
        "write_questions": "settings",
        "write_release": "publish",
    },
)
