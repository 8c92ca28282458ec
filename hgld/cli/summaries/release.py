"""Format the output of ``hgld release``."""

from __future__ import annotations

from hgld.release.publish import ReleaseSummary


def format_release(summary: ReleaseSummary) -> str:
    """Format the counts of a release."""
    splits = ", ".join(f"{split} {count:,}" for split, count in summary.landmarks.items())
    unchecked = "Croissant not checked (pip install '.[croissant]' in a clone of hgld)"
    croissant = "valid Croissant" if summary.validated else unchecked
    return f"{splits} landmarks in {summary.groups:,} groups; {summary.files} files, {croissant}"
