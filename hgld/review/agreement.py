"""The stage ``agreement``: how far annotators agree, by label and by landmark, and where they do not.

A label is a unit, an annotator's decision on it one of the categories: a group, dropped, or unsure. By landmark,
every landmark counts as a unit that was given its label's decision. The measures are those of
:mod:`hgld.review.coefficients`, and for each group the proportion of specific agreement (D. V. Cicchetti and A. R.
Feinstein, "High agreement but low kappa: II", Journal of Clinical Epidemiology 43, 1990).

Intervals are percentiles over bootstrap samples of the labels, also where landmarks are counted: the landmarks of a
label were not decided one by one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from math import isnan, nan
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgld.errors import ConfigurationError, InputError
from hgld.figures.agreement import Confusion, draw_confusion
from hgld.io.files import atomic_write
from hgld.resources import annotation_file
from hgld.review.coefficients import MISSING, Codes, Floats, cohen_kappa, krippendorff_alpha, raw_agreement
from hgld.review.opinions import DROP, UNSURE, Opinions, category, check_known, landmarks_by_label, read_opinions
from hgld.tables import CLUSTERS, Provenance, digests, read_table
from hgld.taxonomy.groups import read_taxonomy


@dataclass(frozen=True)
class AgreementConfig:
    """Settings of the intervals.

    Args:
        n_resamples: bootstrap samples.
        confidence: how much of them the interval holds.
        seed: the same seed gives the same intervals.

    Raises:
        ConfigurationError: no samples, or a confidence that is none.
    """

    n_resamples: int = 1000
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n_resamples < 1:
            raise ConfigurationError(f"{self.n_resamples} bootstrap samples; take one or more, e.g. 1000")
        if not 0 < self.confidence < 1:
            raise ConfigurationError(f"the confidence is {self.confidence}; expected between 0 and 1, e.g. 0.95")


@dataclass(frozen=True)
class Estimate:
    """A value with its interval; NaN where it is undefined."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class PairAgreement:
    """How far two annotators agree on the labels that both decided."""

    first: str
    second: str
    labels: int
    raw: Estimate
    kappa: Estimate


@dataclass(frozen=True)
class Measures:
    """How far annotators agree under one weighting: every two of them, and all together."""

    pairs: tuple[PairAgreement, ...]
    alpha: Estimate


@dataclass(frozen=True)
class GroupAgreement:
    """How far two annotators mean the same by a category; with more of them, summed over every two.

    Args:
        category: the group, ``DROP`` or ``UNSURE``.
        both: labels that both put into it.
        one: labels that one of the two put into it and the other elsewhere.
        specific: the proportion of specific agreement, ``2 both / (2 both + one)``.
        specific_by_landmark: the same, counting landmarks; None where they are not known.
    """

    category: str
    both: int
    one: int
    specific: float
    specific_by_landmark: float | None


@dataclass(frozen=True)
class Disagreement:
    """A label that two annotators or more put into different categories.

    Args:
        label_id: its id.
        label: the label.
        landmarks: how many landmarks have it; None where that is not known.
        opinions: the category by annotator, for those who decided it.
        comments: what they wrote, for those who wrote something.
    """

    label_id: str
    label: str
    landmarks: int | None
    opinions: Mapping[str, str]
    comments: Mapping[str, str]


@dataclass(frozen=True)
class Agreement:
    """How far annotators agree.

    Args:
        annotators: their names.
        labels: labels that two or more of them decided.
        single: labels that only one decided, which tell nothing.
        by_label: measures that count labels.
        by_landmark: measures that count landmarks; None where they are not known.
        groups: for each category that was used, least agreement first.
        disagreements: most landmarks first.
        config: settings of the intervals.
    """

    annotators: tuple[str, ...]
    labels: int
    single: int
    by_label: Measures
    by_landmark: Measures | None
    groups: tuple[GroupAgreement, ...]
    disagreements: tuple[Disagreement, ...]
    config: AgreementConfig

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values; what is undefined is null."""
        found = _without_nan(asdict(self))
        assert isinstance(found, dict)
        return found


def agreement_files(
    decisions: Sequence[Path],
    config: AgreementConfig | None = None,
    *,
    clusters: Path | None = None,
    taxonomy: Path | None = None,
    out: Path | None = None,
    figure: Path | None = None,
) -> Agreement:
    """Measure how far annotators agree.

    Args:
        decisions: a file for each annotator, named after them.
        config: settings of the intervals.
        clusters: the ``clusters`` table, for the number of landmarks; without it labels alone are counted.
        taxonomy: the groups; those that come with hgld by default.
        out: a JSON file to write everything to.
        figure: a picture to draw of which groups were taken for which; of two annotators.

    Raises:
        ConfigurationError: fewer than two files, two of the same name, or a figure of more than two.
        InputError: a file cannot be read, a label is not in the table, or two annotators decided no label in
            common.
    """
    if figure is not None and len(decisions) > 2:
        raise ConfigurationError("--figure shows two annotators; give two files")
    config = config or AgreementConfig()
    taxonomy = annotation_file("taxonomy.csv") if taxonomy is None else taxonomy
    groups = [group.name for group in read_taxonomy(taxonomy)]
    opinions = read_opinions(decisions, groups)
    landmarks = None
    if clusters is not None:
        landmarks = landmarks_by_label(read_table(clusters, CLUSTERS))
    found = measure_agreement(opinions, landmarks, config)
    if out is not None:
        inputs = digests(decisions=decisions, clusters=clusters, taxonomy=taxonomy)
        made = Provenance("agreement", {}, inputs)
        with atomic_write(out) as draft:
            text = json.dumps({**found.to_json(), "provenance": vars(made)}, ensure_ascii=False, indent=2)
            draft.write_text(f"{text}\n", encoding="utf-8")
    if figure is not None:
        draw_confusion(figure, confusion(opinions[0], opinions[1], [*groups, DROP, UNSURE], landmarks))
    return found


def measure_agreement(
    opinions: Sequence[Opinions], landmarks: Mapping[str, int] | None, config: AgreementConfig
) -> Agreement:
    """Measure how far annotators agree.

    Args:
        opinions: of two annotators or more.
        landmarks: how many landmarks have a label, by label_id; None to count labels alone.
        config: settings of the intervals.

    Raises:
        InputError: two annotators decided no label in common, or a label that two decided is not among
            ``landmarks``.
    """
    for first, second in combinations(opinions, 2):
        if not first.decisions.keys() & second.decisions.keys():
            raise InputError(
                f"{first.name} and {second.name} decided no label in common; are the files of the same dataset?"
            )
    times = Counter(label_id for one in opinions for label_id in one.decisions)
    shared = sorted(label_id for label_id, count in times.items() if count >= 2)
    if landmarks is not None:
        check_known(shared, opinions, landmarks)
    chosen = [[category(one.decisions[key]) if key in one.decisions else None for one in opinions] for key in shared]
    names = sorted({choice for choices in chosen for choice in choices if choice is not None})
    code = {name: number for number, name in enumerate(names)}
    codes = np.array([[MISSING if choice is None else code[choice] for choice in choices] for choices in chosen])

    rng = np.random.default_rng(config.seed)
    resamples = rng.multinomial(len(shared), np.full(len(shared), 1 / len(shared)), size=config.n_resamples)
    by_label = np.vstack([np.ones(len(shared)), resamples])
    counts = None if landmarks is None else np.array([float(landmarks[label_id]) for label_id in shared])
    disagreements = [
        _disagreement(opinions, label_id, landmarks)
        for label_id, choices in zip(shared, chosen, strict=True)
        if len({choice for choice in choices if choice is not None}) > 1
    ]
    return Agreement(
        annotators=tuple(one.name for one in opinions),
        labels=len(shared),
        single=len(times) - len(shared),
        by_label=_measures(opinions, codes, by_label, config),
        by_landmark=None if counts is None else _measures(opinions, codes, by_label * counts, config),
        groups=tuple(
            sorted(
                (_group_agreement(name, codes == code[name], codes != MISSING, counts) for name in names),
                key=lambda group: (group.specific, -group.one, group.category),
            )
        ),
        disagreements=tuple(sorted(disagreements, key=lambda one: (-(one.landmarks or 0), one.label, one.label_id))),
        config=config,
    )


def confusion(
    first: Opinions, second: Opinions, order: Sequence[str], landmarks: Mapping[str, int] | None
) -> Confusion:
    """Which categories were taken for which.

    Args:
        first: the decisions of one annotator.
        second: those of the other.
        order: all categories, in the order to show them in.
        landmarks: how many landmarks have a label, by label_id; None to count labels.
    """
    pairs: Counter[tuple[str, str]] = Counter()
    for label_id in first.decisions.keys() & second.decisions.keys():
        two = category(first.decisions[label_id]), category(second.decisions[label_id])
        pairs[two] += 1 if landmarks is None else landmarks[label_id]
    mixed = {name for two in pairs for name in two if two[0] != two[1]}
    names = [name for name in order if name in mixed]
    counts = np.array([[pairs[row, column] for column in names] for row in names])
    agreed = sum(count for (one, other), count in pairs.items() if one == other and one not in mixed)
    return Confusion(first.name, second.name, names, counts, agreed, "labels" if landmarks is None else "landmarks")


def _measures(opinions: Sequence[Opinions], codes: Codes, weights: Floats, config: AgreementConfig) -> Measures:
    """Measures for ``weights`` whose first row is for the value and whose others are for the interval."""
    pairs = []
    for first, second in combinations(range(len(opinions)), 2):
        two = codes[:, first], codes[:, second]
        pairs.append(
            PairAgreement(
                opinions[first].name,
                opinions[second].name,
                int(np.sum((two[0] != MISSING) & (two[1] != MISSING))),
                _estimate(raw_agreement(*two, weights), config.confidence),
                _estimate(cohen_kappa(*two, weights), config.confidence),
            )
        )
    return Measures(tuple(pairs), _estimate(krippendorff_alpha(codes, weights), config.confidence))


def _estimate(values: Floats, confidence: float) -> Estimate:
    """The first value, with the percentiles of the others as far as they are defined."""
    samples = values[1:][~np.isnan(values[1:])]
    if isnan(values[0]) or not len(samples):
        return Estimate(float(values[0]), nan, nan)
    low, high = np.quantile(samples, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(float(values[0]), float(low), float(high))


def _group_agreement(
    name: str, chosen: NDArray[np.bool_], decided: NDArray[np.bool_], landmarks: Floats | None
) -> GroupAgreement:
    """From who chose the category and who decided at all, both of shape (n, n_annotators)."""
    n_labels, n_annotators = chosen.shape
    both, one = np.zeros(n_labels), np.zeros(n_labels)
    for first, second in combinations(range(n_annotators), 2):
        both += chosen[:, first] & chosen[:, second]
        one += (chosen[:, first] ^ chosen[:, second]) & decided[:, first] & decided[:, second]

    def specific(weights: Floats) -> float:
        return float(2 * weights @ both / (weights @ (2 * both + one)))

    by_landmark = None if landmarks is None else specific(landmarks)
    return GroupAgreement(name, int(both.sum()), int(one.sum()), specific(np.ones(n_labels)), by_landmark)


def _disagreement(opinions: Sequence[Opinions], label_id: str, landmarks: Mapping[str, int] | None) -> Disagreement:
    rows = {one.name: one.decisions[label_id] for one in opinions if label_id in one.decisions}
    return Disagreement(
        label_id,
        next(iter(rows.values())).label,
        None if landmarks is None else landmarks[label_id],
        {name: category(row) for name, row in rows.items()},
        {name: row.comment for name, row in rows.items() if row.comment},
    )


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and isnan(value) else value
