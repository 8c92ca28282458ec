"""Format the output of ``hgld repack``."""

from __future__ import annotations

from hgld.cli.summaries.gldv2 import format_duration
from hgld.datasets.repack_config import RepackPlan, RepackSummary
from hgld.progress import byte_size


def format_repack_plan(plan: RepackPlan) -> str:
    """Format what a run is going to write, and how long that takes."""
    done = f" ({plan.done:,} done before)" * bool(plan.done)
    left = plan.images - plan.done
    if not left:
        return f"{plan.images:,} images{done}: nothing is left to do"
    time = format_duration(plan.cpu_seconds)
    return (
        f"{plan.images:,} images{done} to {plan.shards:,} tar files: about {byte_size(plan.n_bytes)} from "
        f"{byte_size(plan.source_bytes)}, {time} of processor time; {byte_size(plan.free_bytes)} are free"
    )


def format_repacked(summary: RepackSummary) -> str:
    """Format the numbers of images and tar files, and the images that could not be read."""
    skipped = len(summary.skipped)
    verified = "" if summary.verified is None else f", {summary.verified:,} verified by SHA-256"
    unreadable = f"\nleft out: {skipped:,} images that cannot be read, listed in skipped.csv" * bool(skipped)
    return (
        f"{summary.images:,} images, {summary.copies:,} of them as they were, in {summary.shards:,} tar files "
        f"({byte_size(summary.n_bytes)}), {summary.written:,} of these written in {summary.seconds:.1f} s"
        f"{verified}{unreadable}"
    )
