"""Publish a hierarchy: data files, dataset card, datasheet, Croissant metadata and checksums in one folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hgld.release.checksums import verify_checksums
    from hgld.release.publish import ReleaseConfig, ReleaseSummary, write_release

__all__ = ["ReleaseConfig", "ReleaseSummary", "verify_checksums", "write_release"]


def __getattr__(name: str) -> Any:
    """Import on first use, so that importing the room stays cheap."""
    if name == "verify_checksums":
        from hgld.release.checksums import verify_checksums

        return verify_checksums
    if name in __all__:
        from hgld.release import publish

        return getattr(publish, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
