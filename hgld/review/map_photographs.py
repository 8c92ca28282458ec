"""Photographs for the page of clusters, which is one file: small, and limited to a total size."""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from hgld.errors import InputError
from hgld.figures.label_map import MapPhotograph
from hgld.figures.photographs import make_thumbnail
from hgld.review.photographs import LabelPhotographs, Photograph, open_photographs
from hgld.tables import input_digests

log = logging.getLogger(__name__)

#: Photographs per label, and size of all of them together in characters: about 1,250 photographs.
PER_LABEL, MAX_CHARACTERS = 3, 5_000_000
_WIDTH, _HEIGHT, _QUALITY = 128, 96, 60
#: Photographs of a label that are tried at most, because some may be damaged.
_TRIED = 2 * PER_LABEL


@dataclass(frozen=True, eq=False)
class MapPhotographs:
    """Photographs of labels as ``data:`` URLs.

    Args:
        photographs: Photographs of all labels.
        digests: SHA-256 of the files that decide which photographs are shown, by role.
    """

    photographs: LabelPhotographs
    digests: Mapping[str, str]

    def of_labels(
        self, label_ids: Sequence[str], *, per_label: int = PER_LABEL, max_characters: int = MAX_CHARACTERS
    ) -> dict[str, list[MapPhotograph]]:
        """Return photographs by label_id: one of each label in turn, then a second of each, until the limit.

        Args:
            label_ids: Labels, the most important first.
            per_label: Largest number of photographs of a label.
            max_characters: Largest length of all URLs together.
        """
        rounds = [
            (label_id, iter(photographs))
            for label_id in label_ids
            if (photographs := self.photographs.of_label(label_id, 0, _TRIED))
        ]
        chosen: dict[str, list[MapPhotograph]] = {}
        left = max_characters
        for _ in range(per_label):
            for label_id, waiting in rounds:
                made = next(islice(filter(None, map(self._embed, waiting)), 1), None)
                if made is None:
                    continue
                left -= len(made.url)
                if left < 0:
                    return chosen
                chosen.setdefault(label_id, []).append(made)
        return chosen

    def _embed(self, photograph: Photograph) -> MapPhotograph | None:
        """Return the photograph with its pixels; None, after a warning, if it cannot be shown."""
        try:
            data = self.photographs.read(photograph.image_id)
            jpeg = make_thumbnail(data, _WIDTH, _HEIGHT, crop=True, quality=_QUALITY)
        except (InputError, OSError) as error:
            log.warning("the photograph %s is left out: %s", photograph.image_id, error)
            return None
        return MapPhotograph(photograph.landmark, f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}")


def open_map_photographs(
    images: Path | None, clean: Path, image_landmarks: Sequence[Path | tuple[str, Path]] = ()
) -> MapPhotographs | None:
    """Open the photographs of all labels, see :func:`hgld.review.photographs.open_photographs`."""
    photographs = open_photographs(images, clean, image_landmarks)
    return None if photographs is None else MapPhotographs(photographs, input_digests(photographs=photographs.files))
