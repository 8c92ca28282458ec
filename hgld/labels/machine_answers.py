"""Read answers of models to the question which group a label belongs to.

Nobody has reviewed an answer when it is read, so an answer is never a decision. Answers are signed
``machine:MODEL``, and :func:`hgld.taxonomy.decisions.read_decisions` refuses them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from hgld.io.table_rows import read_table_rows
from hgld.names import stored_name
from hgld.taxonomy.decisions import MACHINE, Decision, decision_problem
from hgld.taxonomy.groups import Group, survivors
from hgld.taxonomy.label_identity import normalise_label

_COLUMNS = ("label", "group", "score", "model", "prompt_hash")


class Answer(NamedTuple):
    """The answer of a model on a label.

    Args:
        label: Index of the label.
        model: Name of the model.
        score: Score that the model claims, from 0 to 1.
        decision: The answer as a decision signed by the model.
    """

    label: int
    model: str
    score: float
    decision: Decision


def read_answers(
    path: Path, ids: Sequence[str], texts: Sequence[str], groups: Sequence[Group]
) -> list[Answer]:
    """Read a table of answers, at most one answer of each model on each label.

    Args:
        path: CSV or Parquet file with the columns label (its text), group (name or key; empty to
            drop the label), score (0 to 1), model, and prompt_hash (identifies the prompt; may be
            empty).
        ids: Id of each label.
        texts: Text of each label; an answer is on all labels with its text.
        groups: The groups of the taxonomy.
    """
    table = _AnswerTable(path, ids, texts, groups)
    answers: list[Answer] = []
    for label_answers in read_table_rows(path, _COLUMNS, table.parse):
        answers += label_answers
    return answers


class _AnswerTable:
    """Parses the rows of a table of answers, and remembers where each model answered on each label."""

    def __init__(
        self, path: Path, ids: Sequence[str], texts: Sequence[str], groups: Sequence[Group]
    ) -> None:
        self._ids = ids
        self._texts = texts
        self._labels_by_text: dict[str, list[int]] = {}
        for label, text in enumerate(texts):
            self._labels_by_text.setdefault(normalise_label(text), []).append(label)
        self._group_keys = {group.key for group in groups}
        self._keys_by_name = dict(survivors(groups))
        for group in groups:
            self._keys_by_name[group.key] = group.key
            self._keys_by_name[group.name] = group.key
        modified_at = path.stat().st_mtime if path.is_file() else 0
        self._answered_at = datetime.fromtimestamp(modified_at, timezone.utc)
        self._first_lines: dict[tuple[str, str], int] = {}

    def parse(self, line: int, values: Mapping[str, str]) -> list[Answer]:
        """Return the answers of a row: one for each label with the text."""
        text = values["label"].strip()
        identity = normalise_label(text)
        if identity not in self._labels_by_text:
            raise ValueError(f'there is no label "{text}" in the clusters; give its text as there')
        name = stored_name(values["group"].strip())
        key = self._keys_by_name.get(name)
        if name:
            problem = decision_problem("group", key or name, self._group_keys)
            if problem:
                raise ValueError(f'"{text}": {problem}')
        score = _parse_score(values["score"].strip())
        model = values["model"].strip()
        signature = re.sub("[^A-Za-z0-9_-]+", "-", model).strip("-")
        if not signature:
            raise ValueError("the model is empty; name the model that answered")
        first_line = self._first_lines.setdefault((signature, identity), line)
        if first_line != line:
            raise ValueError(f'{model} has answered on "{text}" in line {first_line} already')
        comment = f"score {score:g}"
        prompt = values["prompt_hash"].strip()
        if prompt:
            comment += f", prompt {prompt}"
        answers = []
        for label in self._labels_by_text[identity]:
            decision = Decision(
                self._ids[label],
                self._texts[label],
                "group" if name else "drop",
                key,
                f"{MACHINE}{signature}",
                self._answered_at,
                comment,
            )
            answers.append(Answer(label, model, score, decision))
        return answers


def _parse_score(text: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = -1
    if not 0 <= score <= 1:
        raise ValueError(f'the score is "{text}"; expected a number from 0 to 1')
    return score


def answer_files(out: Path, answers: Sequence[Answer]) -> dict[Path, list[Decision]]:
    """Return the answers of each model by the file for them: ``MODEL.machine.csv`` beside ``out``."""
    files: dict[Path, list[Decision]] = {}
    for answer in answers:
        path = out.with_name(f"{answer.decision.annotator.removeprefix(MACHINE)}.machine.csv")
        files.setdefault(path, []).append(answer.decision)
    return files
