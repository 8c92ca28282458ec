"""Probability that annotators choose a group for a label, computed from the evidence.

Scores come from a multinomial logistic model: the logit of a group is the weighted sum of its
features (:func:`features`). The weaker kinds of evidence (endings and similarity) and "no group"
have two weights each: the first applies as far as no stronger kind has evidence for the label, the
second as far as a stronger kind is certain. So a score means the same with and without
superclasses.

Kinds of evidence that agree are not independent, and annotators do not always follow them, so the
model is overconfident. The scores of a label are therefore multiplied by ``RELIABILITY`` of the
evidence for its first suggestion. For terms and similarity the reliability is an upper limit
instead, since lower scores from these kinds alone are not too high.

``WEIGHTS`` belong to H-GLDv2's taxonomy, also with changes. Other taxonomies, of products or
species, have
``OTHER_WEIGHTS``: labels and their superclasses are compared with the names of groups and of the
levels above, and groups that attract too many labels become less likely (:func:`balance`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hgld.arrays import Floats, Integers
from hgld.labels.evidence import EVIDENCE_KINDS, Evidence

#: Weights of the features that :func:`features` returns.
#:
#: Fitted by ``benchmarks/suggestion_weights.py`` to one half of the development set in
#: ``annotations/development``, whose labels are from all over the world. They are not fitted again
#: as decisions come in: scores stay comparable, and the decision on a label cannot influence its
#: own suggestions.
WEIGHTS: Mapping[str, float] = {
    "term": 1.45,
    "superclass": 2.06,
    "farther_superclass": 1.90,
    "ending": 1.25,
    "ending_beside_stronger": 0.99,
    "similar": 1.26,
    "similar_beside_stronger": 0.55,
    "no_group": 1.66,
    "no_group_beside_stronger": 1.66,
}
#: Reliability of the scores by kind of evidence: the share of correct first suggestions among
#: suggestions with a score of 0.9 or more (lower end of the 95 % Wilson interval), divided by their
#: mean score.
#:
#: Measured by ``benchmarks/suggestion_weights.py`` on labels that the weights were not fitted to:
#: by cross-validation within the same half, and on the names of released landmarks, whose groups
#: are independent of the vocabulary. The values of "similar", "names" and "decided" are rough: too
#: few suggestions by similarity have such scores.
RELIABILITY: Mapping[str, float] = {
    "term": 0.953,
    "superclass": 0.949,
    "farther_superclass": 0.667,
    "ending": 0.927,
    "similar": 0.9,
    "names": 0.95,
    "decided": 0.95,
}
#: Kinds for which the reliability is an upper limit of scores, not a factor.
_CAPPED = ("term", "similar", "names", "decided")
#: Weights for taxonomies other than H-GLDv2's.
#:
#: The weights of names and of no group were fitted to lists of five domains (CIFAR-100, COCO,
#: indoor scenes, groceries, landmarks). The errors of the two best pairs differ by 0.004; this is
#: the pair with the larger weight of no group, which gives lower scores. The weight of decided
#: labels was chosen on lists of nine other domains (such as sports, minerals, languages and dishes,
#: with trees of three levels).
OTHER_WEIGHTS: Mapping[str, float] = {
    **WEIGHTS,
    "similar": 2.2,
    "names": 2.2,
    "decided": 0.6,
    "no_group": 0.5,
}
#: Strength of :func:`balance`, chosen on the same lists: 0 changes nothing, 1 halves differences of
#: log frequency.
_BALANCE = 2.0
_BALANCE_STEPS = 60
#: Pseudocount that is added to shares before their logarithm.
_SMALL_SHARE = 0.05
#: Smallest share with which a kind of evidence is the reason for a suggestion.
_REASON_SHARE = 0.25


def score_groups(evidence: Sequence[Evidence]) -> Floats:
    """Return the probability that annotators choose each group: float64, shape (n_labels, n_groups).

    The scores are a softmax over the logits of the groups and of no group, reduced by
    ``RELIABILITY``. So the scores of a label add up to less than 1, and to little without evidence.
    """
    weights = _weights(evidence)
    values = features(evidence)
    decided = values.pop("decided")
    weighted = [weights[name] * value for name, value in values.items() if name in weights]
    logits = np.sum(weighted, axis=0)
    if weights is OTHER_WEIGHTS:
        # Decisions say which groups are frequent, so the logits of decided labels are not balanced.
        logits = balance(logits) + weights["decided"] * decided
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    scores = exponentials[:, :-1] / exponentials.sum(axis=1, keepdims=True)
    first_groups = scores.argmax(axis=1)[:, None]
    first_scores = np.take_along_axis(scores, first_groups, axis=1)
    first_kinds = np.take_along_axis(strongest_kinds(evidence), first_groups, axis=1)
    reliability = np.array([RELIABILITY[kind] for kind in EVIDENCE_KINDS])[first_kinds]
    is_capped = np.isin(first_kinds, [EVIDENCE_KINDS.index(kind) for kind in _CAPPED])
    factor_to_cap = np.minimum(reliability / first_scores, 1)
    return np.asarray(scores * np.where(is_capped, factor_to_cap, reliability))


def _weights(evidence: Sequence[Evidence]) -> Mapping[str, float]:
    """Return the weights for evidence with or without the kind "names"."""
    has_names = evidence[EVIDENCE_KINDS.index("names")].values.any()
    return OTHER_WEIGHTS if has_names else WEIGHTS


def balance(logits: Floats) -> Floats:
    """Lower the logits of groups that attract many labels, and raise the logits of the others.

    Some names are similar to most texts and others to few, whatever the names mean. Each group g gets the same
    summand for all labels, found by fixed-point iteration::

        shift_g = -_BALANCE * log((attracted_g + 1) / (mean of attracted + 1))

    where ``attracted_g`` is the sum of the probabilities of the group over all labels, given the
    shifts. Adding 1 keeps the shifts of short lists small.

    Args:
        logits: float64, shape (n_labels, n_groups + 1); the last column is for no group.
    """
    shift = np.zeros(logits.shape[1] - 1)
    for _ in range(_BALANCE_STEPS):
        highest = logits.max(axis=1, keepdims=True)
        groups = np.exp(logits[:, :-1] + shift - highest)
        no_group = np.exp(logits[:, -1:] - highest)
        probabilities = groups / (groups.sum(axis=1, keepdims=True) + no_group)
        attracted = probabilities.sum(axis=0)
        target = -_BALANCE * np.log((attracted + 1) / (attracted.mean() + 1))
        shift += (target - shift) / (1 + 2 * _BALANCE)  # whole steps would oscillate
    return np.concatenate([logits[:, :-1] + shift, logits[:, -1:]], axis=1)


def features(evidence: Sequence[Evidence]) -> dict[str, Floats]:
    """Return the features that the weights multiply.

    Shares enter by their logarithm, as in a product of probabilities. The certainty of a kind of
    evidence about a label is the sum of its shares.

    Returns:
        For each of ``OTHER_WEIGHTS``, float64, shape (n_labels, n_groups + 1).
    """
    values = {kind: part.values for kind, part in zip(EVIDENCE_KINDS, evidence, strict=True)}
    term_certainty = values["term"].sum(axis=1, keepdims=True)
    superclasses = values["superclass"] + values["farther_superclass"]
    certainty = np.maximum(term_certainty, superclasses.sum(axis=1, keepdims=True))
    ending_certainty = values["ending"].sum(axis=1, keepdims=True)
    certainty_with_ending = np.maximum(certainty, ending_certainty)
    term = np.log1p(values["term"] / _SMALL_SHARE)
    superclass = np.log1p(values["superclass"] / _SMALL_SHARE)
    farther_superclass = np.log1p(values["farther_superclass"] / _SMALL_SHARE)
    ending = np.log1p(values["ending"] / _SMALL_SHARE)
    # A term of a group is in that group, however many labels below the same superclass were
    # dropped.
    superclass[:, -1:] *= 1 - term_certainty
    farther_superclass[:, -1:] *= 1 - term_certainty
    # Similarity to a group's names counts once; other examples add only what exceeds it.
    similar = np.maximum(values["similar"] - np.maximum(values["names"], 0), 0)
    no_group = np.zeros_like(term)
    no_group[:, -1] = 1
    return {
        "term": term,
        "superclass": superclass,
        "farther_superclass": farther_superclass,
        "ending": ending * (1 - certainty),
        "ending_beside_stronger": ending * certainty,
        "similar": similar * (1 - certainty),
        # A term is its own nearest example: the cosine would only repeat the term, in a unit of the
        # encoder.
        "similar_beside_stronger": similar * certainty * (1 - term_certainty),
        "names": values["names"] * (1 - certainty),
        "decided": values["decided"] * (1 - certainty),
        "no_group": no_group * (1 - certainty_with_ending),
        "no_group_beside_stronger": no_group * certainty_with_ending,
    }


def strongest_kinds(evidence: Sequence[Evidence]) -> Integers:
    """Return the kind of evidence behind each suggestion, as an index into ``EVIDENCE_KINDS``.

    It is the strongest kind that gives the group a share of ``_REASON_SHARE`` or more. If no kind
    does, it is the kind with the largest weighted value.

    Returns:
        int64, shape (n_labels, n_groups).
    """
    weights = _weights(evidence)
    weighted = {}
    for name, value in features(evidence).items():
        weighted[name] = weights.get(name, 0) * value[:, :-1]
    weighted["ending"] += weighted["ending_beside_stronger"]
    # Beside a term of another group, similarity adds nothing to the logit, but is the only evidence
    # to name.
    similar = evidence[EVIDENCE_KINDS.index("similar")].values[:, :-1]
    weighted["similar"] = weights["similar"] * similar
    if weights is OTHER_WEIGHTS:
        # Every group has names: they are the reason if all other kinds are 0, however small their
        # value is.
        weighted["names"] = np.maximum(weighted["names"], 1e-6)
    largest = np.argmax([weighted[kind] for kind in EVIDENCE_KINDS], axis=0)
    # The first four kinds are shares; the others are similarities.
    is_reason = np.stack([part.values[:, :-1] >= _REASON_SHARE for part in evidence[:4]])
    kinds = np.where(is_reason.any(axis=0), is_reason.argmax(axis=0), largest)
    return np.asarray(kinds, np.int64)
