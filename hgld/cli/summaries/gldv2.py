"""Format the output of ``hgld fetch`` and ``hgld index-images``."""

from __future__ import annotations

from hgld.gldv2.fetch import FetchSummary
from hgld.gldv2.image_index import IndexSummary
from hgld.progress import byte_size


def format_fetch(summary: FetchSummary) -> str:
    """Format the numbers of files by their outcome."""
    n_files = summary.fetched + summary.existing + len(summary.failed)
    return (
        f"{n_files:,} files: {summary.fetched:,} downloaded "
        f"({byte_size(summary.n_bytes)} in {summary.seconds:.1f} s), "
        f"{summary.existing:,} already present, {summary.verified:,} verified by MD5, {len(summary.failed):,} failed"
    )


def format_index(summary: IndexSummary) -> str:
    """Format the numbers of photographs and tar files."""
    return (
        f"{summary.images:,} photographs in {summary.shards:,} tar files, {summary.read:,} of them read in "
        f"{summary.seconds:.1f} s; {summary.skipped:,} other members skipped"
    )
