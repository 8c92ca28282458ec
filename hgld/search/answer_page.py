"""The page of a search: queries with their answers, and their nearest photographs in frames coloured by level."""

from __future__ import annotations

from pathlib import Path

from hgld.inspection.level_styles import LevelStyle, level_styles
from hgld.inspection.photo_page import PageQuery, PageRanking, write_photo_page
from hgld.inspection.photos import Photo, PhotoSource
from hgld.inspection.thumbnails import FindImage
from hgld.search.gallery import Gallery
from hgld.search.searcher import Answers

#: What a rejected answer means, in one sentence for the readers of a page.
REJECTIONS = (
    "A label is left out where its rejection score is above the threshold that was fitted for the wanted precision."
)
#: What the shares on a page are, in one sentence for its readers.
SHARES = (
    "The number beside a label is its share of the votes of the nearest photographs, which count the more the more "
    "similar they are; it is not a calibrated probability."
)


def write_answer_page(
    answers: Answers,
    out: Path,
    query_image: FindImage,
    gallery_image: FindImage,
    *,
    title: str = "Search",
    thumbnail_size: int = 128,
) -> None:
    """Write a page of queries and their nearest photographs: one HTML file without scripts, thumbnails included.

    Args:
        answers: The answers.
        out: HTML file to write or replace.
        query_image: Returns the photograph of a query by its id.
        gallery_image: Returns the photograph of an image of the gallery by its id.
        title: Title of the page.
        thumbnail_size: Longer side of the thumbnails in pixels.
    """
    gallery = answers.gallery
    queries = []
    for row in range(len(answers)):
        shares = [(answer.name, answer.share) for answer in reversed(answers.answer(row))]
        ranking = PageRanking(answers.top_k, row, [])
        queries.append(PageQuery(row, [], [ranking], note=rejection_sentence(answers, row), votes=shares))
    source = PhotoSource(
        query=lambda row: Photo(answers.query_ids[row]),
        gallery=lambda position: gallery_photo(gallery, position),
        image=gallery_image,
        query_image=query_image,
    )
    write_photo_page(
        out,
        {"": queries},
        source,
        title=title,
        about=f"{len(answers):,} queries in {len(gallery):,} photographs.",
        explanation=(
            f"Below each query are the labels that its nearest photographs vote for. {explanation_of(answers)} The "
            "colour of a result is the level that it shares with this answer."
            if gallery.n_levels
            else "The photographs have no labels."
        ),
        levels=answer_levels(gallery),
        thumbnail_size=thumbnail_size,
    )


def explanation_of(answers: Answers) -> str:
    """Return what shares are, and rejections where answers may be rejected."""
    return SHARES if answers.rejections is None else f"{SHARES} {REJECTIONS}"


def rejection_sentence(answers: Answers, row: int) -> str | None:
    """Return "No such landmark." with the score and the threshold; None for an accepted query."""
    text, rejections = answers.rejection(row), answers.rejections
    if not text or rejections is None:
        return None
    threshold = rejections.thresholds[0]
    score = f"rejection score {rejections.scores[row, 0]:.4g}"
    reason = f"{score} above {threshold:.4g}" if threshold is not None else f"{score}, and no score is accepted"
    return f"{text[0].upper()}{text[1:]}: {reason}."


def gallery_photo(gallery: Gallery, position: int) -> Photo:
    """Return the description of an image of a gallery."""
    names = gallery.names_of(position)
    return Photo(str(gallery.ids[position]), names, has_labels=bool(names))


def answer_levels(gallery: Gallery) -> list[LevelStyle]:
    """Return the styles of the levels that a result can share with an answer; none without labels."""
    return level_styles(gallery.n_levels, gallery.level_names) if gallery.n_levels else []
