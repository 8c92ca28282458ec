"""Format the output of ``hgld scrape``."""

from __future__ import annotations

from dataclasses import asdict

from hgld.wikimedia.dump_extract import ExtractProgress
from hgld.wikimedia.scraper import ScrapeSummary


def format_scrape(summary: ScrapeSummary) -> str:
    """Format the cost of a scrape, and its landmarks by status and by route."""
    if summary.dump_date is None:
        per_landmark = f" ({summary.requests / summary.landmarks:.4f} per landmark)"
        origin = f"{summary.requests:,} requests{per_landmark}, {summary.retries:,} of them retries"
    else:
        origin = f"from a dump of {summary.dump_date:%Y-%m-%d}"
    lines = [
        f"{summary.landmarks:,} landmarks, {summary.classes:,} classes and superclasses; {origin}, "
        f"{summary.seconds:.1f} s",
    ]
    if summary.taken_over:
        lines.append(
            f"{summary.taken_over:,} landmarks were in the output before and keep their rows; "
            f"{summary.landmarks - summary.taken_over:,} are new or had failed"
        )
    if summary.changes is not None:
        changes = ", ".join(f"{count:,} {name}" for name, count in asdict(summary.changes).items())
        lines.append(f"since the earlier scrape: {changes}")
    width = max(map(len, (*summary.statuses, *summary.routes)))
    for title, counts in (("status", summary.statuses), ("route", summary.routes)):
        lines.append(f"{title:<{width}}   landmarks")
        for name, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
            lines.append(f"  {name:<{width}}{count:>10,} {count / summary.landmarks:>8.2%}")
    return "\n".join(lines)


def format_extract(extract: ExtractProgress) -> str:
    """Format how much of the extract of a dump there is."""
    if extract.complete:
        return "the extract of the dump is complete"
    return f"{extract.parts_done:,} of {extract.parts:,} parts of the dump are read"
