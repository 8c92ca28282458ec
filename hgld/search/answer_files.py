"""Answers of a search as tables, JSON and a page, and the parts that both pages of answers share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from hgld.errors import counted
from hgld.figures.style import LevelStyle, level_styles
from hgld.inspection.photos import FindImage, Photo, PhotoSource
from hgld.inspection.query_pages import PageQuery, PageRanking, write_photo_page
from hgld.io.files import require_own_json, write_text
from hgld.io.writable import require_suffix
from hgld.search.gallery import Gallery
from hgld.search.searcher import Answers
from hgld.tables import Provenance, write_results

#: Explanation of the shares of votes for the readers of a page.
SHARES = (
    "The number beside a label is its share of the votes of the nearest photographs, which count the more the more "
    "similar they are; it is not a calibrated probability."
)


def write_answers(path: Path, answers: Answers, provenance: Provenance) -> None:
    """Write answers in the format of the suffix, ``.csv``, ``.parquet`` or ``.json``.

    Raises:
        ConfigurationError: The file has another suffix.
    """
    require_suffix(path, ".csv", ".parquet", ".json")
    if path.suffix != ".json":
        write_results(path, answers_table(answers), "search/1", provenance)
        return
    require_own_json(path, ("levels", "queries"))
    write_text(path, answers_to_json(answers) + "\n")


def answers_table(answers: Answers) -> pa.Table:
    """Return a table with a row for each query and result.

    Columns: ``query``; ``rank``, from 1; ``id`` of the image in the gallery; ``score``, the cosine or
    minus the distance; ``level``, 0 to L, that the image shares with the answer. Then, for each level,
    finest first, ``name`` with the label of the image, ``answer_name`` with the label of the query, and
    ``share_name`` with this label's share of the votes; null for unlabelled images and queries.
    """
    gallery = answers.gallery
    rows = []
    for query in range(len(answers)):
        answer: dict[str, Any] = {}
        for level_answer in answers.answer(query):
            answer[f"answer_{level_answer.level}"] = level_answer.name
            answer[f"share_{level_answer.level}"] = level_answer.share
        for rank, (position, score, level) in enumerate(answers.results(query), start=1):
            row = {
                "query": answers.query_ids[query],
                "rank": rank,
                "id": str(gallery.ids[position]),
                "score": score,
                "level": level,
            }
            row.update(zip(gallery.level_names, gallery.names_of(position), strict=False))
            row.update(answer)
            rows.append(row)
    fields = [
        ("query", pa.string()),
        ("rank", pa.int64()),
        ("id", pa.string()),
        ("score", pa.float32()),
        ("level", pa.int64()),
    ]
    for name in gallery.level_names:
        fields += [
            (name, pa.string()),
            (f"answer_{name}", pa.string()),
            (f"share_{name}", pa.float64()),
        ]
    return pa.Table.from_pylist(rows, pa.schema(fields))


def answers_to_json(answers: Answers) -> str:
    """Format answers as JSON.

    ``{"levels": [...], "queries": [...]}``, with the names of the levels, finest first, and for each
    query ``id``; ``answer``, a list of ``level``, ``name`` and ``share``, finest first, empty if no near
    image has labels; and ``results``, a list of ``rank``, ``id``, ``score``, ``level`` and ``labels``.
    """
    gallery = answers.gallery
    queries = []
    for query in range(len(answers)):
        results: list[dict[str, Any]] = []
        for rank, (position, score, level) in enumerate(answers.results(query), start=1):
            result = {
                "rank": rank,
                "id": str(gallery.ids[position]),
                "score": _rounded(score),
                "level": level,
                "labels": list(gallery.names_of(position)),
            }
            results.append(result)
        answer = []
        for level_answer in answers.answer(query):
            answer.append({**vars(level_answer), "share": _rounded(level_answer.share)})
        queries.append({"id": answers.query_ids[query], "answer": answer, "results": results})
    document = {"levels": list(gallery.level_names), "queries": queries}
    return json.dumps(document, indent=2, ensure_ascii=False)


def _rounded(value: float) -> float:
    """Return a number with six digits, the precision of float32."""
    return float(f"{value:.6g}")


def write_answer_page(
    answers: Answers,
    out: Path,
    query_image: FindImage,
    gallery_image: FindImage,
) -> None:
    """Write a page of queries and their nearest photographs.

    The page is one HTML file without scripts that includes thumbnails.
    """
    gallery = answers.gallery
    queries = []
    for row in range(len(answers)):
        shares = [(answer.name, answer.share) for answer in reversed(answers.answer(row))]
        ranking = PageRanking(answers.top_k, row, [])
        queries.append(PageQuery(row, [], [ranking], votes=shares))
    source = PhotoSource(
        query=lambda row: Photo(answers.query_ids[row]),
        gallery=lambda position: gallery_photo(gallery, position),
        image=gallery_image,
        query_image=query_image,
    )
    n_queries = "1 query" if len(answers) == 1 else f"{len(answers):,} queries"
    explanation = "The photographs have no labels."
    if gallery.n_levels:
        explanation = (
            f"Below each query are the labels that its nearest photographs vote for. {SHARES} The "
            "colour of a result is the level that it shares with this answer."
        )
    write_photo_page(
        out,
        {"": queries},
        source,
        title="Search",
        about=f"{n_queries} in {counted(len(gallery), 'photograph')}.",
        explanation=explanation,
        levels=answer_levels(gallery),
    )


def gallery_photo(gallery: Gallery, position: int) -> Photo:
    """Return the description of an image of a gallery."""
    names = gallery.names_of(position)
    return Photo(str(gallery.ids[position]), names, has_labels=bool(names))


def answer_levels(gallery: Gallery) -> list[LevelStyle]:
    """Return the styles of the levels that a result can share with an answer; empty without labels."""
    if not gallery.n_levels:
        return []
    return level_styles(gallery.n_levels, gallery.level_names)
