"""The stage ``agreement``: measure inter-annotator agreement, by label and by landmark, and list disagreements.

Units are labels; the category of a decision is its group, dropped or unsure. By landmark, every landmark counts as a
unit with the decision on its label. The coefficients are

- raw agreement: share of units that two annotators put into the same category;
- Cohen's kappa: agreement of two annotators beyond chance, given how often each uses every category (J. Cohen,
  "A Coefficient of Agreement for Nominal Scales", Educational and Psychological Measurement 20, 1960);
- Krippendorff's alpha for nominal data: agreement of any number of annotators with missing values (K. Krippendorff,
  "Computing Krippendorff's Alpha-Reliability", 2011);
- for each group the proportion of specific agreement (D. V. Cicchetti and A. R. Feinstein, "High agreement but low
  kappa: II", Journal of Clinical Epidemiology 43, 1990).

All take weights of the units; an integer weight w is equivalent to w equal units. Several weightings can be passed at
once, as a bootstrap needs them.

Agreement is also measured apart on the labels that all their annotators decided blind, without seeing suggestions,
and on the others, because annotators who saw the same suggestions may agree more.

Intervals are percentiles over bootstrap samples of the labels. Where landmarks are counted there are no intervals:
the landmarks of a label are decided together, most landmarks have one of a few labels, and percentiles over samples
of so few labels hold too seldom (``benchmarks/bootstrap_intervals.py``).
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
    """A coefficient with its interval; NaN where it is undefined. By landmark, the interval is NaN."""

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
    """Coefficients under one weighting: of every two annotators, and of all, or of people if there are several."""

    pairs: tuple[PairAgreement, ...]
    alpha: Estimate


@dataclass(frozen=True)
class SubsetAgreement:
    """Agreement on some of the labels.

    Args:
        labels: Number of labels that two or more annotators decided.
        by_label: Coefficients with every label counted once.
        by_landmark: Coefficients with every landmark counted once; None if their numbers are unknown.
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
        specific_by_landmark: The same, counting landmarks; None if their numbers are unknown.
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
        single: Number of labels that only one annotator decided; they are not part of any measure.
        blind: Agreement on labels that all annotators who decided them decided without seeing suggestions; None if
            there are none.
        not_blind: Agreement on the other labels; None if there are none.
        mixed: Number of labels that one annotator decided blind and another with suggestions.
        groups: Agreement on each category in use, the least agreement first.
        disagreements: Labels in different categories, those with most landmarks first.
        group_conflicts: Groups that annotators name differently; these do not count as disagreements.
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
        return {name: _without_nan(value) for name, value in asdict(self).items()}


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and isnan(value) else value


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
        clusters: Clusters from hgld cluster, to count landmarks as well as labels. Default: none.
        taxonomy: File of the groups; by default that of the list's project, for GLDv2 the one in hgld.
        out: JSON file to write. Default: none.
        figure: Image file to write, of the groups that two annotators confused. Default: none.

    Raises:
        ConfigurationError: There are fewer than two files, two have the same name, or a figure is asked for with
            more than two, an output is an input, or ``out`` is a file that hgld did not write.
        InputError: A file cannot be read, a label is not in the table, or two annotators decided no label in common.
    """
    if figure is not None and len(decisions) > 2:
        raise ConfigurationError(
            f"`figure` compares two annotators, but there are {len(decisions)} files"
        )
    for path in filter(None, (out, figure)):
        require_other_file(path, [*decisions, *filter(None, (clusters, taxonomy))])
    if out is not None:
        require_own_json(out, ("annotators", "disagreements", "provenance"))
    config = config or AgreementConfig()
    taxonomy = find_taxonomy(taxonomy, clusters or decisions[0])
    opinions, merged = read_opinions(decisions, read_taxonomy(taxonomy), may_be_unseen=True)
    opinions = [
        each.with_groups({group.key: group.name for group in merged.groups}) for each in opinions
    ]
    landmarks = None
    if clusters is not None:
        landmarks = landmarks_by_label(read_table(clusters, CLUSTERS))
    agreement = replace(
        measure_agreement(opinions, landmarks, config), group_conflicts=tuple(merged.conflicts)
    )
    if out is not None:
        changed = [path for path in map(taxonomy_beside, decisions) if path.is_file()]
        inputs = input_digests(
            decisions=decisions, clusters=clusters, taxonomy=taxonomy, changed_groups=changed
        )
        made = vars(Provenance("agreement", {}, inputs))
        text = json.dumps({**agreement.to_json(), "provenance": made}, ensure_ascii=False, indent=2)
        write_text(out, f"{text}\n")
    if figure is not None:
        groups = [Category("group", group.name) for group in merged.groups]
        unit = "labels" if clusters is None else nouns_of(clusters)[1]
        draw_confusion(
            figure,
            confusion(opinions[0], opinions[1], [*groups, DROPPED, UNSURE], landmarks, unit),
        )
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
    if landmarks is not None:
        require_landmark_counts(shared, opinions, landmarks)
    categories, codes = _encode_categories(opinions, shared)
    counts = (
        None if landmarks is None else np.array([float(landmarks[label_id]) for label_id in shared])
    )
    everything = _subset_agreement(opinions, codes, counts, config, np.full(len(shared), True))
    assert everything is not None
    conditions = [_conditions(opinions, label_id) for label_id in shared]
    blind = np.array([seen == {True} for seen in conditions])
    weights = _bootstrap_weights(len(shared), config)
    groups = [
        _group_agreement(str(each), codes == code, codes != MISSING, counts, weights, config)
        for code, each in enumerate(categories)
    ]
    disagreements = [
        _disagreement(opinions, label_id, landmarks)
        for label_id, row in zip(shared, codes, strict=True)
        if len(set(row[row != MISSING].tolist())) > 1
    ]
    return Agreement(
        **vars(everything),
        annotators=tuple(annotator.annotator for annotator in opinions),
        single=len(times_decided) - len(shared),
        blind=_subset_agreement(opinions, codes, counts, config, blind),
        not_blind=_subset_agreement(opinions, codes, counts, config, ~blind),
        mixed=sum(seen >= {True, False} for seen in conditions),
        groups=tuple(
            sorted(groups, key=lambda group: (group.specific, -group.only_one, group.category))
        ),
        disagreements=tuple(
            sorted(disagreements, key=lambda row: (-(row.landmarks or 0), row.label, row.label_id))
        ),
        config=config,
    )


def confusion(
    first: Opinions,
    second: Opinions,
    order: Sequence[Category],
    landmarks: Mapping[str, int] | None,
    unit: str = "labels",
) -> Confusion:
    """Count how often two annotators chose which categories, in this order, for the same label.

    Args:
        first: Decisions of the annotator of the rows.
        second: Decisions of the annotator of the columns.
        order: Categories in the order of rows and columns; those without a disagreement are left out.
        landmarks: Number of landmarks by label_id, to count them; None to count labels.
        unit: What is counted, in the plural, as the figure says it.
    """
    pairs: Counter[tuple[Category, Category]] = Counter()
    for label_id in first.decisions.keys() & second.decisions.keys():
        pair = category(first.decisions[label_id]), category(second.decisions[label_id])
        pairs[pair] += 1 if landmarks is None else landmarks[label_id]
    confused = {each for pair in pairs for each in pair if pair[0] != pair[1]}
    shown = [each for each in order if each in confused]
    counts = np.array([[pairs[row, column] for column in shown] for row in shown])
    elsewhere = sum(
        count for (row, column), count in pairs.items() if row == column and row not in confused
    )
    return Confusion(
        first.annotator, second.annotator, [str(each) for each in shown], counts, elsewhere, unit
    )


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
    """Return the categories in use, and their numbers by label and annotator, shape (n_labels, n_annotators)."""
    rows = [
        [
            category(annotator.decisions[key]) if key in annotator.decisions else None
            for annotator in opinions
        ]
        for key in label_ids
    ]
    categories = sorted({each for row in rows for each in row if each is not None}, key=str)
    code = {each: number for number, each in enumerate(categories)}
    return categories, np.array(
        [[MISSING if each is None else code[each] for each in row] for row in rows]
    )


def _conditions(opinions: Sequence[Opinions], label_id: str) -> set[bool | None]:
    """Return whether people decided a label blind: True, False and None (unknown), as far as they occur."""
    rows = (annotator.decisions.get(label_id) for annotator in opinions)
    return {row.blind for row in rows if row is not None and not row.unseen}


def _subset_agreement(
    opinions: Sequence[Opinions],
    codes: Codes,
    landmarks: Floats | None,
    config: AgreementConfig,
    rows: Booleans,
) -> SubsetAgreement | None:
    """Return the agreement on the labels in ``rows``; None if there are none."""
    n = int(rows.sum())
    if not n:
        return None
    by_label = _bootstrap_weights(n, config)
    return SubsetAgreement(
        labels=n,
        by_label=_measures(opinions, codes[rows], by_label, config),
        by_landmark=None
        if landmarks is None
        else _measures(opinions, codes[rows], landmarks[rows][None], config),
    )


def _bootstrap_weights(n: int, config: AgreementConfig) -> Floats:
    """Return weights of n labels: all once, then for each bootstrap sample how often it has them."""
    resamples = np.random.default_rng(config.seed).multinomial(
        n, np.full(n, 1 / n), size=config.n_resamples
    )
    return np.vstack([np.ones(n), resamples])


def _measures(
    opinions: Sequence[Opinions], codes: Codes, weights: Floats, config: AgreementConfig
) -> Measures:
    """Return the coefficients; the first row of ``weights`` is for the value, further ones are for the interval."""
    pairs = []
    for first, second in combinations(range(len(opinions)), 2):
        columns = codes[:, first], codes[:, second]
        pairs.append(
            PairAgreement(
                opinions[first].annotator,
                opinions[second].annotator,
                int(np.sum((columns[0] != MISSING) & (columns[1] != MISSING))),
                _estimate(raw_agreement(*columns, weights), config.confidence),
                _estimate(cohen_kappa(*columns, weights), config.confidence),
            )
        )
    people = [number for number, annotator in enumerate(opinions) if not annotator.is_machine]
    codes = codes[:, people] if len(people) > 1 else codes
    return Measures(tuple(pairs), _estimate(krippendorff_alpha(codes, weights), config.confidence))


def _estimate(values: Floats, confidence: float) -> Estimate:
    """Return the first value with the percentiles of the others, NaN where there are none."""
    interval = (nan, nan) if isnan(values[0]) else percentile_interval(values[1:], confidence)
    return Estimate(float(values[0]), *interval)


def _group_agreement(
    name: str,
    chosen: Booleans,
    decided: Booleans,
    landmarks: Floats | None,
    weights: Floats,
    config: AgreementConfig,
) -> GroupAgreement:
    """Return the agreement on a category, given who chose it and who decided, both (n_labels, n_annotators)."""
    n_labels, n_annotators = chosen.shape
    both, only_one = np.zeros(n_labels), np.zeros(n_labels)
    for first, second in combinations(range(n_annotators), 2):
        both += chosen[:, first] & chosen[:, second]
        only_one += (chosen[:, first] ^ chosen[:, second]) & decided[:, first] & decided[:, second]

    def specific(weights: Floats) -> Floats:
        with np.errstate(invalid="ignore"):
            return np.asarray(2 * (weights @ both) / (weights @ (2 * both + only_one)))

    by_label = _estimate(specific(weights), config.confidence)
    by_landmark = None if landmarks is None else float(specific(landmarks))
    interval = by_label.low, by_label.high
    return GroupAgreement(
        name, int(both.sum()), int(only_one.sum()), by_label.value, by_landmark, interval
    )


def _disagreement(
    opinions: Sequence[Opinions], label_id: str, landmarks: Mapping[str, int] | None
) -> Disagreement:
    rows = {
        annotator.annotator: annotator.decisions[label_id]
        for annotator in opinions
        if label_id in annotator.decisions
    }
    return Disagreement(
        label_id,
        next(iter(rows.values())).label,
        None if landmarks is None else landmarks[label_id],
        {name: str(category(row)) for name, row in rows.items()},
        {name: row.comment for name, row in rows.items() if row.comment},
    )


#: Categories, numbered from 0; ``MISSING`` where there is no decision.
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
        Kappa for each weighting, shape (...,); NaN where both annotators use only one category, the same.

    >>> float(cohen_kappa(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 0]), np.ones(4)))
    0.5
    """
    first, second, weights = _decided_by_both(first, second, weights)
    observed = raw_agreement(first, second, weights)
    n_categories = 1 + int(max(first.max(initial=0), second.max(initial=0)))
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = [
            weights @ np.eye(n_categories)[codes] / weights.sum(axis=-1, keepdims=True)
            for codes in (first, second)
        ]
        expected = (shares[0] * shares[1]).sum(axis=-1)
        return np.asarray((observed - expected) / (1 - expected))


def krippendorff_alpha(codes: Codes, weights: Floats) -> Floats:
    """Return Krippendorff's alpha for nominal data, ``1 - D_o / D_e``.

    Let ``n_uc`` be the number of annotators who put unit u into category c and ``m_u = sum_c n_uc``. All sums are
    over the units with ``m_u >= 2``::

        D_o = sum_u w_u (m_u^2 - sum_c n_uc^2) / (m_u - 1)
        D_e = (n^2 - sum_c n_c^2) / (n - 1),    n_c = sum_u w_u n_uc,    n = sum_c n_c

    These are the off-diagonal sums of the paper's matrices of observed and expected coincidences, in which each unit
    counts ``w_u`` times.

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
