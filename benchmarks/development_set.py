"""The development set of ``annotations/development``, and released landmarks, as inputs of ``hgld suggest``.

All classes get ids made from their names, as labels without a Wikidata item do, so the items that the taxonomy links
are never met: suggestions recognise classes by name alone, and do no better for the items that are known.

Of released landmarks only the names of their Commons categories are known. A name is a hint at the label, and has no
superclasses, but its group was given by the authors of H-GLDv2, who never saw this vocabulary.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from released_groups import read_landmarks

from hgld import tables
from hgld.labels.embed import embed_labels
from hgld.labels.encoders import load_cached_encoder
from hgld.labels.group_examples import EmbeddedLabels
from hgld.labels.settings import DEFAULT_TEMPLATE
from hgld.labels.suggest import SuggestionInputs
from hgld.labels.wording import normalised_words
from hgld.resources import annotation_file
from hgld.taxonomy import Decision, label_id, read_taxonomy, read_vocabulary

_TIME = datetime(2026, 1, 1, tzinfo=timezone.utc)
N_FOLDS = 4


@dataclass(frozen=True)
class DevelopmentSet:
    """Labels of one half with the groups that the guideline gives them.

    Args:
        inputs: Labels, groups, vocabulary and classes.
        decisions: Decision on each label.
    """

    inputs: SuggestionInputs
    decisions: Sequence[Decision]

    @property
    def truth(self) -> NDArray[np.int64]:
        """int64, shape (n_labels,): index of the group of each label; the number of groups if it is dropped."""
        column = {group.key: number for number, group in enumerate(self.inputs.groups)}
        return np.array(
            [column[row.group] if row.group else len(column) for row in self.decisions], np.int64
        )

    @property
    def in_vocabulary(self) -> NDArray[np.bool_]:
        """bool, shape (n_labels,): whether each label is literally a term of the vocabulary."""
        terms = {normalised_words(term.text) for term in self.inputs.vocabulary}
        return np.array([normalised_words(text) in terms for text in self.inputs.labels.texts])

    def own_term_hidden(self) -> Iterator[tuple[NDArray[np.int64], SuggestionInputs]]:
        """Iterate over folds of labels, with inputs whose vocabulary lacks the terms that are labels of the fold."""
        words = [normalised_words(text) for text in self.inputs.labels.texts]
        folds = np.random.default_rng(0).permutation(len(words)) % N_FOLDS
        for fold in range(N_FOLDS):
            rows = np.flatnonzero(folds == fold)
            hidden = {words[row] for row in rows}
            rest = [
                term for term in self.inputs.vocabulary if normalised_words(term.text) not in hidden
            ]
            yield rows, replace(self.inputs, vocabulary=rest)


def read_development_set(half: str, encoder: str = "minilm") -> DevelopmentSet:
    """Read one half of the development set.

    Args:
        half: "fit" or "final"; nothing may be fitted to the final half.
        encoder: Name of the text encoder.
    """
    with annotation_file("development/labels.csv").open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["half"] == half]
    groups = {row["label"]: row["group"] for row in rows}
    return _labelled_set(groups, [_classes(list(groups))], encoder)


def read_released_set(path: Path, half: str, encoder: str = "minilm") -> DevelopmentSet:
    """Read the names of one half of released landmarks, without superclasses.

    Args:
        path: CSV file with the columns ``category`` and ``hierarchical_label``.
        half: "fit" or "final", by the SHA-256 of the name.
        encoder: Name of the text encoder.
    """
    parity = ("fit", "final").index(half)
    groups = {
        landmark.name: landmark.group
        for landmark in read_landmarks(path)
        if hashlib.sha256(landmark.name.encode()).digest()[-1] % 2 == parity
    }
    return _labelled_set(groups, [], encoder)


def _labelled_set(
    groups: Mapping[str, str], classes: Sequence[pa.Table], encoder: str
) -> DevelopmentSet:
    """Return labels with their groups, by text; a dropped label has an empty group."""
    taxonomy = read_taxonomy(annotation_file("taxonomy.csv"))
    texts, embed = list(groups), Embed(encoder)
    ids = [label_id(text, None) for text in texts]
    return DevelopmentSet(
        SuggestionInputs(
            labels=EmbeddedLabels(ids, texts, embed(texts)),
            landmarks=np.ones(len(texts), np.int64),
            groups=taxonomy,
            vocabulary=read_vocabulary(
                annotation_file("vocabulary.csv"), {group.key for group in taxonomy}
            ),
            classes=classes,
            embed=embed,
        ),
        [
            Decision(id_, text, "group" if group else "drop", group or None, "development", _TIME)
            for id_, (text, group) in zip(ids, groups.items(), strict=True)
        ],
    )


class Embed:
    """Encodes texts with templates, each once; the encoder is loaded when it is needed."""

    def __init__(self, encoder: str, templates: Sequence[str] = (DEFAULT_TEMPLATE,)) -> None:
        self._encoder, self._templates = encoder, templates
        self._vectors: dict[str, NDArray[np.float64]] = {}

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return the vectors of texts."""
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if new:
            vectors = embed_labels(new, load_cached_encoder(self._encoder), self._templates)
            self._vectors.update(zip(new, vectors.astype(np.float64), strict=True))
        return np.stack([self._vectors[text] for text in texts])


def _classes(labels: Sequence[str]) -> pa.Table:
    """Return the table of the classes that can be reached from the labels."""
    parents: dict[str, list[str]] = {}
    with annotation_file("development/superclasses.csv").open(
        encoding="utf-8", newline=""
    ) as stream:
        for row in csv.DictReader(stream):
            parents.setdefault(row["class"], []).append(row["superclass"])
    return class_table(parents, labels)


def class_table(parents: Mapping[str, Sequence[str]], labels: Sequence[str]) -> pa.Table:
    """Return a ``classes`` table of the names that can be reached from some labels.

    Args:
        parents: Names of the direct superclasses by name.
        labels: Names to start from.
    """
    names, pending = dict.fromkeys(labels), list(labels)
    while pending:
        new = [parent for parent in parents.get(pending.pop(), ()) if parent not in names]
        names.update(dict.fromkeys(new))
        pending += new
    return pa.Table.from_pylist(
        [
            {
                "item": label_id(name, None),
                "label": name,
                "language": "en",
                "subclass_of": [label_id(parent, None) for parent in parents.get(name, ())],
            }
            for name in names
        ],
        tables.CLASSES.schema,
    )
