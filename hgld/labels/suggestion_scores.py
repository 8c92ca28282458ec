"""Scores of groups: a multinomial logistic model over the ladder of evidence.

The logit of a group is the weighted sum of its evidence. Weaker kinds (what labels end in, what they are similar to)
and "no group" have two weights each: one for labels of which no stronger kind knows anything, and one for those of
which a stronger kind is certain; between them they are weighted by how certain it is. So a score means the same with
and without superclasses.

Kinds of evidence that agree are not independent, and annotators do not always follow them, so the model promises more
than it keeps. The scores of a label are therefore multiplied by ``RELIABILITY`` of the evidence for its first
suggestion. For terms and similarity it is a cap instead, since the lower scores that they give alone are not too
high.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hgld.labels.evidence import EVIDENCE_KINDS, Evidence

#: Weights of what :func:`features` returns.
#:
#: Fitted by ``benchmarks/suggestion_weights.py`` to one half of the development set in ``annotations/development``,
#: whose labels are from all over the world. They are not fitted again as decisions come in: scores stay comparable,
#: and the decision on a label cannot influence its own suggestions.
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
#: By kind of evidence, what first suggestions to which the model gives 0.9 or more keep of their scores: the share
#: that is right, at the lower end of its 95 % Wilson interval, divided by the mean score.
#:
#: Measured by ``benchmarks/suggestion_weights.py`` on labels that the weights were not fitted to: by cross-validation
#: within the same half, and on the names of released landmarks, whose groups are independent of the vocabulary. Too
#: few suggestions by similarity have such scores to measure more than that.
RELIABILITY: Mapping[str, float] = {
    "term": 0.953,
    "superclass": 0.949,
    "farther_superclass": 0.667,
    "ending": 0.927,
    "similar": 0.9,
}
#: Kinds for which the reliability is a cap on scores, not a factor.
_CAPPED = ("term", "similar")
#: Share that counts as hardly any.
_SMALL_SHARE = 0.05
#: Share from which a kind of evidence is the reason for a suggestion.
_REASON_SHARE = 0.25


def score_groups(evidence: Sequence[Evidence]) -> NDArray[np.float64]:
    """Return the probability that annotators choose each group: float64, shape (n_labels, n_groups).

    The scores are a softmax over the logits of the groups and of none, reduced by ``RELIABILITY``, so the scores of a
    label add up to less than 1, and to little without evidence.
    """
    logits = np.sum([WEIGHTS[name] * values for name, values in features(evidence).items()], axis=0)
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    scores = exponentials[:, :-1] / exponentials.sum(axis=1, keepdims=True)
    first = scores.argmax(axis=1)[:, None]
    rungs = np.take_along_axis(find_rungs(evidence), first, axis=1)
    factors = np.array([RELIABILITY[kind] for kind in EVIDENCE_KINDS])[rungs]
    is_capped = np.isin(rungs, [EVIDENCE_KINDS.index(kind) for kind in _CAPPED])
    capped = np.minimum(factors / np.take_along_axis(scores, first, axis=1), 1)
    return np.asarray(scores * np.where(is_capped, capped, factors))


def features(evidence: Sequence[Evidence]) -> dict[str, NDArray[np.float64]]:
    """Return what the weights multiply.

    Shares count by their logarithm, as in a product of probabilities. A kind of evidence is as certain as its shares
    sum to.

    Args:
        evidence: Evidence of every kind.

    Returns:
        For each of ``WEIGHTS``, float64, shape (n_labels, n_groups + 1).
    """
    values = {kind: part.values for kind, part in zip(EVIDENCE_KINDS, evidence, strict=True)}
    superclass = values["superclass"] + values["farther_superclass"]
    term = values["term"].sum(axis=1, keepdims=True)
    known = np.maximum(term, superclass.sum(axis=1, keepdims=True))
    logs = {kind: np.log1p(value / _SMALL_SHARE) for kind, value in values.items() if kind != "similar"}
    # A term of a group is in that group, however many labels below the same superclass were dropped.
    for kind in ("superclass", "farther_superclass"):
        logs[kind][:, -1:] *= 1 - term
    no_group = np.zeros_like(values["term"])
    no_group[:, -1] = 1
    known_or_ending = np.maximum(known, values["ending"].sum(axis=1, keepdims=True))
    return {
        "term": logs["term"],
        "superclass": logs["superclass"],
        "farther_superclass": logs["farther_superclass"],
        "ending": logs["ending"] * (1 - known),
        "ending_beside_stronger": logs["ending"] * known,
        # The cosine of a text with itself would say the same once more, in a unit that depends on the encoder.
        "similar": values["similar"] * (1 - known),
        "similar_beside_stronger": values["similar"] * known * (1 - term),
        "no_group": no_group * (1 - known_or_ending),
        "no_group_beside_stronger": no_group * known_or_ending,
    }


def find_rungs(evidence: Sequence[Evidence]) -> NDArray[np.int64]:
    """Return the kind of evidence behind each suggestion, as an index into ``EVIDENCE_KINDS``.

    It is the strongest kind that gives the group a share of ``_REASON_SHARE`` or more, else the one with the largest
    weighted value.

    Args:
        evidence: Evidence of every kind.

    Returns:
        int64, shape (n_labels, n_groups).
    """
    weighted = {name: WEIGHTS[name] * values[:, :-1] for name, values in features(evidence).items()}
    weighted["ending"] += weighted["ending_beside_stronger"]
    # Beside a term of another group, similarity adds nothing to the logit, but is the only evidence to name.
    weighted["similar"] = WEIGHTS["similar"] * evidence[-1].values[:, :-1]
    most = np.argmax([weighted[kind] for kind in EVIDENCE_KINDS], axis=0)
    is_reason = np.stack([part.values[:, :-1] >= _REASON_SHARE for part in evidence[:-1]])
    return np.asarray(np.where(is_reason.any(axis=0), is_reason.argmax(axis=0), most), np.int64)
