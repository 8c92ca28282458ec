"""The stage ``agreement``: measure inter-annotator agreement and list disagreements.

Units are labels; the category of a decision is its group, dropped or unsure. By landmark, every landmark
counts as a unit with the decision on its label. The coefficients are

- raw agreement: share of units that two annotators put into the same category;
- Cohen's kappa: agreement of two annotators beyond chance, given how often each uses every category (J. Cohen,
  "A Coefficient of Agreement for Nominal Scales", Educational and Psychological Measurement 20, 1960);
- Krippendorff's alpha for nominal data: agreement of any number of annotators with missing values (K. Krippendorff,
  "Computing Krippendorff's Alpha-Reliability", 2011);
- for each group the proportion of specific agreement (D. V. Cicchetti and A. R. Feinstein, "High agreement but low
  kappa: II", Journal of Clinical Epidemiology 43, 1990).

All coefficients take weights of the units; an integer weight w is equivalent to w equal units. A bootstrap
passes many weightings at once.

Annotators who saw the same suggestions may agree more often. Therefore agreement is also measured
separately on the labels that all annotators decided blind, without suggestions, and on the other labels.

Intervals are percentiles over bootstrap samples of the labels. Agreement by landmark has no intervals: the
landmarks of a label are decided together and most landmarks have one of a few labels, so that percentile
intervals have too low a coverage (``benchmarks/bootstrap_intervals.py``).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from math import isnan, nan
from pathlib import Path
from typing import Any

import numpy as np

from hgld.arrays import Booleans, Floats, Integers
from hgld.compute.resampling import percentile_interval
from hgld.errors import ConfigurationError, InputError
from hgld.figures.groups import Confusion, draw_confusion
from hgld.io.files import require_own_json, write_text
from hgld.io.writable import require_other_file
from hgld.review.decision_files import (
    DROPPED,
    UNSURE,
    GroupConflict,
    Opinions,
    category,
    landmarks_by_label,
    read_opinions,
    require_landmark_counts,
)
from hgld.review.settings import AgreementConfig
from hgld.tables import CLUSTERS, Provenance, input_digests, read_table
from hgld.taxonomy.decisions import Category
from hgld.taxonomy.groups import find_taxonomy, read_taxonomy, taxonomy_beside
from hgld.taxonomy.project import nouns_of


@dataclass(frozen=True)
class Estimate:
    """A coefficient with its interval; an undefined value is NaN, and so is an interval by landmark."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class PairAgreement:
    """Agreement of two annotators on the labels that both decided."""

    first: str
    second: str
    labels: int
    raw: Estimate
    kappa: Estimate


@dataclass(frozen=True)
class Measures:
    """Coefficients under one weighting.

    Args:
        pairs: Coefficients of every two annotators.
        alpha: Krippendorff's alpha of all annotators, or of the people if there are at least two.
    """

    pairs: tuple[PairAgreement, ...]
    alpha: Estimate


@dataclass(frozen=True)
class SubsetAgreement:
    """Agreement on some of the labels.

    Args:
        labels: Number of labels that two or more annotators decided.
        by_label: Coefficients with every label counted once.
        by_landmark: Coefficients with every landmark counted once; None if the numbers of landmarks are
            unknown.
    """

    labels: int
    by_label: Measures
    by_landmark: Measures | None


@dataclass(frozen=True)
class GroupAgreement:
    """Agreement of two annotators on one category; summed over all pairs if there are more annotators.

    Args:
        category: Name of a group, or "(drop)" or "(unsure)".
        both: Number of labels that both put into the category.
        only_one: Number of labels that only one of the two put into the category.
        specific: Proportion of specific agreement, ``2 both / (2 both + only_one)``.
        specific_by_landmark: Proportion of specific agreement by landmark; None if the numbers of
            landmarks are unknown.
        interval: Confidence interval of ``specific``.
    """

    category: str
    both: int
    only_one: int
    specific: float
    specific_by_landmark: float | None
    interval: tuple[float, float]


@dataclass(frozen=True)
class Disagreement:
    """A label that two or more annotators put into different categories."""

    label_id: str
    label: str
    landmarks: int | None
    opinions: Mapping[str, str]
    comments: Mapping[str, str]


@dataclass(frozen=True)
class Agreement(SubsetAgreement):
    """Inter-annotator agreement on all labels, and on some of them.

    Args:
        single: Number of labels that only one annotator decided. No coefficient uses these labels.
        blind: Agreement on labels that all their annotators decided blind; None without such labels.
        not_blind: Agreement on the other labels; None without such labels.
        mixed: Number of labels that one annotator decided blind and another with suggestions.
        groups: Agreement on each category in use, in ascending order of agreement.
        disagreements: Labels in different categories, in descending order of landmarks.
        group_conflicts: Groups that annotators name differently; not counted as disagreements.
    """

    annotators: tuple[str, ...]
    single: int
    blind: SubsetAgreement | None
    not_blind: SubsetAgreement | None
    mixed: int
    groups: tuple[GroupAgreement, ...]
    disagreements: tuple[Disagreement, ...]
    config: AgreementConfig
    group_conflicts: tuple[GroupConflict, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values; undefined numbers are null."""
        values: dict[str, Any] = _without_nan(asdict(self))
        return values


def _without_nan(value: Any) -> Any:
    """Return nested values with None in place of NaN."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(item) for item in value]
    if isinstance(value, float) and isnan(value):
        return None
    return value


def agreement_files(
    decisions: Sequence[Path],
    config: AgreementConfig | None = None,
    *,
    clusters: Path | None = None,
    taxonomy: Path | None = None,
    out: Path | None = None,
    figure: Path | None = None,
) -> Agreement:
    """Measure inter-annotator agreement on files of decisions.

    Args:
        decisions: A file for each annotator: CSV decisions, or a store (.sqlite).
        config: Settings of the intervals.
        clusters: Clusters from hgld cluster, to count landmarks as well as labels. Default: count labels.
        taxonomy: File of the groups. Default: the file of the list's project; for GLDv2 the file in hgld.
        out: JSON file to write. Default: write no file.
        figure: Image file to write, a confusion matrix of two annotators. Default: draw no figure.

    Raises:
        ConfigurationError: There are fewer than two files, two have the same name, a figure is requested
            for more than two, an output is an input, or ``out`` is a file that hgld did not write.
        InputError: A file cannot be read, a label is not in the table, or two annotators decided no label in common.
    """
    if figure is not None and len(decisions) > 2:
        raise ConfigurationError(
            f"`figure` compares two annotators, but there are {len(decisions)} files"
        )
    inputs = [path for path in (*decisions, clusters, taxonomy) if path is not None]
    for output in (out, figure):
        if output is not None:
            require_other_file(output, inputs)
    if out is not None:
        require_own_json(out, ("annotators", "disagreements", "provenance"))
    config = config or AgreementConfig()
    taxonomy = find_taxonomy(taxonomy, clusters or decisions[0])
    opinions, merged = read_opinions(decisions, read_taxonomy(taxonomy), may_be_unseen=True)
    names = {group.key: group.name for group in merged.groups}
    opinions = [annotator.with_groups(names) for annotator in opinions]
    landmarks = None
    if clusters is not None:
        landmarks = landmarks_by_label(read_table(clusters, CLUSTERS))
    agreement = measure_agreement(opinions, landmarks, config)
    agreement = replace(agreement, group_conflicts=tuple(merged.conflicts))
    if out is not None:
        changed = [path for path in map(taxonomy_beside, decisions) if path.is_file()]
        digests = input_digests(
            decisions=decisions, clusters=clusters, taxonomy=taxonomy, changed_groups=changed
        )
        document = agreement.to_json()
        document["provenance"] = vars(Provenance("agreement", {}, digests))
        text = json.dumps(document, ensure_ascii=False, indent=2)
        write_text(out, f"{text}\n")
    if figure is not None:
        order = [Category("group", group.name) for group in merged.groups]
        order += [DROPPED, UNSURE]
        unit = "labels" if clusters is None else nouns_of(clusters)[1]
        draw_confusion(figure, confusion(opinions[0], opinions[1], order, landmarks, unit))
    return agreement


def measure_agreement(
    opinions: Sequence[Opinions], landmarks: Mapping[str, int] | None, config: AgreementConfig
) -> Agreement:
    """Measure inter-annotator agreement.

    Args:
        landmarks: Number of landmarks by label_id; None to count labels only.

    Raises:
        InputError: Two annotators decided no label in common, or a label that two decided is not among ``landmarks``.
    """
    _require_common_labels(opinions)
    times_decided = Counter(label_id for annotator in opinions for label_id in annotator.decisions)
    shared = sorted(label_id for label_id, count in times_decided.items() if count >= 2)
    counts = None
    if landmarks is not None:
        require_landmark_counts(shared, opinions, landmarks)
        counts = np.array([landmarks[label_id] for label_id in shared], np.float64)
    categories, codes = _encode_categories(opinions, shared)
    everything = _subset_agreement(opinions, codes, counts, config, np.full(len(shared), True))
    assert everything is not None
    conditions = [_conditions(opinions, label_id) for label_id in shared]
    blind = np.array([condition == {True} for condition in conditions])
    weights = _bootstrap_weights(len(shared), config)
    decided = codes != MISSING
    groups = []
    for code, name in enumerate(categories):
        group = _group_agreement(str(name), codes == code, decided, counts, weights, config)
        groups.append(group)
    groups.sort(key=lambda group: (group.specific, -group.only_one, group.category))
    disagreements = []
    for label_id, row in zip(shared, codes, strict=True):
        if np.unique(row[row != MISSING]).size > 1:
            disagreements.append(_disagreement(opinions, label_id, landmarks))
    disagreements.sort(key=lambda row: (-(row.landmarks or 0), row.label, row.label_id))
    return Agreement(
        labels=everything.labels,
        by_label=everything.by_label,
        by_landmark=everything.by_landmark,
        annotators=tuple(annotator.annotator for annotator in opinions),
        single=len(times_decided) - len(shared),
        blind=_subset_agreement(opinions, codes, counts, config, blind),
        not_blind=_subset_agreement(opinions, codes, counts, config, ~blind),
        mixed=sum(condition >= {True, False} for condition in conditions),
        groups=tuple(groups),
        disagreements=tuple(disagreements),
        config=config,
    )


def confusion(
    first: Opinions,
    second: Opinions,
    order: Sequence[Category],
    landmarks: Mapping[str, int] | None,
    unit: str = "labels",
) -> Confusion:
    """Compute the confusion matrix of two annotators, without categories that were never confused.

    Args:
        first: Decisions of the annotator of the rows.
        second: Decisions of the annotator of the columns.
        order: Categories in the order of rows and columns.
        landmarks: Number of landmarks by label_id, to count landmarks; None to count labels.
        unit: Noun of the counts in the plural, for the figure.
    """
    pairs: Counter[tuple[Category, Category]] = Counter()
    for label_id in first.decisions.keys() & second.decisions.keys():
        pair = category(first.decisions[label_id]), category(second.decisions[label_id])
        pairs[pair] += 1 if landmarks is None else landmarks[label_id]
    confused: set[Category] = set()
    for pair in pairs:
        if pair[0] != pair[1]:
            confused.update(pair)
    shown = [name for name in order if name in confused]
    counts = np.array([[pairs[row, column] for column in shown] for row in shown])
    n_agreed_elsewhere = 0
    for (row, column), count in pairs.items():
        if row == column and row not in confused:
            n_agreed_elsewhere += count
    names = [str(name) for name in shown]
    return Confusion(first.annotator, second.annotator, names, counts, n_agreed_elsewhere, unit)


def _require_common_labels(opinions: Sequence[Opinions]) -> None:
    for first, second in combinations(opinions, 2):
        if not first.decisions.keys() & second.decisions.keys():
            raise InputError(
                f"{first.annotator} and {second.annotator} decided no label in common; "
                "are the files from the same dataset?"
            )


def _encode_categories(
    opinions: Sequence[Opinions], label_ids: Sequence[str]
) -> tuple[list[Category], Codes]:
    """Return the categories in use, and their codes, int64, shape (n_labels, n_annotators)."""
    chosen: dict[tuple[int, int], Category] = {}
    for row, label_id in enumerate(label_ids):
        for column, annotator in enumerate(opinions):
            if label_id in annotator.decisions:
                chosen[row, column] = category(annotator.decisions[label_id])
    categories = sorted(set(chosen.values()), key=str)
    code_by_category = {name: code for code, name in enumerate(categories)}
    codes = np.full((len(label_ids), len(opinions)), MISSING, np.int64)
    for cell, name in chosen.items():
        codes[cell] = code_by_category[name]
    return categories, codes


def _conditions(opinions: Sequence[Opinions], label_id: str) -> set[bool | None]:
    """Return the values of ``blind`` of people's decisions on a label: True, False or None (unknown)."""
    conditions = set()
    for annotator in opinions:
        decision = annotator.decisions.get(label_id)
        if decision is not None and not decision.unseen:
            conditions.add(decision.blind)
    return conditions


def _subset_agreement(
    opinions: Sequence[Opinions],
    codes: Codes,
    landmarks: Floats | None,
    config: AgreementConfig,
    rows: Booleans,
) -> SubsetAgreement | None:
    """Return the agreement on the labels selected by the mask ``rows``; None without labels."""
    n = int(rows.sum())
    if not n:
        return None
    codes = codes[rows]
    by_label = _measures(opinions, codes, _bootstrap_weights(n, config), config)
    by_landmark = None
    if landmarks is not None:
        by_landmark = _measures(opinions, codes, landmarks[rows][None], config)
    return SubsetAgreement(n, by_label, by_landmark)


def _bootstrap_weights(n: int, config: AgreementConfig) -> Floats:
    """Return weights of n labels, shape (1 + n_resamples, n): ones, then counts of bootstrap samples."""
    rng = np.random.default_rng(config.seed)
    resamples = rng.multinomial(n, np.full(n, 1 / n), size=config.n_resamples)
    return np.vstack([np.ones(n), resamples])


def _measures(
    opinions: Sequence[Opinions], codes: Codes, weights: Floats, config: AgreementConfig
) -> Measures:
    """Return the coefficients: the value from the first row of ``weights``, the interval from the rest."""
    confidence = config.confidence
    pairs = []
    for i, j in combinations(range(len(opinions)), 2):
        first = codes[:, i]
        second = codes[:, j]
        pairs.append(
            PairAgreement(
                opinions[i].annotator,
                opinions[j].annotator,
                int(np.sum((first != MISSING) & (second != MISSING))),
                _estimate(raw_agreement(first, second, weights), confidence),
                _estimate(cohen_kappa(first, second, weights), confidence),
            )
        )
    people = [column for column, annotator in enumerate(opinions) if not annotator.is_machine]
    if len(people) > 1:
        codes = codes[:, people]
    alpha = _estimate(krippendorff_alpha(codes, weights), confidence)
    return Measures(tuple(pairs), alpha)


def _estimate(values: Floats, confidence: float) -> Estimate:
    """Return the first value with the percentile interval of the other values."""
    value = float(values[0])
    if isnan(value):
        return Estimate(nan, nan, nan)
    low, high = percentile_interval(values[1:], confidence)
    return Estimate(value, low, high)


def _group_agreement(
    name: str,
    chosen: Booleans,
    decided: Booleans,
    landmarks: Floats | None,
    weights: Floats,
    config: AgreementConfig,
) -> GroupAgreement:
    """Return the agreement on a category.

    Args:
        chosen: Whether an annotator put a label into the category, shape (n_labels, n_annotators).
        decided: Whether an annotator decided a label, same shape.
        landmarks: Number of landmarks of each label, shape (n_labels,); None if unknown.
        weights: Weights of the labels, shape (n_weightings, n_labels).
    """
    n_labels, n_annotators = chosen.shape
    both = np.zeros(n_labels)
    only_one = np.zeros(n_labels)
    for first, second in combinations(range(n_annotators), 2):
        both += chosen[:, first] & chosen[:, second]
        only_one += (chosen[:, first] ^ chosen[:, second]) & decided[:, first] & decided[:, second]

    by_label = _estimate(_specific_agreement(both, only_one, weights), config.confidence)
    by_landmark = None
    if landmarks is not None:
        by_landmark = float(_specific_agreement(both, only_one, landmarks))
    interval = by_label.low, by_label.high
    return GroupAgreement(
        name, int(both.sum()), int(only_one.sum()), by_label.value, by_landmark, interval
    )


def _specific_agreement(both: Floats, only_one: Floats, weights: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        return np.asarray(2 * (weights @ both) / (weights @ (2 * both + only_one)))


def _disagreement(
    opinions: Sequence[Opinions], label_id: str, landmarks: Mapping[str, int] | None
) -> Disagreement:
    label = ""
    choices = {}
    comments = {}
    for annotator in opinions:
        decision = annotator.decisions.get(label_id)
        if decision is None:
            continue
        label = label or decision.label
        choices[annotator.annotator] = str(category(decision))
        if decision.comment:
            comments[annotator.annotator] = decision.comment
    count = None if landmarks is None else landmarks[label_id]
    return Disagreement(label_id, label, count, choices, comments)


#: Categories as integers from 0; ``MISSING`` for a missing decision.
Codes = Integers

#: Code of a unit that an annotator did not decide.
MISSING = -1


def raw_agreement(first: Codes, second: Codes, weights: Floats) -> Floats:
    """Return the weighted share of units with the same category, ``sum(w[a == b]) / sum(w)``.

    Only units that both annotators decided count.

    Args:
        first: Categories chosen by one annotator, int64, shape (n,).
        second: Categories chosen by the other annotator, int64, shape (n,).
        weights: Weights of the units, shape (..., n); each row is one weighting.

    Returns:
        Agreement for each weighting, shape (...,); NaN where the total weight is 0.

    >>> float(raw_agreement(np.array([0, 1, 1]), np.array([0, 1, 0]), np.array([1.0, 1.0, 2.0])))
    0.5
    """
    first, second, weights = _decided_by_both(first, second, weights)
    with np.errstate(invalid="ignore"):
        return np.asarray((weights @ (first == second)) / weights.sum(axis=-1))


def cohen_kappa(first: Codes, second: Codes, weights: Floats) -> Floats:
    """Return Cohen's kappa, ``(p_o - p_e) / (1 - p_e)``.

    ``p_o`` is the raw agreement and ``p_e = sum_c p_c q_c``, where ``p_c`` and ``q_c`` are the weighted shares of
    category c in the decisions of the two annotators.

    Returns:
        Kappa for each weighting, shape (...,); NaN if both annotators use one and the same category only.

    >>> float(cohen_kappa(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 0]), np.ones(4)))
    0.5
    """
    first, second, weights = _decided_by_both(first, second, weights)
    observed = raw_agreement(first, second, weights)
    n_categories = 1 + int(max(first.max(initial=0), second.max(initial=0)))
    with np.errstate(invalid="ignore", divide="ignore"):
        totals = weights.sum(axis=-1, keepdims=True)
        first_shares = weights @ np.eye(n_categories)[first] / totals
        second_shares = weights @ np.eye(n_categories)[second] / totals
        expected = (first_shares * second_shares).sum(axis=-1)
        return np.asarray((observed - expected) / (1 - expected))


def krippendorff_alpha(codes: Codes, weights: Floats) -> Floats:
    """Return Krippendorff's alpha for nominal data, ``1 - D_o / D_e``.

    Let ``n_uc`` be the number of annotators who put unit u into category c and ``m_u = sum_c n_uc``. All sums are
    over the units with ``m_u >= 2``::

        D_o = sum_u w_u (m_u^2 - sum_c n_uc^2) / (m_u - 1)
        D_e = (n^2 - sum_c n_c^2) / (n - 1),    n_c = sum_u w_u n_uc,    n = sum_c n_c

    Both are off-diagonal sums of the coincidence matrices in Krippendorff's paper, with each unit counted
    ``w_u`` times.

    Args:
        codes: Categories chosen by the annotators, int64, shape (n, n_annotators).

    Returns:
        Alpha for each weighting, shape (...,); NaN where only one category is used.

    >>> round(float(krippendorff_alpha(np.array([[0, 0], [1, 1], [0, 1], [0, MISSING]]), np.ones(4))), 3)
    0.444
    """
    counts = (codes[:, :, None] == np.arange(codes.max(initial=0) + 1)).sum(axis=1)
    pairable = counts.sum(axis=1) >= 2
    counts, weights = counts[pairable], weights[..., pairable]
    decided = counts.sum(axis=1)
    totals = weights @ counts
    n = totals.sum(axis=-1)
    observed = weights @ ((decided**2 - (counts**2).sum(axis=1)) / (decided - 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(1 - observed * (n - 1) / (n**2 - (totals**2).sum(axis=-1)))


def _decided_by_both(first: Codes, second: Codes, weights: Floats) -> tuple[Codes, Codes, Floats]:
    both = (first != MISSING) & (second != MISSING)
    return first[both], second[both], weights[..., both]
