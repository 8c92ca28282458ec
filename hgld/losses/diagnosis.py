"""Diagnose embeddings for rank losses: the library side of ``hgld diagnose``.

Embeddings and labels of images are divided into the batches of one epoch of a class-balanced
sampler. On these batches are measured the decomposability gap of a metric (paper, Eq. 6) with its
bounds (Eqs. 26 and 27), and for several steps AP_e (Fig. 4 of Smooth-AP, Brown et al., ECCV 2020)
and the operating region (Fig. S7 of its supplementary material). The gaps of two embeddings of the
same images show the effect of a decomposability loss (ROADMAP, NeurIPS 2021, Table 10).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

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
from hgld.losses.kernels.steps import (
    HEAVISIDE,
    Sigmoid,
    Step,
    SupRankStep,
    Variant,
    suprank_step,
)
from hgld.losses.rank_losses import SmoothAP, SupAP
from hgld.losses.settings import DiagnosisConfig
from hgld.tables.embeddings import Embeddings
from hgld.version import __version__

#: Largest slope of a negligible gradient (Brown et al., supplementary material, section 3).
NEGLIGIBLE_SLOPE = 0.005
#: Number of scores computed at once.
BLOCK_SCORES = 2**24

#: Rows of each batch.
Batches = Sequence[Integers]


class OperatingShares(NamedTuple):
    """Shares of score differences at which a step has a gradient that is not negligible.

    Args:
        pairs: Share of all elements of the difference matrices of Brown et al. (Eq. 4), including
            the diagonal: P of Fig. S7.
        ranked_negatives: Share of the pairs of a positive and a negative.
        wrong_negatives: Share of the pairs of a positive and a negative ranked before it; NaN
            without such pairs.
    """

    pairs: float
    ranked_negatives: float
    wrong_negatives: float


def ap_errors(embeddings: Tensor, labels: Labels, step: Step) -> Tensor:
    """Return AP_e = |AP with a surrogate step - AP| of each query of a batch (Brown et al., Eq. 8).

    A sigmoid replaces all steps of the rank, as in Smooth-AP. H^- only replaces the steps of
    negatives, as in Sup-AP. The query is not its own positive; ties count against the ranking.

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
    all_scores, all_levels, n_levels = _scores_and_levels(embeddings, labels)
    surrogate = SmoothAP(step=step) if isinstance(step, Sigmoid) else SupAP(step=step)
    exact = SupAP(step=HEAVISIDE)
    n_rows = max(1, BLOCK_SCORES // len(all_scores))
    errors = []
    for begin in range(0, len(all_scores), n_rows):
        scores = all_scores[begin : begin + n_rows]
        levels = all_levels[begin : begin + n_rows]
        with torch.no_grad():
            surrogate_losses = surrogate.query_losses(scores, levels, n_levels)
            exact_losses = exact.query_losses(scores, levels, n_levels)
        has_positive = exact.has_positive(levels, n_levels)
        errors.append((surrogate_losses - exact_losses).abs()[has_positive])
    return torch.cat(errors)


def operating_shares(
    embeddings: Tensor, labels: Labels, step: Step, *, threshold: float = NEGLIGIBLE_SLOPE
) -> OperatingShares:
    """Return shares of score differences t in the operating region, |h'(t)| > ``threshold``.

    Differences of scores with each query are counted by sorting, in O(B^2 log B) time for a batch
    of B.

    Args:
        embeddings: Float tensor of shape (B, d), unit vectors.
        labels: Integers of shape (B, L), finest level first, or (B,).
        step: The step, a sigmoid or H^-.
        threshold: Largest slope of a negligible gradient, above 0.

    Raises:
        ConfigurationError: The threshold is not above 0, or the step is neither a sigmoid nor H^-.
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
    positives = levels == n_levels
    negatives = (levels >= 0) & ~positives
    all_items = torch.ones_like(positives)
    n_all = n_ranked = n_wrong = 0
    for low, high in intervals:
        n_all += _pairs_between(scores, all_items, all_items, low, high)
        n_ranked += _pairs_between(scores, positives, negatives, low, high)
        n_wrong += _pairs_between(scores, positives, negatives, max(low, 0.0), high)
    total_ranked = int((positives.sum(1) * negatives.sum(1)).sum())
    total_wrong = _pairs_between(scores, positives, negatives, 0.0, math.inf)
    if not total_ranked:
        raise InputError(
            f"none of {len(scores)} queries has both a positive and a negative in its batch"
        )
    return OperatingShares(
        pairs=n_all / len(scores) ** 3,
        ranked_negatives=n_ranked / total_ranked,
        wrong_negatives=n_wrong / total_wrong if total_wrong else math.nan,
    )


def operating_intervals(
    step: Step, threshold: float = NEGLIGIBLE_SLOPE
) -> list[tuple[float, float]]:
    """Return the open intervals of score differences where a step's slope exceeds a threshold.

    Args:
        step: A sigmoid or H^-.
        threshold: Slope, above 0.

    Raises:
        ConfigurationError: The threshold is not above 0, or the step is neither a sigmoid nor H^-.

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
        # The smaller root, without cancellation.
        root = 2 * threshold * step.tau / (1 + math.sqrt(discriminant))
        reach = step.tau * math.log((1 - root) / root)
    end = reach
    if isinstance(step, SupRankStep):
        end = min(reach, step.delta)
    intervals = []
    if -reach < end:
        intervals.append((-reach, end))
    if isinstance(step, SupRankStep) and step.rho > threshold and math.isfinite(step.delta):
        intervals.append((step.delta, math.inf))
    return intervals


def _scores_and_levels(embeddings: Tensor, labels: Labels) -> tuple[Tensor, Tensor, int]:
    """Return the scores and levels of all pairs of a batch, and the number of levels.

    The level of a query with itself is -1.
    """
    embeddings, labels, _, _ = checked_batch(embeddings.detach(), labels)
    levels = pair_levels(labels, labels).fill_diagonal_(-1)
    return embeddings @ embeddings.T, levels, labels.shape[-1]


def _pairs_between(scores: Tensor, first: Tensor, second: Tensor, low: float, high: float) -> int:
    """Count score differences low < s_j - s_k < high over all queries.

    Args:
        scores: float64 tensor of shape (n_query, n_items).
        first: Boolean mask of the items k, of the same shape.
        second: Boolean mask of the items j, of the same shape.
    """
    if low >= high:
        return 0
    n_second = second.sum(dim=1, keepdim=True)
    ordered = scores.masked_fill(~second, math.inf).sort(dim=1).values
    begin = torch.searchsorted(ordered, (scores + low).contiguous(), right=True).minimum(n_second)
    end = n_second
    if math.isfinite(high):
        end = torch.searchsorted(ordered, (scores + high).contiguous())
    return int(torch.where(first, (end - begin).clamp(min=0), 0).sum())


@dataclass(frozen=True)
class StepDiagnosis:
    """Means over batches of the error and the operating region of one step.

    Args:
        ap_error: AP_e, the mean over queries of |AP with the step - AP|.
        pairs: Share of all score differences in the operating region (P of Fig. S7).
        ranked_negatives: Share of the pairs of a positive and a negative.
        wrong_negatives: Share of the pairs of a positive and a negative ranked before it; NaN
            without such pairs.
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
        classes: Number of classes of these images.
        batches: Number of batches.
        gap: Decomposability gap.
        bound: Mean over queries of the bound of AP's gap without L_DG (Eq. 26), for batches with an
            AP of 1.
        calibrated_bound: Mean over queries of the bound with L_DG (Eq. 27).
        steps: Diagnosis of each step by name.
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
    used_rows = np.unique(np.concatenate(batches))
    unit_vectors = _unit_vectors(torch.as_tensor(embeddings), used_rows)
    bound, calibrated_bound = _mean_bounds(unit_vectors, labels[:, 0], batches, config)
    steps = {}
    for name, step in diagnosed_steps(config).items():
        steps[name] = _diagnose_step(unit_vectors, labels, batches, step)
    return Diagnosis(
        images=len(used_rows),
        classes=len(np.unique(labels[used_rows, 0])),
        batches=len(batches),
        gap=batch_decomposability_gap(unit_vectors, labels, batches, metric=config.metric),
        bound=bound,
        calibrated_bound=calibrated_bound,
        steps=steps,
    )


def diagnose_files(
    files: EvaluationFiles, baseline: Path | None = None, config: DiagnosisConfig | None = None
) -> tuple[Diagnosis, Diagnosis | None]:
    """Diagnose embeddings in files, and the embeddings of a baseline on the same batches.

    Args:
        files: Embeddings of all images, their labels and hierarchy; images without labels are
            excluded.
        baseline: Embeddings of the same images, in the same order, by another model, for a
            comparison of decomposability gaps.

    Returns:
        The diagnosis, and the diagnosis of the baseline if given.

    Raises:
        ConfigurationError: See :func:`diagnose`.
        InputError: A file is missing or malformed, the baseline has other images, or see
            :func:`diagnose`.
    """
    inputs = EvaluationInputs.read(files)
    gallery_labels = inputs.gallery_labels()
    rows = np.flatnonzero(gallery_labels.labelled)
    labels = np.empty((len(rows), gallery_labels.labels.shape[1]), np.int64)
    for column, classes in enumerate(gallery_labels.labels[rows].T):
        labels[:, column] = np.unique(classes, return_inverse=True)[1]
    baseline_embeddings = None
    if baseline is not None:
        baseline_embeddings = EvaluationInputs.read(EvaluationFiles(embeddings=baseline)).gallery
        _require_same_images(inputs.gallery, baseline_embeddings)
    diagnosis = diagnose(inputs.gallery.vectors[torch.from_numpy(rows)], labels, config)
    if baseline_embeddings is None:
        return diagnosis, None
    baseline_vectors = baseline_embeddings.vectors[torch.from_numpy(rows)]
    return diagnosis, diagnose(baseline_vectors, labels, config)


def _require_same_images(embeddings: Embeddings, baseline: Embeddings) -> None:
    ids, baseline_ids = embeddings.ids, baseline.ids
    if ids is None or baseline_ids is None:
        is_same = ids is baseline_ids and len(baseline) == len(embeddings)
    else:
        is_same = np.array_equal(ids, baseline_ids)
    if not is_same:
        raise InputError(
            f"{baseline.path} has other images than {embeddings.path}, or the same in another order; embed the same "
            "images with both models"
        )


def relative_decrease(baseline: Diagnosis, diagnosis: Diagnosis) -> float:
    """Return 1 - gap / baseline gap (ROADMAP, Table 10); NaN for a baseline gap of 0."""
    if baseline.gap.gap == 0:
        return float("nan")
    return 1 - diagnosis.gap.gap / baseline.gap.gap


def diagnosis_to_json(
    diagnosis: Diagnosis, baseline: Diagnosis | None, config: DiagnosisConfig
) -> str:
    """Return a diagnosis, its settings and the comparison with a baseline as JSON.

    Undefined values are null.
    """
    document: dict[str, Any] = {
        "hgld": __version__,
        "config": asdict(config),
        **_as_dict(diagnosis),
    }
    if baseline is not None:
        document["baseline"] = _as_dict(baseline)
        document["relative_decrease"] = relative_decrease(baseline, diagnosis)
    return json.dumps(to_json_values(document), indent=2, allow_nan=False)


def _as_dict(diagnosis: Diagnosis) -> dict[str, Any]:
    gap = diagnosis.gap
    gap_values = {"whole": gap.whole, "batches": gap.batches, "gap": gap.gap}
    return asdict(diagnosis) | {"gap": gap_values}


def _unit_vectors(embeddings: Tensor, used_rows: Integers) -> Tensor:
    """Return the embeddings on the CPU, scaled to length 1."""
    units = normalize(embeddings.cpu().float(), dim=1)
    lengths = units[torch.from_numpy(used_rows)].norm(dim=1)
    is_unit = (lengths - 1).abs() < 0.01  # False for NaN
    if not is_unit.all():
        row = int(used_rows[int(is_unit.int().argmin())])
        raise InputError(
            f"the embeddings are 0, NaN or infinite in {int((~is_unit).sum())} of {len(used_rows):,} images, first "
            f"in row {row}"
        )
    return units


def _mean_bounds(
    embeddings: Tensor, classes: Integers, batches: Batches, config: DiagnosisConfig
) -> tuple[float, float]:
    """Return the means over all images of the batches of the bounds of Eqs. 26 and 27."""
    rows = np.concatenate(batches)
    lengths = np.array([len(batch) for batch in batches])
    batch_starts = np.cumsum(lengths) - lengths

    def counts_by_batch(mask: Tensor) -> Integers:
        counts: Integers = np.add.reduceat(mask.numpy(), batch_starts, axis=1, dtype=np.int64)
        return counts

    items = embeddings[torch.from_numpy(rows)]
    item_classes = torch.from_numpy(classes[rows])
    bounds: list[Floats] = []
    calibrated_bounds: list[Floats] = []
    size = max(1, BLOCK_SCORES // len(rows))
    for begin in range(0, len(rows), size):
        scores = items[begin : begin + size] @ items.T
        positives = item_classes[begin : begin + size, None] == item_classes
        negatives = ~positives
        positives.diagonal(begin).fill_(False)
        n_positives = counts_by_batch(positives)
        n_negatives = counts_by_batch(negatives)
        n_low_positives = counts_by_batch(positives & (scores <= config.alpha))
        n_high_negatives = counts_by_batch(negatives & (scores > config.beta))
        bounds.append(gap_bound(n_positives, n_negatives))
        calibrated_bounds.append(
            calibrated_gap_bound(n_positives, n_negatives, n_low_positives, n_high_negatives)
        )
    bound = np.nanmean(np.concatenate(bounds))
    calibrated_bound = np.nanmean(np.concatenate(calibrated_bounds))
    return float(bound), float(calibrated_bound)


def _diagnose_step(
    embeddings: Tensor, labels: LabelMatrix, batches: Batches, step: Step
) -> StepDiagnosis:
    """Return means over batches; the mean of wrong negatives skips batches without them."""
    rows = []
    for batch in batches:
        batch_embeddings = embeddings[torch.from_numpy(batch)]
        ap_error = float(ap_errors(batch_embeddings, labels[batch], step).mean())
        shares = operating_shares(batch_embeddings, labels[batch], step)
        rows.append({"ap_error": ap_error, **shares._asdict()})
    means = pd.DataFrame(rows, dtype=np.float64).mean()  # skips NaN
    return StepDiagnosis(**means.to_dict())


def diagnosed_steps(config: DiagnosisConfig) -> dict[str, Step]:
    """Return the steps to diagnose by name: sigmoids, and the published forms of H^-."""
    steps: dict[str, Step] = {}
    for tau in config.temperatures:
        steps[f"sigmoid, tau {tau:g}"] = Sigmoid(tau)
    for variant in get_args(Variant):
        steps[f"H^- {variant}"] = suprank_step(variant)
    return steps
