"""Diagnose embeddings as rank losses see them: the library side of ``hgld diagnose``.

Embeddings and labels of images are divided into the batches of one epoch of a class-balanced sampler. On them are
measured the decomposability gap of a metric (paper, Eq. 6) with its bounds (Eqs. 26 and 27), and for some steps AP_e
(Fig. 4 of Smooth-AP, Brown et al., ECCV 2020) and the operating region (Fig. S7 of its supplementary material). The
gaps of two embeddings of the same images show what a decomposability loss is good for (ROADMAP, NeurIPS 2021, Table
10).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import normalize

from hgld.arrays import Floats, Integers
from hgld.datasets.samplers import ClassBalancedSampler, log_small_classes
from hgld.errors import ConfigurationError, InputError, require
from hgld.evaluation.decomposability import (
    BatchGap,
    batch_decomposability_gap,
    calibrated_gap_bound,
    gap_bound,
)
from hgld.evaluation.evaluation_files import EvaluationInputs
from hgld.evaluation.results import to_json_values
from hgld.evaluation.settings import EvaluationFiles
from hgld.hierarchy.label_matrix import LabelMatrix
from hgld.losses.base import pair_levels
from hgld.losses.kernels.batches import Labels, checked_batch
from hgld.losses.kernels.steps import HEAVISIDE, Sigmoid, Step, SupRankStep, suprank_step
from hgld.losses.rank_losses import SmoothAP, SupAP
from hgld.losses.settings import DiagnosisConfig
from hgld.tables.embeddings import Embeddings
from hgld.version import __version__

#: Slope from which on a gradient is not negligible (Brown et al., supplementary material, section 3).
NEGLIGIBLE_SLOPE = 0.005
#: Scores computed at once.
BLOCK_SCORES = 2**24

#: Rows of each batch.
Batches = Sequence[Integers]


class OperatingShares(NamedTuple):
    """Shares of score differences at which a step has a gradient that is not negligible.

    Args:
        pairs: Share of all elements of the difference matrices of Brown et al. (Eq. 4), those of an item with itself
            among them: P of Fig. S7.
        ranked_negatives: Share of the pairs of a positive and a negative.
        wrong_negatives: Share of those pairs whose negative is ranked before the positive; NaN where there are none.
    """

    pairs: float
    ranked_negatives: float
    wrong_negatives: float


def ap_errors(embeddings: Tensor, labels: Labels, step: Step) -> Tensor:
    """Return AP_e = |AP with a surrogate step - AP| of each query of a batch (Brown et al., Eq. 8).

    A sigmoid replaces all steps of the rank, as in Smooth-AP; H^- those of negatives only, as in Sup-AP. The query is
    not its own positive; ties count against the ranking.

    Args:
        embeddings: Float tensor of shape (B, d), unit vectors.
        labels: Integers of shape (B, L), finest level first, or (B,).

    Returns:
        Tensor of shape (n,), for the n queries that have a positive.

    Raises:
        InputError: The input is malformed, see :meth:`hgld.losses.Loss.forward`.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> ap_errors(embeddings, torch.tensor([0, 0, 1]), Sigmoid(tau=1.0))
    tensor([0.1452, 0.1293])
    """
    scores, levels, n_levels = _scores_and_levels(embeddings, labels)
    surrogate = SmoothAP(step=step) if isinstance(step, Sigmoid) else SupAP(step=step)
    exact = SupAP(step=HEAVISIDE)
    rows = max(1, BLOCK_SCORES // len(scores))
    errors = []
    with torch.no_grad():
        for block in zip(torch.split(scores, rows), torch.split(levels, rows), strict=True):
            values, true_values = (
                loss.query_losses(*block, n_levels) for loss in (surrogate, exact)
            )
            errors.append((values - true_values).abs()[exact.has_positive(block[1], n_levels)])
    return torch.cat(errors)


def operating_shares(
    embeddings: Tensor, labels: Labels, step: Step, *, threshold: float = NEGLIGIBLE_SLOPE
) -> OperatingShares:
    """Return the shares of score differences in the operating region of a step, |h'(t)| > ``threshold``.

    Differences of scores with each query are counted by sorting, in O(B^2 log B) time for a batch of B.

    Args:
        embeddings: Float tensor of shape (B, d), unit vectors.
        labels: Integers of shape (B, L), finest level first, or (B,).
        step: The step, a sigmoid or H^-.
        threshold: Slope from which on a gradient is not negligible, above 0.

    Raises:
        ConfigurationError: The threshold is not above 0, or the step is another.
        InputError: No query has a positive and a negative, or the input is malformed, see
            :meth:`hgld.losses.Loss.forward`.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> operating_shares(embeddings, torch.tensor([0, 0, 1]), Sigmoid(tau=0.01)).wrong_negatives
    0.0
    >>> operating_shares(embeddings, torch.tensor([0, 0, 1]), SupRankStep(tau=0.01)).wrong_negatives
    1.0
    """
    intervals = operating_intervals(step, threshold)
    scores, levels, n_levels = _scores_and_levels(embeddings, labels)
    scores = scores.double()
    positives, negatives = levels == n_levels, (levels >= 0) & (levels < n_levels)
    everything = torch.ones_like(positives)
    counts = [
        sum(_pairs_between(scores, everything, everything, each) for each in intervals),
        sum(_pairs_between(scores, positives, negatives, each) for each in intervals),
        sum(
            _pairs_between(scores, positives, negatives, (max(low, 0.0), high))
            for low, high in intervals
        ),
    ]
    n_ranked = int((positives.sum(1) * negatives.sum(1)).sum())
    n_wrong = _pairs_between(scores, positives, negatives, (0.0, math.inf))
    if not n_ranked:
        raise InputError(
            f"none of {len(scores)} queries has both a positive and a negative in its batch"
        )
    return OperatingShares(
        counts[0] / len(scores) ** 3,
        counts[1] / n_ranked,
        counts[2] / n_wrong if n_wrong else math.nan,
    )


def operating_intervals(
    step: Step, threshold: float = NEGLIGIBLE_SLOPE
) -> list[tuple[float, float]]:
    """Return the open intervals of score differences at which the slope of a step exceeds a threshold.

    Args:
        step: A sigmoid or H^-.
        threshold: Slope, above 0.

    Raises:
        ConfigurationError: The threshold is not above 0, or the step is another.

    >>> [(round(low, 3), round(high, 3)) for low, high in operating_intervals(Sigmoid(0.01))]
    [(-0.099, 0.099)]
    >>> [(round(low, 3), round(high, 3)) for low, high in operating_intervals(SupRankStep())]
    [(-0.099, 0.05), (0.05, inf)]
    """
    require(threshold > 0, "more than 0", threshold=threshold)
    if not isinstance(step, Sigmoid | SupRankStep):
        raise ConfigurationError(f"{step} has no operating region; expected a sigmoid or H^-")
    # sigma'(t / tau) / tau > threshold for |t| < t*, where sigma (1 - sigma) = threshold tau
    discriminant = 1 - 4 * threshold * step.tau
    reach = 0.0
    if discriminant > 0:
        high = (
            2 * threshold * step.tau / (1 + math.sqrt(discriminant))
        )  # the smaller root, without cancellation
        reach = step.tau * math.log((1 - high) / high)
    intervals = [(-reach, reach)]
    if isinstance(step, SupRankStep):
        intervals = [(-reach, min(reach, step.delta))]
        intervals += [(step.delta, math.inf)] * (step.rho > threshold)
    return [(low, high) for low, high in intervals if low < high]


def _scores_and_levels(embeddings: Tensor, labels: Labels) -> tuple[Tensor, Tensor, int]:
    """Return the scores of all pairs of a batch, their levels, -1 for the query itself, and the number of levels."""
    x, label_matrix, _, _ = checked_batch(embeddings.detach(), labels)
    levels = pair_levels(label_matrix, label_matrix).fill_diagonal_(-1)
    return x @ x.T, levels, label_matrix.shape[-1]


def _pairs_between(
    scores: Tensor, first: Tensor, second: Tensor, interval: tuple[float, float]
) -> int:
    """Count the triples of a query, an item k of ``first`` and a j of ``second`` with low < s_j - s_k < high."""
    low, high = interval
    if low >= high:
        return 0
    ordered = scores.masked_fill(~second, math.inf).sort(dim=1).values
    above = torch.searchsorted(ordered, (scores + low).contiguous(), right=True)
    n_second = second.sum(dim=1, keepdim=True)
    below = (
        n_second if math.isinf(high) else torch.searchsorted(ordered, (scores + high).contiguous())
    )
    return int(torch.where(first, (below - above.minimum(n_second)).clamp(min=0), 0).sum())


@dataclass(frozen=True)
class StepDiagnosis:
    """Quality of one step, means over batches.

    Args:
        ap_error: AP_e, the mean over queries of |AP with the step - AP|.
        pairs: Share of all score differences in the operating region (P of Fig. S7).
        ranked_negatives: Share of the pairs of a positive and a negative.
        wrong_negatives: Share of those whose negative is ranked before the positive; NaN without any.
    """

    ap_error: float
    pairs: float
    ranked_negatives: float
    wrong_negatives: float


@dataclass(frozen=True)
class Diagnosis:
    """Diagnosis of embeddings.

    Args:
        images: Number of images in the batches.
        classes: Number of their classes.
        batches: Number of batches.
        gap: Decomposability gap.
        bound: Mean over queries of the bound of AP's gap without L_DG (Eq. 26), for batches with an AP of 1.
        calibrated_bound: Mean over queries of the same with L_DG (Eq. 27).
        steps: Quality of each step by name.
    """

    images: int
    classes: int
    batches: int
    gap: BatchGap
    bound: float
    calibrated_bound: float
    steps: dict[str, StepDiagnosis]


def diagnose(
    embeddings: Tensor, labels: LabelMatrix, config: DiagnosisConfig | None = None
) -> Diagnosis:
    """Diagnose embeddings in the batches of one epoch.

    Args:
        embeddings: float, shape (n, d); they are scaled to length 1.
        labels: int64, shape (n, L), finest first, numbered from 0 in each column.

    Raises:
        ConfigurationError: The batches cannot be made, or a value is out of range.
        InputError: Embeddings are not finite or 0, or batches have no positives or no negatives.

    >>> labels = np.repeat(np.arange(4), 4)[:, None]
    >>> embeddings = torch.eye(4)[labels[:, 0]]
    >>> diagnosis = diagnose(embeddings, labels, DiagnosisConfig(batch_size=8, per_class=4))
    >>> (diagnosis.gap.gap, diagnosis.calibrated_bound, diagnosis.steps["sigmoid, tau 0.01"].ap_error)
    (0.0, 0.0, 0.0)
    """
    config = config or DiagnosisConfig()
    sampler = ClassBalancedSampler(labels, config.batch_size, config.per_class, seed=config.seed)
    log_small_classes(labels, config.per_class, "exclude")
    batches = sampler.batches(epoch=0)[: config.max_batches]
    used = np.unique(np.concatenate(batches))
    units = _unit_vectors(torch.as_tensor(embeddings), used)
    bound, calibrated = _mean_bounds(units, labels[:, 0], batches, config)
    return Diagnosis(
        images=len(used),
        classes=len(np.unique(labels[used, 0])),
        batches=len(batches),
        gap=batch_decomposability_gap(units, labels, batches, metric=config.metric),
        bound=bound,
        calibrated_bound=calibrated,
        steps={
            name: _diagnose_step(units, labels, batches, step)
            for name, step in diagnosed_steps(config).items()
        },
    )


def diagnose_files(
    files: EvaluationFiles, baseline: Path | None = None, config: DiagnosisConfig | None = None
) -> tuple[Diagnosis, Diagnosis | None]:
    """Diagnose embeddings in files, and those of a baseline on the same batches.

    Args:
        files: Embeddings of all images, their labels and hierarchy; images without labels are excluded.
        baseline: Embeddings of the same images, in the same order, by another model, to compare decomposability gaps
            with.

    Returns:
        The diagnosis, and that of the baseline if given.

    Raises:
        ConfigurationError: See :func:`diagnose`.
        InputError: A file is missing or malformed, the baseline has other images, or see :func:`diagnose`.
    """
    inputs = EvaluationInputs.read(files)
    labels = inputs.gallery_labels()
    rows = np.flatnonzero(labels.labelled)
    columns = [np.unique(column, return_inverse=True)[1] for column in labels.labels[rows].T]
    matrix = np.stack(columns, axis=1).astype(np.int64)  # numbered from 0 in each column
    all_embeddings = [inputs.gallery]
    if baseline is not None:
        all_embeddings.append(EvaluationInputs.read(EvaluationFiles(embeddings=baseline)).gallery)
        _require_same_images(*all_embeddings)
    diagnoses = [
        diagnose(each.vectors[torch.from_numpy(rows)], matrix, config) for each in all_embeddings
    ]
    return diagnoses[0], diagnoses[1] if baseline is not None else None


def _require_same_images(embeddings: Embeddings, baseline: Embeddings) -> None:
    ids, baseline_ids = embeddings.ids, baseline.ids
    same = (ids is None) == (baseline_ids is None) and len(baseline) == len(embeddings)
    if not same or (
        ids is not None and baseline_ids is not None and not np.array_equal(ids, baseline_ids)
    ):
        raise InputError(
            f"{baseline.path} has other images than {embeddings.path}, or the same in another order; embed the same "
            "images with both models"
        )


def relative_decrease(baseline: Diagnosis, diagnosis: Diagnosis) -> float:
    """Return by which share the gap is smaller than that of the baseline (ROADMAP, Table 10); NaN for a gap of 0."""
    if baseline.gap.gap == 0:
        return float("nan")
    return 1 - diagnosis.gap.gap / baseline.gap.gap


def diagnosis_to_json(
    diagnosis: Diagnosis, baseline: Diagnosis | None, config: DiagnosisConfig
) -> str:
    """Return a diagnosis, its settings and the comparison with a baseline as JSON; undefined values are null."""
    document: dict[str, Any] = {
        "hgld": __version__,
        "config": asdict(config),
        **_as_dict(diagnosis),
    }
    if baseline is not None:
        document |= {
            "baseline": _as_dict(baseline),
            "relative_decrease": relative_decrease(baseline, diagnosis),
        }
    return json.dumps(to_json_values(document), indent=2, allow_nan=False)


def _as_dict(diagnosis: Diagnosis) -> dict[str, Any]:
    gap = {"whole": diagnosis.gap.whole, "batches": diagnosis.gap.batches, "gap": diagnosis.gap.gap}
    return asdict(diagnosis) | {"gap": gap}


def _unit_vectors(embeddings: Tensor, used: Integers) -> Tensor:
    """Return the embeddings on the CPU, scaled to length 1."""
    units = normalize(embeddings.cpu().float(), dim=1)
    lengths = units[torch.from_numpy(used)].norm(dim=1)
    usable = (lengths - 1).abs() < 0.01  # False for NaN
    if not usable.all():
        row = int(used[int(usable.int().argmin())])
        raise InputError(
            f"the embeddings are 0, NaN or infinite in {int((~usable).sum())} of {len(used):,} images, first in row "
            f"{row}"
        )
    return units


def _mean_bounds(
    embeddings: Tensor, classes: Integers, batches: Batches, config: DiagnosisConfig
) -> tuple[float, float]:
    """Return the means over all images of the batches of the bounds of Eqs. 26 and 27."""
    rows = np.concatenate(batches)
    starts = np.cumsum([0, *map(len, batches[:-1])])
    items, item_classes = embeddings[torch.from_numpy(rows)], torch.from_numpy(classes[rows])
    bounds: list[Floats] = []
    calibrated: list[Floats] = []
    size = max(1, BLOCK_SCORES // len(rows))
    for begin in range(0, len(rows), size):
        scores = items[begin : begin + size] @ items.T
        positives = item_classes[begin : begin + size, None] == item_classes
        negatives = ~positives
        positives.diagonal(begin).fill_(False)
        counts = [
            np.add.reduceat(mask.numpy(), starts, axis=1, dtype=np.int64)
            for mask in (
                positives,
                negatives,
                positives & (scores <= config.alpha),
                negatives & (scores > config.beta),
            )
        ]
        bounds.append(gap_bound(*counts[:2]))
        calibrated.append(calibrated_gap_bound(*counts))
    return float(np.nanmean(np.concatenate(bounds))), float(np.nanmean(np.concatenate(calibrated)))


def _diagnose_step(
    embeddings: Tensor, labels: LabelMatrix, batches: Batches, step: Step
) -> StepDiagnosis:
    """Return the means over the batches."""
    measured = []
    for batch in batches:
        x, batch_labels = embeddings[torch.from_numpy(batch)], labels[batch]
        error = float(ap_errors(x, batch_labels, step).mean())
        measured.append((error, *operating_shares(x, batch_labels, step)))
    return StepDiagnosis(*pd.DataFrame(measured, dtype=np.float64).mean())  # without NaN


def diagnosed_steps(config: DiagnosisConfig) -> dict[str, Step]:
    """Return the steps to diagnose by name: sigmoids, and the published forms of H^-."""
    sigmoids: dict[str, Step] = {
        f"sigmoid, tau {tau:g}": Sigmoid(tau) for tau in config.temperatures
    }
    return sigmoids | {f"H^- {name}": suprank_step(name) for name in ("eq4", "cfg144", "cfginat")}
