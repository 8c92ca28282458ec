"""What an annotator can look at besides the labels and groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from hgld.review.inputs import ReviewInputs
from hgld.review.label_facts import FactBook
from hgld.review.photographs import LabelPhotographs, open_photographs


@dataclass(frozen=True)
class References:
    """Sources of what the page shows of a label besides its row.

    Args:
        facts: Classes and landmarks of the labels.
        guideline: Guideline for annotators, in Markdown; None if there is none.
        photographs: Photographs of the landmarks; None to show none.
    """

    facts: FactBook
    guideline: Path | None = None
    photographs: LabelPhotographs | None = None


def open_references(
    inputs: ReviewInputs,
    clean: pa.Table,
    classes: Sequence[pa.Table],
    images: Path | None = None,
    image_landmarks: Sequence[Path | tuple[str, Path]] = (),
) -> References:
    """Open the references of a review.

    Args:
        inputs: Paths of the input files.
        clean: ``clean`` table.
        classes: ``classes`` tables.
        images: Table of ``hgld index-images``; None to show no photographs.
        image_landmarks: Files with the landmark of each image; see :func:`hgld.review.photographs.open_photographs`.

    Raises:
        ConfigurationError: The landmarks of images are not known.
        InputError: The photographs cannot be opened.
    """
    photographs = open_photographs(images, inputs.clean, image_landmarks)
    return References(FactBook(clean, classes), inputs.guideline, photographs)
