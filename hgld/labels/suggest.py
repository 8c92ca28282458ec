"""The stage ``suggest``: the most likely groups for every label, with a score and a reason.

A suggestion is never used as a decision. Suggestions improve with the decisions on other labels:
decisions count at every level of the taxonomy, so decisions on a few labels of a branch already
tell where similar labels belong. :mod:`hgld.labels.group_scores` describes the scores,
:mod:`hgld.labels.evidence` the reasons.

Answers of models to the same question are suggestions, too (:mod:`hgld.labels.machine_answers`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from hgld import tables
from hgld.arrays import Floats, Integers
from hgld.errors import ConfigurationError, InputError
from hgld.labels.embed import embed_labels, vectors_of_labels
from hgld.labels.encoders import LoadEncoder, load_cached_encoder
from hgld.labels.evidence import EmbedTexts, Evidence, find_evidence
from hgld.labels.group_examples import EmbeddedLabels
from hgld.labels.group_levels import named_levels, pool_scores, rank_groups
from hgld.labels.group_scores import score_groups, strongest_kinds
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
#: If a group's score is lower, the reason names the finest level above with at least this score.
EVEN_SCORE = 0.5
#: Highest score of a model's answer. The calibration of models is unknown, and the review page
#: offers to accept all suggestions with 0.9 or more on the screen at once.
MAX_ANSWER_SCORE = 0.89
#: Templates for labels and names of taxonomies without a vocabulary: the text alone, and the
#: default template.
OTHER_TEMPLATES = ("{}", DEFAULT_TEMPLATE)
_SUGGESTION_COLUMNS = ("suggested_group", "suggestion_score", "suggestions")


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
    """Numbers of labels, landmarks, decisions and answers of models.

    Args:
        likely_labels: Number of labels whose first suggestion has at least ``LIKELY_SCORE``.
        likely_landmarks: Number of landmarks with these labels.
        answers: Number of answers in each file MODEL.machine.csv.
    """

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
        taxonomy: CSV file of groups. Default: the taxonomy beside the last file of decisions that
            has one; if no file has one, the taxonomy of the project, for GLDv2
            ``annotations/taxonomy.csv``.
        vocabulary: CSV file (term,group,items) of kinds of landmarks and their groups; may be
            repeated. Default: annotations/vocabulary.csv, if the taxonomy is H-GLDv2's.
        decisions: CSV file of decisions on other labels, as evidence; may be repeated, and the last
            decision counts.
        answers: CSV or Parquet table (label,group,score,model,prompt_hash) of models' answers,
            which become suggestions. Each model's answers are written to MODEL.machine.csv beside
            the output, for hgld agreement.
        force: Run although the output is up to date.
        progress: Reports the texts that are embedded.
        load: Returns the encoder for a name and a device.

    Returns:
        The numbers of labels and suggestions, or None if ``out`` was up to date.

    Raises:
        InputError: A file is missing or invalid, or a label has no embedding.
        ConfigurationError: The encoder of the label embeddings needs a package that is not
            installed.
    """
    if taxonomy is None:
        taxonomy = _changed_taxonomy(decisions)
    files = find_suggestion_files(clusters, embeddings, classes, taxonomy, vocabulary)
    bare = tables.read_table(clusters, tables.CLUSTERS)
    bare = bare.select([name for name in bare.column_names if name not in _SUGGESTION_COLUMNS])
    previous = tables.read_provenance(clusters)
    answered: list[Answer] = []
    if answers is not None:
        ids = bare["label_id"].to_pylist()
        texts = bare["label"].to_pylist()
        answered = read_answers(answers, ids, texts, read_taxonomy(files.taxonomy))
    answered_by_file = answer_files(out, answered)
    if answers in answered_by_file:
        raise ConfigurationError(
            f"{answers}: would be replaced by what is read from it; give `answers` another name"
        )

    def compute() -> tuple[Sequence[pa.Table], SuggestSummary]:
        inputs = read_suggestion_inputs(files, progress=progress, load=load)
        latest: dict[str, Decision] = {}
        for path in decisions:
            for decision in read_surviving_decisions(path, inputs.groups):
                latest[decision.label_id] = decision
        suggestions = add_answers(suggest_groups(inputs, latest.values()), answered)
        table = _with_suggestions(bare, suggestions)
        for answer_file, rows in answered_by_file.items():
            write_decisions(answer_file, rows)
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
        # Digest of the values: the file may be replaced by the same table with suggestions.
        digests={"clusters": hashlib.sha256(json.dumps(bare.to_pydict()).encode()).hexdigest()},
        further_files=list(answered_by_file),
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
    """Return the taxonomy beside the last file of decisions that has one.

    Annotators may have added groups to it.
    """
    for path in reversed(decisions):
        taxonomy = taxonomy_beside(path)
        if taxonomy.is_file():
            return taxonomy
    return None


def find_suggestion_files(
    clusters: Path,
    embeddings: Path | None = None,
    classes: Sequence[Path] | None = None,
    taxonomy: Path | None = None,
    vocabulary: Sequence[Path] | None = None,
) -> SuggestionFiles:
    """Return the files that suggestions are made from; :func:`suggest_file` describes the defaults."""
    if embeddings is None:
        embeddings = clusters.with_name("label_embeddings.parquet")
    if classes is None:
        classes = tables.find_classes_tables(clusters)
    taxonomy = find_taxonomy(taxonomy, clusters)
    if vocabulary is None:
        vocabulary = []
        if has_vocabulary(read_taxonomy(taxonomy)):
            vocabulary = [annotation_file("vocabulary.csv")]
    return SuggestionFiles(clusters, embeddings, classes, taxonomy, vocabulary)


def has_vocabulary(groups: Sequence[Group]) -> bool:
    """Return whether hgld's vocabulary suits these groups.

    At least half of the groups must have the key of a group of H-GLDv2.
    """
    bundled_keys = {group.key for group in read_taxonomy(annotation_file("taxonomy.csv"))}
    n_bundled = sum(group.key in bundled_keys for group in groups)
    return 2 * n_bundled >= len(groups)


def read_suggestion_inputs(
    files: SuggestionFiles,
    *,
    progress: Progress | None = None,
    load: LoadEncoder = load_cached_encoder,
) -> SuggestionInputs:
    """Read the files that suggestions are made from.

    Args:
        progress: Reports the texts that are embedded.
        load: Returns the encoder for a name and a device.
    """
    clusters = tables.read_table(files.clusters, tables.CLUSTERS)
    ids = clusters["label_id"].to_pylist()
    texts = clusters["label"].to_pylist()
    vectors = vectors_of_labels(files.embeddings, files.clusters, ids, texts)
    groups = read_taxonomy(files.taxonomy)
    settings = tables.read_provenance(files.embeddings).parameters
    if not {"encoder", "templates"} <= settings.keys():
        raise InputError(
            f"{files.embeddings}: does not say which encoder made it; hgld embed writes a table that does"
        )
    if has_vocabulary(groups):
        embed = _CachingEmbedder(settings["encoder"], settings["templates"], progress, load)
        embed.add(texts, vectors)
    else:
        embed = _CachingEmbedder(settings["encoder"], OTHER_TEMPLATES, progress, load)
        vectors = embed(texts)
    keys = {group.key for group in groups}
    vocabulary: list[VocabularyTerm] = []
    for path in files.vocabulary:
        vocabulary += read_vocabulary(path, keys)
    landmarks = clusters["landmarks_train"].to_numpy() + clusters["landmarks_index"].to_numpy()
    return SuggestionInputs(
        labels=EmbeddedLabels(ids, texts, vectors),
        landmarks=np.asarray(landmarks),
        groups=groups,
        vocabulary=vocabulary,
        classes=[tables.read_table(path, tables.CLASSES) for path in files.classes],
        embed=embed,
    )


class _CachingEmbedder:
    """Embeds texts, each once, and loads the encoder for the first text without a vector."""

    def __init__(
        self,
        encoder: str,
        templates: Sequence[str],
        progress: Progress | None,
        load: LoadEncoder,
    ) -> None:
        self._templates = templates
        self._encoder = encoder
        self._progress = progress
        self._load = load
        self._vectors: dict[str, Floats] = {}

    def add(self, texts: Sequence[str], vectors: Floats) -> None:
        """Add known vectors: float64, shape (n_texts, dimension)."""
        self._vectors.update(zip(texts, vectors, strict=True))

    def __call__(self, texts: Sequence[str]) -> Floats:
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if new:
            encoder = self._load(self._encoder, None)
            vectors = embed_labels(new, encoder, self._templates, progress=self._progress)
            self.add(new, vectors.astype(np.float64))
        return np.stack([self._vectors[text] for text in texts])


def suggest_groups(
    inputs: SuggestionInputs, decisions: Iterable[Decision] = ()
) -> list[list[Suggestion]]:
    """Return up to ``MAX_SUGGESTIONS`` groups with evidence for every label, the best group first.

    With a vocabulary, the most likely group comes first. Taxonomies without a vocabulary have
    scores for every level: groups of the likeliest branch come first
    (:func:`hgld.labels.group_levels.rank_groups`), and a group above other groups has the sum of
    their scores. The decision on a label itself does not change its suggestions.
    """
    evidence = inputs.evidence(decisions)
    scores = score_groups(evidence)
    ranking = rank_scores(scores, inputs.groups)
    scores_by_level = [scores]
    finest_levels = [0] * len(inputs.groups)
    if not has_vocabulary(inputs.groups):
        scores_by_level = pool_scores(scores, inputs.groups)
        finest_levels = named_levels(inputs.groups)
    kinds = strongest_kinds(evidence)
    has_evidence = np.any([part.values[:, :-1] != 0 for part in evidence], axis=0)
    suggestions = []
    for row, best_groups in enumerate(ranking[:, :MAX_SUGGESTIONS].tolist()):
        label_suggestions = []
        for group in best_groups:
            if not has_evidence[row, group]:
                continue
            reason = evidence[kinds[row, group]].explain(row, group)
            path_scores = [float(level_scores[row, group]) for level_scores in scores_by_level]
            score = path_scores[finest_levels[group]]
            if score < EVEN_SCORE:
                reason += _likely_branch(inputs.groups[group], path_scores)
            label_suggestions.append(Suggestion(inputs.groups[group].key, score, reason))
        suggestions.append(label_suggestions)
    return suggestions


def rank_scores(scores: Floats, groups: Sequence[Group]) -> Integers:
    """Return the indices of the groups for each label in the order of suggestion.

    Args:
        scores: float64, shape (n_labels, n_groups); from
            :func:`hgld.labels.group_scores.score_groups`.
        groups: The groups of the taxonomy.

    Returns:
        int64, shape (n_labels, n_groups).
    """
    if has_vocabulary(groups):
        return np.asarray(np.argsort(-scores, axis=1, kind="stable"), np.int64)
    return rank_groups(pool_scores(scores, groups), groups)


def _likely_branch(group: Group, scores: Sequence[float]) -> str:
    """Return a hint at the finest level above a group with a score of at least ``EVEN_SCORE``, or "".

    Args:
        scores: Score of the group, then scores of the levels above it, finest first; the levels
            above may be missing.
    """
    for name, score in zip(group.path, scores, strict=False):
        if score >= EVEN_SCORE and name != group.name:
            return f"; in “{name}” with {score:.0%}"
    return ""


def add_answers(
    suggestions: Sequence[Sequence[Suggestion]], answers: Iterable[Answer]
) -> list[list[Suggestion]]:
    """Return suggestions with the groups that models answered, in place of less likely groups.

    A group that is suggested already keeps its score; another group gets the score that the model
    claims, up to ``MAX_ANSWER_SCORE``.
    """
    suggested = [{suggestion.group: suggestion for suggestion in row} for row in suggestions]
    answered: list[dict[str, Suggestion]] = [{} for _ in suggested]
    for answer in answers:
        group = answer.decision.group
        if group is None:
            continue
        reason = f"{answer.model} answered so, score {answer.score:g}"
        score = min(answer.score, MAX_ANSWER_SCORE)
        earlier = answered[answer.label].get(group) or suggested[answer.label].get(group)
        if earlier:
            reason = f"{earlier.reason}; {reason}"
            score = earlier.score
        answered[answer.label][group] = Suggestion(group, score, reason)
    merged = []
    for suggested_groups, answered_groups in zip(suggested, answered, strict=True):
        label_suggestions = list(answered_groups.values())
        for group, suggestion in suggested_groups.items():
            if group not in answered_groups and len(label_suggestions) < MAX_SUGGESTIONS:
                label_suggestions.append(suggestion)
        if answered_groups:
            label_suggestions.sort(key=lambda suggestion: -suggestion.score)
        merged.append(label_suggestions)
    return merged


def _with_suggestions(bare: pa.Table, suggestions: Sequence[Sequence[Suggestion]]) -> pa.Table:
    """Add the columns of the first suggestion, its score, and all suggestions to a table of clusters."""
    groups = []
    scores = []
    records = []
    for label_suggestions in suggestions:
        first = label_suggestions[0] if label_suggestions else None
        groups.append(first.group if first else None)
        scores.append(first.score if first else None)
        records.append([suggestion._asdict() for suggestion in label_suggestions])
    table = bare.append_column("suggested_group", pa.array(groups, pa.string()))
    table = table.append_column("suggestion_score", pa.array(scores, pa.float32()))
    return table.append_column("suggestions", pa.array(records, tables.SUGGESTIONS))
