"""The stage ``suggest``: for every label the groups that annotators most likely choose, how likely, and why.

A suggestion is never taken for a decision. It gets better with the decisions on other labels.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hgld import tables
from hgld.errors import InputError, listing
from hgld.labels.embed import embed_labels, matrix_of
from hgld.labels.encoders import TextEncoder, load_encoder
from hgld.labels.evidence import KINDS, Embed, Finding, Labels, find_evidence
from hgld.progress import Progress
from hgld.resources import annotation_file
from hgld.taxonomy.decisions import Decision, read_decisions
from hgld.taxonomy.groups import Group, read_taxonomy

#: What evidence of each kind counts for a group, and what speaks for none of them.
#:
#: Fitted (multinomial logistic, L2) to the decisions on the labels of the sample alone, with and without its classes,
#: before any decision and with those on all other labels; ``benchmarks/suggestion_weights.py`` does it again. On the
#: labels of Washington they name as many groups right as weights fitted there (calibration error 0.05, not 0.04). So
#: they are not fitted anew to decisions as these come in: scores stay comparable, and a label's own decision has no
#: way into its suggestions.
WEIGHTS = {"named": 0.4, "subclass": 3.4, "head": 1.8, "alike": 0.1, "near": 1.2}
NO_GROUP = 3.0

MOST_SUGGESTIONS = 3
LIKELY = 0.9

_SUGGESTIONS = ("suggested_group", "suggestion_score", "suggestions")

LoadEncoder = Callable[[str, str | None], TextEncoder]


class Suggestion(NamedTuple):
    """A group that a label may belong to, the probability that annotators choose it, and what speaks for it."""

    group: str
    score: float
    reason: str


@dataclass(frozen=True)
class Sources:
    """The files that suggestions are made from, decisions apart; see :func:`suggest_file`."""

    clusters: Path
    embeddings: Path
    classes: Sequence[Path]
    taxonomy: Path


@dataclass(frozen=True)
class Known:
    """What these files say.

    Args:
        clusters: the ``clusters`` table.
        labels: its labels, in its order.
        landmarks: int64, shape (labels,); how many landmarks have each.
        groups: the taxonomy.
        classes: ``classes`` tables.
        embed: the encoder that made the labels' vectors.
    """

    clusters: pa.Table
    labels: Labels
    landmarks: NDArray[np.int64]
    groups: Sequence[Group]
    classes: Sequence[pa.Table]
    embed: Embed

    def evidence(self, decisions: Iterable[Decision] = ()) -> list[Finding]:
        """The evidence for all labels, given what was decided."""
        return find_evidence(self.labels, self.groups, decisions, self.classes, self.embed)


@dataclass(frozen=True)
class SuggestSummary:
    """How many labels and landmarks there are, how many of them have a likely group, from how many decisions."""

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
    decisions: Sequence[Path] = (),
    force: bool = False,
    progress: Progress | None = None,
    load: LoadEncoder = load_encoder,
) -> SuggestSummary | None:
    """Write the clusters with suggestions for every label; ``out`` may be the same file.

    Args:
        clusters: the ``clusters`` table; suggestions that it has are replaced.
        out: the table to write, in the same order.
        embeddings: the label embeddings; ``label_embeddings.parquet`` beside ``clusters`` by default.
        classes: ``classes`` tables; ``*.classes.parquet`` beside ``clusters`` by default.
        taxonomy: the groups; those that come with hgld by default.
        decisions: files of decisions; of a label that several of them decide on, the last one counts.
        force: do the work although ``out`` is up to date.
        progress: told of the texts that are embedded.
        load: makes the encoder from its name and device.

    Returns:
        What was done, or None if ``out`` was up to date.

    Raises:
        InputError: a file is missing or not what it should be, or a label has no embedding.
        ConfigurationError: the encoder of the label embeddings needs a package that is not there.
        SourceError: the encoder's weights cannot be had.
    """
    sources = find_sources(clusters, embeddings, classes, taxonomy)
    known = read_known(sources, progress=progress, load=load)
    names = [group.name for group in known.groups]
    decided = {row.label_id: row for path in decisions for row in read_decisions(path, names)}
    bare = known.clusters.drop_columns(list(_SUGGESTIONS))
    files = tables.digests(
        embeddings=sources.embeddings, classes=sources.classes, taxonomy=sources.taxonomy, decisions=decisions
    )
    made = tables.read_provenance(clusters)
    provenance = tables.Provenance(
        "suggest",
        inputs={"clusters": _digest(bare), **files},
        before=made.before if made.command == "suggest" else made,
    )
    if not force and tables.is_up_to_date(out, provenance):
        return None

    suggestions = suggest(known, decided.values())
    tables.write_table(out, tables.CLUSTERS, _with_suggestions(bare, suggestions), provenance)
    likely = np.array([bool(row) and row[0].score >= LIKELY for row in suggestions], bool)
    return SuggestSummary(
        labels=len(bare),
        landmarks=int(known.landmarks.sum()),
        likely_labels=int(likely.sum()),
        likely_landmarks=int(known.landmarks[likely].sum()),
        decisions=sum(row.decision == "group" for row in decided.values()),
    )


def find_sources(
    clusters: Path, embeddings: Path | None, classes: Sequence[Path] | None, taxonomy: Path | None
) -> Sources:
    """The files, with the defaults for those not given.

    Raises:
        InputError: there are no clusters or label embeddings.
    """
    sources = Sources(
        clusters,
        clusters.with_name("label_embeddings.parquet") if embeddings is None else embeddings,
        sorted(clusters.parent.glob("*.classes.parquet")) if classes is None else classes,
        annotation_file("taxonomy.csv") if taxonomy is None else taxonomy,
    )
    if not clusters.is_file():
        raise InputError(f"{clusters}: no such file; hgld cluster writes it")
    if not sources.embeddings.is_file():
        raise InputError(f"{sources.embeddings}: no such file; name the table from hgld embed with --embeddings")
    return sources


def read_known(sources: Sources, *, progress: Progress | None = None, load: LoadEncoder = load_encoder) -> Known:
    """Read the files.

    Raises:
        InputError: one is not what it should be, or a label has no embedding.
    """
    clusters = tables.read_table(sources.clusters, tables.CLUSTERS)
    embeddings = tables.read_table(sources.embeddings, tables.LABEL_EMBEDDINGS)
    ids, texts = (clusters[name].to_pylist() for name in ("label_id", "label"))
    vectors = dict(zip(embeddings["label_id"].to_pylist(), matrix_of(embeddings).astype(np.float64), strict=True))
    missing = [f'{label_id} ("{text}")' for label_id, text in zip(ids, texts, strict=True) if label_id not in vectors]
    if missing:
        raise InputError(
            f"{sources.embeddings}: no embedding of {len(missing):,} labels of {sources.clusters}; make both from "
            f"the same clean table:\n{listing(missing)}"
        )
    of_labels = [vectors[label_id] for label_id in ids]
    return Known(
        clusters=clusters,
        labels=Labels(ids, texts, np.stack(of_labels)),
        landmarks=np.asarray(clusters["landmarks_train"].to_numpy() + clusters["landmarks_index"].to_numpy()),
        groups=read_taxonomy(sources.taxonomy),
        classes=[tables.read_table(path, tables.CLASSES) for path in sources.classes],
        embed=_encoder_of(sources.embeddings, dict(zip(texts, of_labels, strict=True)), progress, load),
    )


def _encoder_of(
    embeddings: Path, known: dict[str, NDArray[np.float64]], progress: Progress | None, load: LoadEncoder
) -> Embed:
    """Embeds as the label embeddings were; the encoder is loaded for the first text without a vector."""
    made = tables.read_provenance(embeddings).parameters
    if not {"encoder", "templates"} <= made.keys():
        raise InputError(f"{embeddings}: does not say which encoder made it; hgld embed writes a table that does")

    def embed(texts: Sequence[str]) -> NDArray[np.float64]:
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            encoder = load(made["encoder"], None)
            vectors = embed_labels(new, encoder, made["templates"], progress=progress)
            known.update(zip(new, vectors.astype(np.float64), strict=True))
        return np.stack([known[text] for text in texts])

    return embed


def suggest(known: Known, decisions: Iterable[Decision] = ()) -> list[list[Suggestion]]:
    """The groups with any evidence for every label, the most likely first, at most ``MOST_SUGGESTIONS``.

    Args:
        known: the labels and what is known of them and the groups.
        decisions: what was decided; a decision on the label itself changes nothing.
    """
    evidence = known.evidence(decisions)
    scores = score(evidence)
    found = []
    for row, likely in enumerate(np.argsort(-scores, axis=1, kind="stable")[:, :MOST_SUGGESTIONS].tolist()):
        groups = [group for group in likely if any(finding.values[row, group] for finding in evidence)]
        found.append(
            [
                Suggestion(known.groups[group].name, float(scores[row, group]), _reason(evidence, row, group))
                for group in groups
            ]
        )
    return found


def _reason(evidence: Sequence[Finding], row: int, group: int) -> str:
    """What people follow best: a name, a class or a word that tells; else what is most alike."""
    found = {kind: finding.values[row, group] for kind, finding in zip(KINDS, evidence, strict=True)}
    telling = [kind for kind in ("named", "subclass", "head") if found[kind] >= 0.5]
    kind = telling[0] if telling else max(KINDS, key=lambda kind: found[kind])
    return evidence[KINDS.index(kind)].words(row, group)


def score(evidence: Sequence[Finding]) -> NDArray[np.float64]:
    """The probability that annotators choose each group, shape (labels, groups).

    A softmax over the weighted sums of the evidence for every group and of ``NO_GROUP`` for none: the scores
    of a label come to less than 1, and to little where nothing is found.
    """
    weighted = [WEIGHTS[kind] * finding.values for kind, finding in zip(KINDS, evidence, strict=True)]
    logits = np.sum(weighted, axis=0)
    highest = np.maximum(logits.max(axis=1, keepdims=True), NO_GROUP)
    powers = np.exp(logits - highest)
    return np.asarray(powers / (powers.sum(axis=1, keepdims=True) + np.exp(NO_GROUP - highest)))


def _with_suggestions(bare: pa.Table, suggestions: Sequence[Sequence[Suggestion]]) -> pa.Table:
    columns = (
        pa.array([row[0].group if row else None for row in suggestions], pa.string()),
        pa.array([row[0].score if row else None for row in suggestions], pa.float32()),
        pa.array([[found._asdict() for found in row] for row in suggestions], tables.SUGGESTIONS),
    )
    for name, column in zip(_SUGGESTIONS, columns, strict=True):
        bare = bare.append_column(name, column)
    return bare


def _digest(table: pa.Table) -> str:
    """SHA-256 (hex) of the values of a table, wherever it is written."""
    return hashlib.sha256(json.dumps(table.to_pydict()).encode()).hexdigest()
