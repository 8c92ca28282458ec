"""The stage ``suggest``: the groups that annotators most likely choose for every label, with a score and a reason.

A suggestion is never used as a decision. Suggestions improve with the decisions on other labels.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hgld import tables
from hgld.errors import InputError, indented_list
from hgld.labels.embed import embed_labels, embedding_matrix
from hgld.labels.encoder_cache import load_cached_encoder
from hgld.labels.encoders import LoadEncoder
from hgld.progress import Progress
from hgld.resources import annotation_file
from hgld.taxonomy.decisions import Decision, read_surviving_decisions
from hgld.taxonomy.groups import Group, read_taxonomy
from hgld.taxonomy.vocabulary import VocabularyTerm, read_vocabulary

if TYPE_CHECKING:
    from hgld.labels.evidence import EmbedTexts, Evidence
    from hgld.labels.examples import EmbeddedLabels

MAX_SUGGESTIONS = 3
#: Score from which a suggestion counts as likely.
LIKELY_SCORE = 0.9

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
    """The contents of :class:`SuggestionFiles`.

    Args:
        clusters: ``clusters`` table.
        labels: Its labels, in the order of its rows.
        landmarks: int64, shape (n_labels,); number of landmarks with each label.
        groups: Groups of the taxonomy.
        vocabulary: Terms of the vocabulary.
        classes: ``classes`` tables.
        embed: Encoder and templates that the vectors of the labels were made with.
    """

    clusters: pa.Table
    labels: EmbeddedLabels
    landmarks: NDArray[np.int64]
    groups: Sequence[Group]
    vocabulary: Sequence[VocabularyTerm]
    classes: Sequence[pa.Table]
    embed: EmbedTexts

    def evidence(self, decisions: Iterable[Decision] = ()) -> list[Evidence]:
        """Collect the evidence for all labels, including decisions on other labels."""
        from hgld.labels.evidence import find_evidence

        return find_evidence(self.labels, self.groups, self.vocabulary, decisions, self.classes, self.embed)


@dataclass(frozen=True)
class SuggestSummary:
    """Numbers of labels and landmarks, of those with a likely group, and of decisions."""

    labels: int
    landmarks: int
    likely_labels: int
    likely_landmarks: int
    decisions: int


def suggest_file(
    clusters: Path,
    out: Path,
    *,
    embeddings: Path | None = None,
    classes: Sequence[Path] | None = None,
    taxonomy: Path | None = None,
    vocabulary: Sequence[Path] | None = None,
    decisions: Sequence[Path] = (),
    force: bool = False,
    progress: Progress | None = None,
    load: LoadEncoder = load_cached_encoder,
) -> SuggestSummary | None:
    """Write the clusters with suggestions for every label.

    Args:
        clusters: ``clusters`` table; existing suggestions are replaced.
        out: Table to write, in the same order; may be ``clusters`` itself.
        embeddings: Label embeddings; ``label_embeddings.parquet`` beside ``clusters`` by default.
        classes: ``classes`` tables; ``*.classes.parquet`` beside ``clusters`` by default.
        taxonomy: CSV file of groups; ``annotations/taxonomy.csv`` by default.
        vocabulary: CSV files of terms and their groups; ``annotations/vocabulary.csv`` by default.
        decisions: Files of decisions; for a label in several of them the last decision counts.
        force: Make suggestions even if ``out`` is up to date.
        progress: Reports the texts that are embedded.
        load: Returns the encoder for a name and a device.

    Returns:
        The numbers of labels and suggestions, or None if ``out`` was up to date.

    Raises:
        InputError: A file is missing or invalid, or a label has no embedding.
        ConfigurationError: The encoder of the label embeddings needs a package that is not installed.
        SourceError: The weights of the encoder cannot be downloaded.
    """
    files = find_suggestion_files(clusters, embeddings, classes, taxonomy, vocabulary)
    if not force and out == clusters and _has_suggestions(files, decisions):
        return None
    inputs = read_suggestion_inputs(files, progress=progress, load=load)
    latest = {row.label_id: row for path in decisions for row in read_surviving_decisions(path, inputs.groups)}
    bare = inputs.clusters.drop_columns(list(_SUGGESTION_COLUMNS))
    previous = tables.read_provenance(clusters)
    provenance = tables.Provenance(
        "suggest",
        inputs={"clusters": _digest(bare), **_digests(files, decisions)},
        before=previous.before if previous.command == "suggest" else previous,
    )
    if not force and tables.is_up_to_date(out, provenance):
        return None

    suggestions = suggest_groups(inputs, latest.values())
    tables.write_table(out, tables.CLUSTERS, _with_suggestions(bare, suggestions), provenance)
    likely = np.array([bool(row) and row[0].score >= LIKELY_SCORE for row in suggestions], bool)
    return SuggestSummary(
        labels=len(bare),
        landmarks=int(inputs.landmarks.sum()),
        likely_labels=int(likely.sum()),
        likely_landmarks=int(inputs.landmarks[likely].sum()),
        decisions=sum(row.decision != "unsure" for row in latest.values()),
    )


def _has_suggestions(files: SuggestionFiles, decisions: Sequence[Path]) -> bool:
    """Return whether the clusters have suggestions from these files, without reading them.

    The digest of the clusters is the one that was written with the suggestions: a stage that changes the clusters
    writes another provenance.
    """
    paths = (files.clusters, files.embeddings, *files.classes, files.taxonomy, *files.vocabulary, *decisions)
    if not all(path.is_file() for path in paths):
        return False
    try:
        made = tables.read_provenance(files.clusters)
    except InputError:
        return False
    inputs = {"clusters": made.inputs.get("clusters"), **_digests(files, decisions)}
    return made.command == "suggest" and made.inputs == inputs


def _digests(files: SuggestionFiles, decisions: Sequence[Path]) -> dict[str, str]:
    """Return the SHA-256 of all files but the clusters, by role."""
    return tables.input_digests(
        embeddings=files.embeddings,
        classes=files.classes,
        taxonomy=files.taxonomy,
        vocabulary=files.vocabulary,
        decisions=decisions,
    )


def find_suggestion_files(
    clusters: Path,
    embeddings: Path | None = None,
    classes: Sequence[Path] | None = None,
    taxonomy: Path | None = None,
    vocabulary: Sequence[Path] | None = None,
) -> SuggestionFiles:
    """Return the files, with defaults in place of None.

    Raises:
        InputError: There are no clusters or no label embeddings.
    """
    files = SuggestionFiles(
        clusters,
        clusters.with_name("label_embeddings.parquet") if embeddings is None else embeddings,
        sorted(clusters.parent.glob("*.classes.parquet")) if classes is None else classes,
        annotation_file("taxonomy.csv") if taxonomy is None else taxonomy,
        [annotation_file("vocabulary.csv")] if vocabulary is None else vocabulary,
    )
    if not clusters.is_file():
        raise InputError(f"{clusters}: no such file; hgld cluster writes it")
    if not files.embeddings.is_file():
        raise InputError(f"{files.embeddings}: no such file; give the table of hgld embed in `embeddings`")
    return files


def read_suggestion_inputs(
    files: SuggestionFiles, *, progress: Progress | None = None, load: LoadEncoder = load_cached_encoder
) -> SuggestionInputs:
    """Read the files.

    Raises:
        InputError: A file is invalid, or a label has no embedding.
    """
    from hgld.labels.examples import EmbeddedLabels

    clusters = tables.read_table(files.clusters, tables.CLUSTERS)
    embeddings = tables.read_table(files.embeddings, tables.LABEL_EMBEDDINGS)
    ids, texts = (clusters[name].to_pylist() for name in ("label_id", "label"))
    matrix = embedding_matrix(embeddings).astype(np.float64)
    vectors_by_id = dict(zip(embeddings["label_id"].to_pylist(), matrix, strict=True))
    missing = [
        f'{label_id} ("{text}")' for label_id, text in zip(ids, texts, strict=True) if label_id not in vectors_by_id
    ]
    if missing:
        raise InputError(
            f"{files.embeddings}: no embedding of {len(missing):,} labels of {files.clusters}; make both from "
            f"the same clean table:\n{indented_list(missing)}"
        )
    vectors = [vectors_by_id[label_id] for label_id in ids]
    groups = read_taxonomy(files.taxonomy)
    keys = {group.key for group in groups}
    return SuggestionInputs(
        clusters=clusters,
        labels=EmbeddedLabels(ids, texts, np.stack(vectors)),
        landmarks=np.asarray(clusters["landmarks_train"].to_numpy() + clusters["landmarks_index"].to_numpy()),
        groups=groups,
        vocabulary=[term for path in files.vocabulary for term in read_vocabulary(path, keys)],
        classes=[tables.read_table(path, tables.CLASSES) for path in files.classes],
        embed=_cached_encoder(files.embeddings, dict(zip(texts, vectors, strict=True)), progress, load),
    )


def _cached_encoder(
    embeddings: Path, vectors: dict[str, NDArray[np.float64]], progress: Progress | None, load: LoadEncoder
) -> EmbedTexts:
    """Return a function that embeds texts as the label embeddings were, and loads the encoder on the first new text.

    Args:
        embeddings: ``label_embeddings`` table, whose provenance names the encoder and the templates.
        vectors: Cache of vectors by text; new ones are added.
        progress: Reports each batch of new texts.
        load: Returns the encoder for a name and a device.
    """
    settings = tables.read_provenance(embeddings).parameters
    if not {"encoder", "templates"} <= settings.keys():
        raise InputError(f"{embeddings}: does not say which encoder made it; hgld embed writes a table that does")

    def embed(texts: Sequence[str]) -> NDArray[np.float64]:
        new = [text for text in dict.fromkeys(texts) if text not in vectors]
        if new:
            encoder = load(settings["encoder"], None)
            embedded = embed_labels(new, encoder, settings["templates"], progress=progress)
            vectors.update(zip(new, embedded.astype(np.float64), strict=True))
        return np.stack([vectors[text] for text in texts])

    return embed


def suggest_groups(inputs: SuggestionInputs, decisions: Iterable[Decision] = ()) -> list[list[Suggestion]]:
    """Return at most ``MAX_SUGGESTIONS`` groups with any evidence for every label, the most likely one first.

    Args:
        inputs: Labels, groups and classes.
        decisions: Decisions on labels; the decision on a label itself does not change its suggestions.
    """
    from hgld.labels.suggestion_scores import find_rungs, score_groups

    evidence = inputs.evidence(decisions)
    scores, rungs = score_groups(evidence), find_rungs(evidence)
    has_evidence = np.any([part.values[:, :-1] > 0 for part in evidence], axis=0)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :MAX_SUGGESTIONS]
    return [
        [
            Suggestion(
                inputs.groups[group].key, float(scores[row, group]), evidence[rungs[row, group]].explain(row, group)
            )
            for group in groups
            if has_evidence[row, group]
        ]
        for row, groups in enumerate(best.tolist())
    ]


def _with_suggestions(bare: pa.Table, suggestions: Sequence[Sequence[Suggestion]]) -> pa.Table:
    columns = (
        pa.array([row[0].group if row else None for row in suggestions], pa.string()),
        pa.array([row[0].score if row else None for row in suggestions], pa.float32()),
        pa.array([[suggestion._asdict() for suggestion in row] for row in suggestions], tables.SUGGESTIONS),
    )
    for name, column in zip(_SUGGESTION_COLUMNS, columns, strict=True):
        bare = bare.append_column(name, column)
    return bare


def _digest(table: pa.Table) -> str:
    """Return the SHA-256 (hex) of the values of a table, independent of its file."""
    return hashlib.sha256(json.dumps(table.to_pydict()).encode()).hexdigest()
