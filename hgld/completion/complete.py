"""The stage ``complete``: propose groups for landmarks without one, from their photographs.

A third of GLDv2 has no "instance of" label. As in the paper's published code
(``suprank/gldv2_labels.py`` of https://github.com/elias-ramzi/SupRank), every photograph votes, and
a landmark gets the group with the most votes. With the method ``zero-shot`` of that code, a
photograph votes for the groups of the nearest label texts in the space of CLIP. With ``neighbours``
it votes for the groups of the nearest photographs of labelled landmarks, which works with any image
model. Scores are calibrated on labelled landmarks, each classified without its own photographs.
:mod:`hgld.completion.quality` measures the accuracy of proposals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hgld import tables
from hgld.arrays import Floats
from hgld.completion.classifier import GroupVotes, LandmarkClassifier, References
from hgld.completion.inputs import (
    CompletionFiles,
    CompletionInputs,
    calibration_sample,
    read_completion_inputs,
)
from hgld.completion.settings import CompleteConfig
from hgld.errors import InputError
from hgld.labels.encoders import LoadEncoder, load_cached_encoder, local_checkpoint
from hgld.progress import NoProgress, Progress
from hgld.stage import Stage

STAGE = Stage(
    "complete",
    (tables.COMPLETED,),
    inputs={"hierarchy": tables.HIERARCHY, "clean": tables.CLEAN, "removed": tables.REMOVED},
)
#: Scores for which the summary counts the proposals that reach them.
_THRESHOLDS = (0.9, 0.8, 0.7, 0.6, 0.5)


@dataclass(frozen=True)
class CompleteSummary:
    """Numbers of landmarks and proposals.

    Args:
        landmarks: Number of landmarks without a group.
        proposed: Number of landmarks with a proposal.
        photographs: Number of photographs of landmarks with a proposal.
        above: Number of proposals by the score that they reach, highest first.
        labelled: Number of labelled landmarks with photographs.
        calibrated_on: Number of labelled landmarks for the calibration of scores.
        accuracy: Share of the landmarks of the calibration whose first choice is right.
    """

    landmarks: int
    proposed: int
    photographs: int
    above: Mapping[float, int]
    labelled: int
    calibrated_on: int
    accuracy: float


def complete_file(
    files: CompletionFiles,
    out: Path,
    config: CompleteConfig | None = None,
    *,
    force: bool = False,
    progress: Progress | None = None,
    load: LoadEncoder = load_cached_encoder,
) -> CompleteSummary | None:
    """Write the table ``completed``, sorted by its key: a row for every landmark without a group.

    Besides the embeddings, memory holds blocks of cosines (see :mod:`hgld.completion.classifier`)
    and 12 bytes for each photograph and each of its k references.

    Args:
        files: Input files.
        out: Table to write.
        config: Settings of proposals.
        force: Run although the output is up to date.
        progress: Progress of the photographs.
        load: Function that loads the text encoder.

    Returns:
        The numbers of landmarks and proposals, or None if ``out`` was up to date.
    """
    config = config or CompleteConfig()
    checkpoint = None
    if config.method == "zero-shot":
        checkpoint = local_checkpoint(config.encoder)

    def compute() -> tuple[Sequence[pa.Table], CompleteSummary]:
        inputs = read_completion_inputs(files, config.reasons)
        if inputs.n_labelled == len(inputs.landmarks):
            raise InputError(
                f"{files.hierarchy}: no landmark lacks a group for the reason {' or '.join(config.reasons)}, so "
                "there is nothing to propose"
            )
        table, summary = propose(inputs, config, progress=progress, load=load)
        return [table], summary

    return STAGE.run(
        {"out": out},
        compute,
        inputs=files.by_role(checkpoint),
        parameters=config.parameters() | {"image_splits": files.image_splits()},
        force=force,
    )


def propose(
    inputs: CompletionInputs,
    config: CompleteConfig,
    *,
    progress: Progress | None = None,
    load: LoadEncoder = load_cached_encoder,
) -> tuple[pa.Table, CompleteSummary]:
    """Propose a group for each landmark without one; see :func:`complete_file`."""
    labelled = inputs.labelled_with_photographs()
    sample = calibration_sample(labelled, config)
    unlabelled = np.arange(inputs.n_labelled, len(inputs.landmarks))
    classified = np.intersect1d(unlabelled, inputs.photographs.item)
    progress = progress or NoProgress()
    progress.start(inputs.count_photographs(sample) + inputs.count_photographs(classified))
    classifier = LandmarkClassifier(inputs, config, progress=progress, load=load)
    right = classifier.calibrate(sample)
    rows: list[dict[str, Any]] = []
    for _ in range(len(unlabelled)):
        rows.append({"photographs": 0, "votes": 0.0, "second_votes": 0.0, "nearest": []})
    scores = np.zeros(0)
    n_photographs = 0
    if len(classified):
        votes = classifier.vote(classified)
        scores = classifier.scores(votes)
        n_photographs = int(votes.photographs.sum())
        rows_of_votes = [rows[landmark - inputs.n_labelled] for landmark in votes.landmark]
        _fill_rows(rows_of_votes, inputs, classifier.references, votes, scores)
    table = inputs.landmarks.slice(inputs.n_labelled)
    new_fields = [
        field for field in tables.COMPLETED.schema if field.name not in table.column_names
    ]
    values = pa.Table.from_pylist(rows, schema=pa.schema(new_fields))
    for name in values.column_names:
        table = table.append_column(name, values[name])
    return table, CompleteSummary(
        landmarks=len(unlabelled),
        proposed=len(scores),
        photographs=n_photographs,
        above={threshold: int(np.sum(scores >= threshold)) for threshold in _THRESHOLDS},
        labelled=len(labelled),
        calibrated_on=len(right),
        accuracy=float(right.mean()),
    )


def _fill_rows(
    rows: Sequence[dict[str, Any]],
    inputs: CompletionInputs,
    references: References,
    votes: GroupVotes,
    scores: Floats,
) -> None:
    """Write proposals to rows of the table ``completed``, one row per landmark of the votes."""
    choices = votes.choices()
    for number, row in enumerate(rows):
        group_votes = votes.votes[number]
        first = choices[number, 0]
        row["photographs"] = int(votes.photographs[number])
        row["group"] = inputs.group_names[first]
        row["score"] = float(scores[number])
        row["votes"] = group_votes[first]
        if choices.shape[1] > 1:
            second = choices[number, 1]
            if group_votes[second] > 0:
                row["second_group"] = inputs.group_names[second]
                row["second_votes"] = group_votes[second]
    for reference in votes.nearest.to_dict("records"):
        item = int(reference["item"])
        nearest = {
            "name": references.names[item],
            "group": inputs.group_names[references.groups[item]],
            "similarity": reference["similarity"],
        }
        rows[int(reference["row"])]["nearest"].append(nearest)
