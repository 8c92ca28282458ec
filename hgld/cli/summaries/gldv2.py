"""Format the output of ``hgld fetch`` and ``hgld index-images``."""

from __future__ import annotations

from hgld.gldv2.fetch import FetchSummary
from hgld.gldv2.image_index import IndexSummary
from hgld.gldv2.photographs import FetchPlan, PhotographsSummary
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


def format_plan(plan: FetchPlan) -> str:
    """Format what a run is going to download or copy, and how long that takes."""
    work = plan.work
    left = plan.wanted - plan.there - work.absent
    counts = {"done before": plan.there, "not to be had": work.absent}
    known = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    size = byte_size(work.n_bytes)
    if work.kind == "commons":
        time = "" if work.seconds is None else f", {format_duration(work.seconds)} at the rate of requests"
        task = (
            f"{left:,} thumbnails {work.width} pixels wide from {work.place}: {work.requests:,} requests, "
            f"about {size}{time}"
        )
    elif work.kind == "mirror":
        task = (
            f"{left:,} to be searched in {work.shards:,} tar files from {work.place}: about {size} are downloaded, "
            "one tar file after the other, and only these photographs kept"
        )
    else:
        task = f"{left:,} to be copied from {work.shards:,} tar files of {work.place} ({size})"
    return f"{plan.wanted:,} photographs{f' ({known})' if known else ''}; {task}"


def format_photographs(summary: PhotographsSummary) -> str:
    """Format the numbers of photographs by status."""
    others = ", ".join(f"{n:,} {name}" for name, n in sorted(summary.statuses.items()) if name != "ok")
    return (
        f"{sum(summary.statuses.values()):,} photographs: {summary.statuses.get('ok', 0):,} in the folder"
        f"{f', {others}' if others else ''}; {summary.fetched:,} added "
        f"({byte_size(summary.n_bytes)} in {summary.seconds:.1f} s)"
    )


def format_duration(seconds: float) -> str:
    """Format a duration.

    >>> format_duration(1_887), format_duration(20)
    ('31 minutes', '20 seconds')
    """
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5_400 else f"{seconds / 3600:.1f} hours"
