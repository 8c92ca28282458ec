"""The stage ``suggest``: the groups that annotators most likely choose for every label, with a score and a reason.

A suggestion is never used as a decision. Suggestions improve with the decisions on other labels.

Scores are those of a multinomial logistic model over the kinds of evidence: the logit of a group is the weighted sum
of its evidence. Weaker kinds (what labels end in, what they are similar to) and "no group" have two weights each: one
for labels of which no stronger kind knows anything, and one for those of which a stronger kind is certain; between
them they are weighted by how certain it is. So a score means the same with and without superclasses.

Kinds of evidence that agree are not independent, and annotators do not always follow them, so the model promises more
than it keeps. The scores of a label are therefore multiplied by ``RELIABILITY`` of the evidence for its first
suggestion. For terms and similarity it is a cap instead, since the lower scores that they give alone are not too
high.

The vocabulary and ``WEIGHTS`` are those of H-GLDv2's taxonomy, also with changes. Other taxonomies, of products or
species, have ``OTHER_WEIGHTS``: labels and their superclasses are compared with the names of groups and of the levels
above, and groups that attract too many of the labels are less likely (:func:`balance`). Decisions count at every
level, so those on a few labels of a branch already tell where similar labels belong.

Answers of models to the same question are suggestions, too (:mod:`hgld.labels.machine_answers`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from hgld import tables
from hgld.arrays import Floats, Integers
from hgld.errors import ConfigurationError, InputError
from hgld.labels.embed import embed_labels, vectors_of_labels
from hgld.labels.encoders import LoadEncoder, load_cached_encoder
from hgld.labels.evidence import EVIDENCE_KINDS, EmbeddedLabels, EmbedTexts, Evidence, find_evidence
from hgld.labels.group_levels import named_levels, pool_scores, rank_groups
from hgld.labels.machine_answers import Answer, answer_files, read_answers
from hgld.labels.settings import DEFAULT_TEMPLATE
from hgld.progress import Progress
from hgld.resources import annotation_file
from hgld.stage import Stage
from hgld.taxonomy.decisions import Decision, read_surviving_decisions, write_decisions
from hgld.taxonomy.groups import (
    Group,
    VocabularyTerm,
    find_taxonomy,
    read_taxonomy,
    read_vocabulary,
    taxonomy_beside,
)

STAGE = Stage(
    "suggest",
    (tables.CLUSTERS,),
    inputs={"embeddings": tables.LABEL_EMBEDDINGS, "classes": tables.CLASSES},
)
MAX_SUGGESTIONS = 3
#: Score from which a suggestion counts as likely.
LIKELY_SCORE = 0.9
#: Below this score, a reason names the level above that reaches it.
EVEN_SCORE = 0.5
#: Highest score of an answer of a model. Nobody has measured what the scores of models promise, and from 0.9 on the
#: review page accepts all suggestions on the screen at once.
MAX_ANSWER_SCORE = 0.89
_SUGGESTION_COLUMNS = ("suggested_group", "suggestion_score", "suggestions")
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
    "names": 0.95,
    "decided": 0.95,
}
#: Kinds for which the reliability is a cap on scores, not a factor.
_CAPPED = ("term", "similar", "names", "decided")
#: Weights for taxonomies other than H-GLDv2's. Those of names and of no group were fitted to lists of five domains
#: (CIFAR-100, COCO, indoor scenes, groceries, landmarks); of the two best pairs, whose errors differ by 0.004, it is
#: the one with the larger weight of no group, which promises less. That of decided labels was chosen on lists of nine
#: other domains (such as sports, minerals, languages and dishes, with trees of three levels).
OTHER_WEIGHTS: Mapping[str, float] = {
    **WEIGHTS,
    "similar": 2.2,
    "names": 2.2,
    "decided": 0.6,
    "no_group": 0.5,
}
#: Labels and names of these taxonomies are encoded as they are and as the default template says.
OTHER_TEMPLATES = ("{}", DEFAULT_TEMPLATE)
#: How far :func:`balance` makes groups equally frequent, chosen on the same lists: 0 not at all, 1 by half.
_BALANCE, _BALANCE_STEPS = 2.0, 60
#: Share that counts as hardly any.
_SMALL_SHARE = 0.05
#: Share from which a kind of evidence is the reason for a suggestion.
_REASON_SHARE = 0.25


class Suggestion(NamedTuple):
    """A group for a label, the probability that annotators choose it, and the reason in words."""

    group: str
    score: float
    reason: str


@dataclass(frozen=True)
class SuggestionFiles:
    """The files that suggestions are made from, without decisions; see :func:`suggest_file`."""

    clusters: Path
    embeddings: Path
    classes: Sequence[Path]
    taxonomy: Path
    vocabulary: Sequence[Path]


@dataclass(frozen=True)
class SuggestionInputs:
    """The contents of :class:`SuggestionFiles`."""

    labels: EmbeddedLabels
    landmarks: Integers
    groups: Sequence[Group]
    vocabulary: Sequence[VocabularyTerm]
    classes: Sequence[pa.Table]
    embed: EmbedTexts

    def evidence(self, decisions: Iterable[Decision] = ()) -> list[Evidence]:
        """Collect the evidence for all labels, including decisions on other labels."""
        return find_evidence(
            self.labels,
            self.groups,
            self.vocabulary,
            decisions,
            self.classes,
            self.embed,
            compare_names=not has_vocabulary(self.groups),
        )


@dataclass(frozen=True)
class SuggestSummary:
    """Numbers of labels and landmarks, of those with a likely group, and of decisions; answers by file of a model."""

    labels: int
    landmarks: int
    likely_labels: int
    likely_landmarks: int
    decisions: int
    answers: Mapping[Path, int] = field(default_factory=dict, repr=False)


def suggest_file(
    clusters: Path,
    out: Path,
    *,
    embeddings: Path | None = None,
    classes: Sequence[Path] | None = None,
    taxonomy: Path | None = None,
    vocabulary: Sequence[Path] | None = None,
    decisions: Sequence[Path] = (),
    answers: Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
    load: LoadEncoder = load_cached_encoder,
) -> SuggestSummary | None:
    """Write the clusters with suggestions for every label.

    Args:
        clusters: Clusters from hgld cluster; existing suggestions are replaced.
        out: Table to write, in the same order; may be ``clusters`` itself.
        embeddings: Label embeddings. Default: label_embeddings.parquet beside ``clusters``.
        classes: ``classes`` tables; ``*.classes.parquet`` beside ``clusters`` by default.
        taxonomy: CSV file of groups. Default: the one beside the last file of decisions that has one, else that of
            the project, for GLDv2 ``annotations/taxonomy.csv``.
        vocabulary: CSV file (term,group,items) of kinds of landmarks and their groups; may be repeated. Default:
            annotations/vocabulary.csv, if the taxonomy is H-GLDv2's.
        decisions: CSV file of decisions on other labels, as evidence; may be repeated, and the last decision counts.
        answers: CSV or Parquet table (label,group,score,model,prompt_hash) of answers of models, which become
            suggestions; those of each model are written to MODEL.machine.csv beside the output, for hgld agreement.
            Default: none.
        force: Run although the output is up to date.
        progress: Reports the texts that are embedded.
        load: Returns the encoder for a name and a device.

    Returns:
        The numbers of labels and suggestions, or None if ``out`` was up to date.

    Raises:
        InputError: A file is missing or invalid, or a label has no embedding.
        ConfigurationError: The encoder of the label embeddings needs a package that is not installed.
    """
    if taxonomy is None:
        taxonomy = _changed_taxonomy(decisions)
    files = find_suggestion_files(clusters, embeddings, classes, taxonomy, vocabulary)
    bare = tables.read_table(clusters, tables.CLUSTERS)
    bare = bare.select([name for name in bare.column_names if name not in _SUGGESTION_COLUMNS])
    previous = tables.read_provenance(clusters)
    ids, texts = (bare[name].to_pylist() for name in ("label_id", "label"))
    answered = (
        [] if answers is None else read_answers(answers, ids, texts, read_taxonomy(files.taxonomy))
    )
    answered_by_file = answer_files(out, answered)
    if answers in answered_by_file:
        raise ConfigurationError(
            f"{answers}: would be replaced by what is read from it; give `answers` another name"
        )

    def compute() -> tuple[Sequence[pa.Table], SuggestSummary]:
        inputs = read_suggestion_inputs(files, progress=progress, load=load)
        latest = {
            row.label_id: row
            for path in decisions
            for row in read_surviving_decisions(path, inputs.groups)
        }
        suggestions = add_answers(suggest_groups(inputs, latest.values()), answered)
        table = _with_suggestions(bare, suggestions)
        for path, rows in answered_by_file.items():
            write_decisions(path, rows)
        return [table], _summarise(inputs.landmarks, suggestions, latest.values(), answered_by_file)

    return STAGE.run(
        {"out": out},
        compute,
        inputs={
            "embeddings": files.embeddings,
            "classes": files.classes,
            "taxonomy": files.taxonomy,
            "vocabulary": files.vocabulary,
            "decisions": decisions,
            "answers": answers,
        },
        # Of the values alone, since the table may be replaced by the same one with suggestions.
        digests={"clusters": hashlib.sha256(json.dumps(bare.to_pydict()).encode()).hexdigest()},
        further_files=[*answered_by_file],
        before=previous.before if previous.command == STAGE.name else previous,
        force=force,
    )


def _summarise(
    landmarks: Integers,
    suggestions: Sequence[Sequence[Suggestion]],
    decisions: Iterable[Decision],
    answered_by_file: Mapping[Path, Sequence[Decision]],
) -> SuggestSummary:
    likely = np.array([bool(row) and row[0].score >= LIKELY_SCORE for row in suggestions], bool)
    return SuggestSummary(
        labels=len(likely),
        landmarks=int(landmarks.sum()),
        likely_labels=int(likely.sum()),
        likely_landmarks=int(landmarks[likely].sum()),
        decisions=sum(row.decision != "unsure" for row in decisions),
        answers={path: len(rows) for path, rows in answered_by_file.items()},
    )


def _changed_taxonomy(decisions: Sequence[Path]) -> Path | None:
    """Return the taxonomy beside the last file of decisions that has one, as groups were added; None if none has."""
    for path in reversed(decisions):
        if taxonomy_beside(path).is_file():
            return taxonomy_beside(path)
    return None


def find_suggestion_files(
    clusters: Path,
    embeddings: Path | None = None,
    classes: Sequence[Path] | None = None,
    taxonomy: Path | None = None,
    vocabulary: Sequence[Path] | None = None,
) -> SuggestionFiles:
    """Return the files, with defaults in place of None."""
    taxonomy = find_taxonomy(taxonomy, clusters)
    if vocabulary is None:
        vocabulary = (
            [annotation_file("vocabulary.csv")] if has_vocabulary(read_taxonomy(taxonomy)) else []
        )
    return SuggestionFiles(
        clusters,
        clusters.with_name("label_embeddings.parquet") if embeddings is None else embeddings,
        tables.find_classes_tables(clusters) if classes is None else classes,
        taxonomy,
        vocabulary,
    )


def has_vocabulary(groups: Sequence[Group]) -> bool:
    """Return whether hgld's vocabulary is about these groups: at least half are H-GLDv2's, by their keys."""
    own = {group.key for group in read_taxonomy(annotation_file("taxonomy.csv"))}
    return 2 * sum(group.key in own for group in groups) >= len(groups)


def read_suggestion_inputs(
    files: SuggestionFiles,
    *,
    progress: Progress | None = None,
    load: LoadEncoder = load_cached_encoder,
) -> SuggestionInputs:
    """Read the files."""
    clusters = tables.read_table(files.clusters, tables.CLUSTERS)
    ids, texts = (clusters[name].to_pylist() for name in ("label_id", "label"))
    vectors = vectors_of_labels(files.embeddings, files.clusters, ids, texts)
    groups = read_taxonomy(files.taxonomy)
    settings = tables.read_provenance(files.embeddings).parameters
    if not {"encoder", "templates"} <= settings.keys():
        raise InputError(
            f"{files.embeddings}: does not say which encoder made it; hgld embed writes a table that does"
        )
    if has_vocabulary(groups):
        embed = _embed_once(settings, dict(zip(texts, vectors, strict=True)), progress, load)
    else:
        embed = _embed_once({**settings, "templates": OTHER_TEMPLATES}, {}, progress, load)
        vectors = embed(texts)
    keys = {group.key for group in groups}
    return SuggestionInputs(
        labels=EmbeddedLabels(ids, texts, vectors),
        landmarks=np.asarray(
            clusters["landmarks_train"].to_numpy() + clusters["landmarks_index"].to_numpy()
        ),
        groups=groups,
        vocabulary=[term for path in files.vocabulary for term in read_vocabulary(path, keys)],
        classes=[tables.read_table(path, tables.CLASSES) for path in files.classes],
        embed=embed,
    )


def _embed_once(
    settings: Mapping[str, Any],
    vectors: dict[str, Floats],
    progress: Progress | None,
    load: LoadEncoder,
) -> EmbedTexts:
    """Return a function that embeds texts without known vectors, each once, and loads the encoder for the first."""

    def embed(texts: Sequence[str]) -> Floats:
        new = [text for text in dict.fromkeys(texts) if text not in vectors]
        if new:
            encoder = load(settings["encoder"], None)
            embedded = embed_labels(new, encoder, settings["templates"], progress=progress)
            vectors.update(zip(new, embedded.astype(np.float64), strict=True))
        return np.stack([vectors[text] for text in texts])

    return embed


def suggest_groups(
    inputs: SuggestionInputs, decisions: Iterable[Decision] = ()
) -> list[list[Suggestion]]:
    """Return at most ``MAX_SUGGESTIONS`` groups with any evidence for every label, the best one first.

    The most likely group comes first. Taxonomies without a vocabulary have scores for every level: groups of the
    likeliest branch come first (:func:`hgld.labels.group_levels.rank_groups`), and a group above others has the sum
    of their scores. The decision on a label itself does not change its suggestions.
    """
    evidence = inputs.evidence(decisions)
    scores = score_groups(evidence)
    ranking = rank_scores(scores, inputs.groups)
    scores_by_level = [scores]
    own_level = [0] * len(inputs.groups)
    if not has_vocabulary(inputs.groups):
        scores_by_level = pool_scores(scores, inputs.groups)
        own_level = named_levels(inputs.groups)
    kinds = strongest_kinds(evidence)
    has_evidence = np.any([part.values[:, :-1] != 0 for part in evidence], axis=0)
    suggestions = []
    for row, best_groups in enumerate(ranking[:, :MAX_SUGGESTIONS].tolist()):
        of_label = []
        for group in best_groups:
            if has_evidence[row, group]:
                reason = evidence[kinds[row, group]].explain(row, group)
                path_scores = [float(of_level[row, group]) for of_level in scores_by_level]
                score = path_scores[own_level[group]]
                if score < EVEN_SCORE:
                    reason += _likely_branch(inputs.groups[group], path_scores)
                of_label.append(Suggestion(inputs.groups[group].key, score, reason))
        suggestions.append(of_label)
    return suggestions


def rank_scores(scores: Floats, groups: Sequence[Group]) -> Integers:
    """Return the indices of the groups for each label in the order of suggestion: int64, shape (n_labels, n_groups).

    Args:
        scores: float64, shape (n_labels, n_groups), as :func:`score_groups` returns them.
    """
    if has_vocabulary(groups):
        return np.asarray(np.argsort(-scores, axis=1, kind="stable"), np.int64)
    return rank_groups(pool_scores(scores, groups), groups)


def _likely_branch(group: Group, scores: Sequence[float]) -> str:
    """Name the finest level above a group that is as likely as not; empty if there is none.

    Args:
        scores: Scores of the group and of the names above it, finest first; the names above may have none.
    """
    for name, score in zip(group.path, scores, strict=False):
        if score >= EVEN_SCORE and name != group.name:
            return f"; in “{name}” with {score:.0%}"
    return ""


def add_answers(
    suggestions: Sequence[Sequence[Suggestion]], answers: Iterable[Answer]
) -> list[list[Suggestion]]:
    """Return suggestions with the groups that models answered, in place of less likely ones.

    A group that is suggested already keeps its score; another has the one that the model claims, up to
    ``MAX_ANSWER_SCORE``.
    """
    suggested = [{suggestion.group: suggestion for suggestion in row} for row in suggestions]
    answered: list[dict[str, Suggestion]] = [{} for _ in suggested]
    for answer in answers:
        group = answer.decision.group
        if group is None:
            continue
        reason = f"{answer.model} answered so, score {answer.score:g}"
        score = min(answer.score, MAX_ANSWER_SCORE)
        known = answered[answer.label].get(group) or suggested[answer.label].get(group)
        if known:
            reason = f"{known.reason}; {reason}"
            score = known.score
        answered[answer.label][group] = Suggestion(group, score, reason)
    merged = []
    for suggested_groups, answered_groups in zip(suggested, answered, strict=True):
        if not answered_groups:
            merged.append([*suggested_groups.values()])
            continue
        others = [each for group, each in suggested_groups.items() if group not in answered_groups]
        kept = [*answered_groups.values(), *others][: max(MAX_SUGGESTIONS, len(answered_groups))]
        merged.append(sorted(kept, key=lambda suggestion: -suggestion.score))
    return merged


def _with_suggestions(bare: pa.Table, suggestions: Sequence[Sequence[Suggestion]]) -> pa.Table:
    columns = (
        pa.array([row[0].group if row else None for row in suggestions], pa.string()),
        pa.array([row[0].score if row else None for row in suggestions], pa.float32()),
        pa.array(
            [[suggestion._asdict() for suggestion in row] for row in suggestions],
            tables.SUGGESTIONS,
        ),
    )
    for name, column in zip(_SUGGESTION_COLUMNS, columns, strict=True):
        bare = bare.append_column(name, column)
    return bare


def score_groups(evidence: Sequence[Evidence]) -> Floats:
    """Return the probability that annotators choose each group: float64, shape (n_labels, n_groups).

    The scores are a softmax over the logits of the groups and of none, reduced by ``RELIABILITY``, so the scores of a
    label add up to less than 1, and to little without evidence.
    """
    weights = _weights(evidence)
    values = features(evidence)
    decided = values.pop("decided")
    logits = np.sum(
        [weights[name] * values[name] for name in values if name in weights],
        axis=0,
    )
    if weights is OTHER_WEIGHTS:
        # Decisions say which groups are frequent, so what they add is not balanced.
        logits = balance(logits) + weights["decided"] * decided
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    scores = exponentials[:, :-1] / exponentials.sum(axis=1, keepdims=True)
    first = scores.argmax(axis=1)[:, None]
    kinds = np.take_along_axis(strongest_kinds(evidence), first, axis=1)
    reliability = np.array([RELIABILITY[kind] for kind in EVIDENCE_KINDS])[kinds]
    is_capped = np.isin(kinds, [EVIDENCE_KINDS.index(kind) for kind in _CAPPED])
    factor_to_cap = np.minimum(reliability / np.take_along_axis(scores, first, axis=1), 1)
    return np.asarray(scores * np.where(is_capped, factor_to_cap, reliability))


def _weights(evidence: Sequence[Evidence]) -> Mapping[str, float]:
    """Return the weights for evidence with or without the kind "names"."""
    return OTHER_WEIGHTS if evidence[EVIDENCE_KINDS.index("names")].values.any() else WEIGHTS


def balance(logits: Floats) -> Floats:
    """Lower the logits of groups that are likely for more of the labels than others, and raise those of fewer.

    Some names are similar to most texts, others to few, whatever these mean. Each group gets the same summand for all
    labels: ``-_BALANCE`` times the logarithm of how many labels it attracts with it, compared with the mean. One
    label more for each keeps the summands of short lists small.

    Args:
        logits: float64, shape (n_labels, n_groups + 1); the last column is for no group.
    """
    shift = np.zeros(logits.shape[1] - 1)
    for _ in range(_BALANCE_STEPS):
        shares = np.exp(logits[:, :-1] + shift - logits.max(axis=1, keepdims=True))
        none = np.exp(logits[:, -1:] - logits.max(axis=1, keepdims=True))
        attracted = (shares / (shares.sum(axis=1, keepdims=True) + none)).sum(axis=0)
        target = -_BALANCE * np.log((attracted + 1) / (attracted.mean() + 1))
        shift += (target - shift) / (1 + 2 * _BALANCE)  # whole steps would oscillate
    return np.concatenate([logits[:, :-1] + shift, logits[:, -1:]], axis=1)


def features(evidence: Sequence[Evidence]) -> dict[str, Floats]:
    """Return what the weights multiply.

    Shares count by their logarithm, as in a product of probabilities. A kind of evidence is as certain as its shares
    sum to.

    Returns:
        For each of ``OTHER_WEIGHTS``, float64, shape (n_labels, n_groups + 1).
    """
    values = {kind: part.values for kind, part in zip(EVIDENCE_KINDS, evidence, strict=True)}
    superclass = values["superclass"] + values["farther_superclass"]
    term = values["term"].sum(axis=1, keepdims=True)
    known = np.maximum(term, superclass.sum(axis=1, keepdims=True))
    logs = {
        kind: np.log1p(value / _SMALL_SHARE)
        for kind, value in values.items()
        if kind not in ("similar", "names", "decided")
    }
    # A term of a group is in that group, however many labels below the same superclass were dropped.
    for kind in ("superclass", "farther_superclass"):
        logs[kind][:, -1:] *= 1 - term
    no_group = np.zeros_like(values["term"])
    no_group[:, -1] = 1
    names = values["names"]
    # What the names of a group say counts once; its other examples add what they say beyond that.
    similar = np.maximum(values["similar"] - np.maximum(names, 0), 0)
    known_or_ending = np.maximum(known, values["ending"].sum(axis=1, keepdims=True))
    return {
        "term": logs["term"],
        "superclass": logs["superclass"],
        "farther_superclass": logs["farther_superclass"],
        "ending": logs["ending"] * (1 - known),
        "ending_beside_stronger": logs["ending"] * known,
        # The cosine of a text with itself would say the same once more, in a unit that depends on the encoder.
        "similar": similar * (1 - known),
        "similar_beside_stronger": similar * known * (1 - term),
        "names": names * (1 - known),
        "decided": values["decided"] * (1 - known),
        "no_group": no_group * (1 - known_or_ending),
        "no_group_beside_stronger": no_group * known_or_ending,
    }


def strongest_kinds(evidence: Sequence[Evidence]) -> Integers:
    """Return the kind of evidence behind each suggestion, as an index into ``EVIDENCE_KINDS``.

    It is the strongest kind that gives the group a share of ``_REASON_SHARE`` or more, else the one with the largest
    weighted value.

    Returns:
        int64, shape (n_labels, n_groups).
    """
    weights = _weights(evidence)
    weighted = {
        name: weights.get(name, 0) * values[:, :-1] for name, values in features(evidence).items()
    }
    weighted["ending"] += weighted["ending_beside_stronger"]
    # Beside a term of another group, similarity adds nothing to the logit, but is the only evidence to name.
    weighted["similar"] = (
        weights["similar"] * evidence[EVIDENCE_KINDS.index("similar")].values[:, :-1]
    )
    if weights is OTHER_WEIGHTS:  # names are all that there is, however little they say
        weighted["names"] = np.maximum(weighted["names"], 1e-6)
    most = np.argmax([weighted[kind] for kind in EVIDENCE_KINDS], axis=0)
    is_reason = np.stack([part.values[:, :-1] >= _REASON_SHARE for part in evidence[:4]])
    return np.asarray(np.where(is_reason.any(axis=0), is_reason.argmax(axis=0), most), np.int64)
