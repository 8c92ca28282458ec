"""Format the output of ``hgld search`` and ``hgld export-embeddings``."""

from __future__ import annotations

from hgld.cli.render import aligned
from hgld.search.faiss_index import IndexRecord
from hgld.search.searcher import Answers


def format_answers(answers: Answers) -> str:
    """Format each query: its answer with the shares of votes, coarsest level first, and its nearest images."""
    gallery, blocks = answers.gallery, []
    for row in range(len(answers)):
        levels = [f"{level.name} {level.share:.2f}" for level in reversed(answers.answer(row))]
        if rejection := answers.rejection(row):
            answer = "; ".join([rejection, *([", ".join(levels)] if levels else [])])
        else:
            answer = ", ".join(levels) or "no labels"
        title = f"{answers.query_ids[row]}: {answer}"
        results = [
            [rank, f"{score:.3f}", str(gallery.ids[position]), *gallery.names_of(position)]
            for rank, (position, score, _) in enumerate(answers.results(row), start=1)
        ]
        results = [[*cells, *[""] * (3 + gallery.n_levels - len(cells))] for cells in results]
        lines = aligned(["", "score", "id", *gallery.level_names], results)
        blocks.append("\n".join([title, *(f"  {line}" for line in lines)]))
    return "\n\n".join(blocks)


def format_index(record: IndexRecord) -> str:
    """Format what an index holds, how many of the nearest images it finds, and how fast."""
    return (
        f"{record.description}: {record.images:,} images of {record.dim:,} dimensions\n"
        f"recall@10 {record.recall:.3f} against exact search, {record.speedup:.1f} times as fast, for "
        f"{record.queries:,} images of the gallery"
    )
