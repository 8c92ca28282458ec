"""The stage ``complete``: propose groups for landmarks without one, from their photographs.

A third of GLDv2 has no "instance of" label. As in the paper's published code (``suprank/gldv2_labels.py`` of
https://github.com/elias-ramzi/SupRank), every photograph votes, and a landmark gets the group with the most votes.
There a photograph votes for the groups of the label texts that are nearest to it in the space of CLIP: the method
``zero-shot``. With ``neighbours`` it votes for the groups of the nearest photographs of labelled landmarks, for which
any image model will do. Scores are calibrated on labelled landmarks, each classified without its own photographs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hgld import tables
from hgld.completion.classifier import GroupVotes, LandmarkClassifier, References
from hgld.completion.config import CompleteConfig
from hgld.completion.inputs import CompletionFiles, CompletionInputs, read_completion_inputs
from hgld.compute.conformal import sets_by_level
from hgld.errors import InputError
from hgld.labels.encoders import LoadEncoder, load_cached_encoder, local_checkpoint
from hgld.progress import NoProgress, Progress
from hgld.stage import Stage

STAGE = Stage(
    "complete",
    (tables.COMPLETED,),
    inputs={"hierarchy": tables.HIERARCHY, "clean": tables.CLEAN, "removed": tables.REMOVED},
)
#: Scores that the summary counts proposals by.
_THRESHOLDS = (0.9, 0.8, 0.7, 0.6, 0.5)


@dataclass(frozen=True)
class CompleteSummary:
    """Numbers of landmarks without a group, of those with a proposal, and of their photographs.

    Args:
        above: Number of proposals by the score that they reach, highest first.
        calibrated_on: Number of those that the scores are calibrated on.
        accuracy: Share of those whose group the photographs of the others find.
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

    Besides the embeddings, memory is that of blocks (see :mod:`hgld.completion.classifier`) and 12 bytes for each
    photograph and reference that it is compared with.
    """
    config = config or CompleteConfig()
    checkpoint = local_checkpoint(config.encoder) if config.method == "zero-shot" else None

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
    sample = config.sample(labelled)
    unknown = np.arange(inputs.n_labelled, len(inputs.landmarks))
    classified = np.intersect1d(unknown, inputs.photographs.landmark)
    progress = progress or NoProgress()
    progress.start(inputs.count_photographs(sample) + inputs.count_photographs(classified))
    classifier = LandmarkClassifier(inputs, config, progress=progress, load=load)
    right = classifier.calibrate(sample)
    votes = classifier.vote(classified) if len(classified) else None
    scores = classifier.scores(votes) if votes is not None else np.zeros(0)
    table = _completed_table(inputs, classifier.references, votes, scores)
    if config.coverage is not None:
        sets: list[list[dict[str, Any]]] = [[] for _ in unknown]
        if votes is not None:
            found = sets_by_level(
                classifier.probabilities(votes), classifier.calibrated_on, config.coverage, inputs.levels
            )
            for landmark, row in zip(votes.landmark.tolist(), found, strict=True):
                sets[landmark - inputs.n_labelled] = row
        table = table.append_column("prediction_sets", pa.array(sets, tables.PREDICTION_SETS))
    return table, CompleteSummary(
        landmarks=len(unknown),
        proposed=len(scores),
        photographs=int(votes.photographs.sum()) if votes is not None else 0,
        above={threshold: int(np.sum(scores >= threshold)) for threshold in _THRESHOLDS},
        labelled=len(labelled),
        calibrated_on=len(right),
        accuracy=float(right.mean()),
    )


def _completed_table(
    inputs: CompletionInputs, references: References, votes: GroupVotes | None, scores: NDArray[np.float64]
) -> pa.Table:
    """Return the table ``completed`` of all landmarks without a group."""
    missing = inputs.landmarks.slice(inputs.n_labelled)
    rows: list[dict[str, Any]] = [
        {"photographs": 0, "votes": 0.0, "second_votes": 0.0, "nearest": []} for _ in range(len(missing))
    ]
    if votes is not None:
        for row, choice, score, landmark in zip(
            range(len(scores)), votes.choices(), scores.tolist(), votes.landmark.tolist(), strict=True
        ):
            first, *others = choice.tolist()
            second = next((group for group in others[:1] if votes.votes[row, group] > 0), None)
            rows[landmark - inputs.n_labelled] |= {
                "photographs": int(votes.photographs[row]),
                "group": inputs.group_names[first],
                "score": score,
                "votes": votes.votes[row, first],
                "second_group": None if second is None else inputs.group_names[second],
                "second_votes": 0.0 if second is None else votes.votes[row, second],
            }
        columns = (votes.nearest[name].tolist() for name in ("row", "item", "similarity"))
        for row, item, similarity in zip(*columns, strict=True):
            rows[int(votes.landmark[row]) - inputs.n_labelled]["nearest"].append(
                {
                    "name": references.names[item],
                    "group": inputs.group_names[references.groups[item]],
                    "similarity": similarity,
                }
            )
    added = [field for field in tables.COMPLETED.schema if field.name not in missing.column_names]
    values = pa.Table.from_pylist(rows, schema=pa.schema(added))
    return pa.table(
        {
            **dict(zip(missing.column_names, missing.columns, strict=True)),
            **dict(zip(values.column_names, values.columns, strict=True)),
        }
    )
