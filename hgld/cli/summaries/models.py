"""Format the output of ``hgld embed-images`` and ``hgld push-model``."""

from __future__ import annotations

from hgld.errors import indented_list
from hgld.models.image_embedding import EmbedImagesSummary, EmbedPartSummary
from hgld.progress import byte_size
from hgld.training.publish_model import PushSummary


def format_embed_images(summary: EmbedImagesSummary) -> str:
    """Format the counts and the throughput of a run."""
    of_all = f" of {summary.images + len(summary.skipped):,}" if summary.skipped else ""
    text = f"{summary.images:,}{of_all} images embedded in {summary.dim:,} dimensions; "
    text += _throughput(summary, "tried" if summary.skipped else "of them")
    if summary.zeros:
        text += (
            f"\n{len(summary.zeros):,} images have a vector of zeros, whose cosine similarity with all others is 0; "
        )
        text += f"are they blank?\n{indented_list(summary.zeros, limit=5)}"
    if summary.skipped:
        text += f"\n{len(summary.skipped):,} images could not be read and have no embedding, see "
        text += f"{summary.skipped_file}:\n"
        text += indented_list(summary.skipped, limit=5)
    return text


def format_embed_part(summary: EmbedPartSummary) -> str:
    """Format the counts and the throughput of a part."""
    text = f"part {summary.part}: {summary.images:,} images; {_throughput(summary, 'of them')}"
    if summary.skipped:
        text += f"\n{summary.skipped:,} images could not be read and are listed when the parts are merged"
    return text


def _throughput(summary: EmbedImagesSummary | EmbedPartSummary, verb: str) -> str:
    rate = summary.embedded / summary.seconds
    text = f"{summary.embedded:,} {verb} in this run, {summary.seconds:.1f} s, {rate:.1f} images/s"
    if summary.waiting_share is not None:
        text += f", {summary.waiting_share:.0%} of the time waiting for images"
    return text


def format_push(summary: PushSummary) -> str:
    """Format what was published."""
    evaluations = "1 evaluation" if summary.evaluations == 1 else f"{summary.evaluations} evaluations"
    return f"{summary.model}, {byte_size(summary.n_bytes)}, with {evaluations} on its card"
