"""Answers to GLDv2's recognition test images from embeddings: the landmark of the nearest training image, scored."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.evaluate import EvaluationConfig
from hgld.evaluation.evaluation_files import EvaluationInputs
from hgld.evaluation.open_set import open_set_answers
from hgld.evaluation.rejection_config import RejectionConfig
from hgld.gldv2.recognition import LandmarkPrediction, RecognitionSolution
from hgld.hierarchy.label_sets import LabelSets
from hgld.tables.embeddings import Embeddings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LandmarkAnswers:
    """Predicted landmarks of test images.

    Args:
        image_ids: Ids of all test images, those that are not scored included.
        predictions: Prediction by test image, ignored ones included; those without a prediction are absent.
        counts: Counts of images that were left out.
    """

    image_ids: tuple[str, ...]
    predictions: Mapping[str, LandmarkPrediction]
    counts: Mapping[str, int]


def answer_test_images(
    inputs: EvaluationInputs, solution: RecognitionSolution, config: EvaluationConfig
) -> LandmarkAnswers:
    """Answer the test images that are embedded by the labelled gallery images that are no test images.

    The answer is that of the rejection score (by vote, or the landmark of the nearest image), and its confidence is
    minus the score. Test images that are not embedded, such as unreadable ones, are not answered; a warning says so.

    Args:
        inputs: Embeddings of the test images and of the gallery, with landmark ids or a file of labels.
        solution: Ground truth, which says what the test images are.
        config: How to search the gallery, and the rejection score; the cosine to the nearest image by default.

    Raises:
        InputError: Files do not fit each other, or no gallery image is left.
        ConfigurationError: Test images have no ids, or the score needs other inputs.
    """
    test_ids = sorted(solution.scored_ids | solution.ignored_ids)
    queries, rows = _embedded(inputs.queries, test_ids)
    not_embedded = solution.scored_ids.difference(queries)
    if not_embedded:
        log.warning(
            "%s: %s of %s scored test images are not embedded, such as %s; they have no prediction",
            inputs.queries.path,
            f"{len(not_embedded):,}",
            f"{len(solution.scored_ids):,}",
            min(not_embedded),
        )
    labels = inputs.gallery_labels()
    if isinstance(labels.labelling, LabelSets):
        raise InputError("the gallery has several labels per image; recognition needs the landmark id of each image")
    in_gallery = _test_images_in_gallery(inputs.gallery, test_ids)
    mask = labels.labelled & ~in_gallery
    if not mask.any():
        raise InputError(f"{inputs.gallery.path}: no image is left that has a landmark and is no test image")
    gallery = inputs.gallery.vectors
    rejection = config.rejection or RejectionConfig()
    detector = rejection.fitted(gallery, labels.labels, mask)
    own = _share(len(rows), config.ranking.queries_per_block(len(gallery)), *config.processes.part)
    predictions: dict[str, LandmarkPrediction] = {}
    if own.stop > own.start:
        vectors = inputs.queries.vectors[torch.from_numpy(rows[own])]
        nothing = np.full((len(vectors), labels.labels.shape[1]), -1)
        answers = open_set_answers(
            detector, gallery, labels.labels, vectors, nothing, gallery_mask=mask, config=config.ranking
        )
        columns = zip(queries[own], answers.answers[:, 0].tolist(), answers.scores.tolist(), strict=True)
        predictions = {
            image: LandmarkPrediction(landmark, -score) for image, landmark, score in columns if landmark >= 0
        }
    shares = config.processes.gather(predictions)
    return LandmarkAnswers(
        tuple(test_ids),
        {image: answer for share in shares for image, answer in share.items()},
        {
            "gallery": int(mask.sum()),
            "gallery_without_labels": int((~labels.labelled).sum()),
            "test_images_in_gallery": int(in_gallery.sum()),
        },
    )


def _embedded(images: Embeddings, test_ids: list[str]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the test images that are embedded, and their rows."""
    if images.ids is None:
        raise ConfigurationError(
            f"{images.path}: has no ids, and test images are known by theirs; write them, one a line, to "
            f"{images.path.with_suffix('.ids.txt').name} beside it"
        )
    _, rows, places = np.intersect1d(images.ids, np.array(test_ids, np.str_), return_indices=True)
    if not len(rows):
        raise InputError(
            f"{images.path}: none of its {len(images):,} images, such as {images.ids[0]}, is a test image of the "
            f"solution, such as {test_ids[0] if test_ids else 'none'}; embed the test images"
        )
    return [test_ids[place] for place in places.tolist()], rows.astype(np.int64)


def _test_images_in_gallery(gallery: Embeddings, test_ids: list[str]) -> npt.NDArray[np.bool_]:
    if gallery.ids is None:
        return np.zeros(len(gallery), bool)
    return np.isin(gallery.ids, np.array(test_ids, np.str_))


def _share(n_queries: int, block_size: int, rank: int, count: int) -> slice:
    """Return the queries of a process: whole blocks, which do not depend on the number of processes."""
    n_blocks = -(-n_queries // block_size)
    start, stop = (n_blocks * process // count * block_size for process in (rank, rank + 1))
    return slice(start, min(stop, n_queries))
