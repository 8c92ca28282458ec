"""Format the output of ``hgld search``."""

from __future__ import annotations

from hgld.cli.render import aligned
from hgld.search.searcher import Answers


def format_answers(answers: Answers) -> str:
    """Format each query: its answer with the shares of votes, coarsest level first, and its nearest images."""
    gallery, blocks = answers.gallery, []
    for row in range(len(answers)):
        levels = [f"{level.name} {level.share:.2f}" for level in reversed(answers.answer(row))]
        title = f"{answers.query_ids[row]}: {', '.join(levels) or 'no labels'}"
        results = [
            [rank, f"{score:.3f}", str(gallery.ids[position]), *gallery.names(gallery.labels[position])]
            for rank, (position, score, _) in enumerate(answers.results(row), start=1)
        ]
        results = [[*cells, *[""] * (3 + gallery.n_levels - len(cells))] for cells in results]
        lines = aligned(["", "score", "id", *gallery.level_names], results)
        blocks.append("\n".join([title, *(f"  {line}" for line in lines)]))
    return "\n\n".join(blocks)
