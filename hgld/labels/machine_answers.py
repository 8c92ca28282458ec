"""Read what models answered to the question which group a label belongs to.

Nobody has seen an answer when it is read, so it is never a decision. Answers are signed ``machine:MODEL``;
:func:`hgld.taxonomy.decisions.read_decisions` refuses them wherever decisions count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
    """The answer of a model on a label, by the number of the label, and the score that the model claims, 0 to 1."""

    label: int
    model: str
    score: float
    decision: Decision


def read_answers(
    path: Path, ids: Sequence[str], texts: Sequence[str], groups: Sequence[Group]
) -> list[Answer]:
    """Read a table of answers, at most one of each model on each label.

    Args:
        path: CSV or Parquet file with the columns label (its text), group (name or key; empty to drop the label),
            score (0 to 1), model, and prompt_hash (tells prompts apart; may be empty).
        texts: Text of each label; an answer is on all labels with its text.
    """
    rows_of: dict[str, list[int]] = {}
    for row, text in enumerate(texts):
        rows_of.setdefault(normalise_label(text), []).append(row)
    keys = survivors(groups) | {
        name: group.key for group in groups for name in (group.key, group.name)
    }
    answered_at = datetime.fromtimestamp(
        path.stat().st_mtime if path.is_file() else 0, timezone.utc
    )
    first_lines: dict[tuple[str, str], int] = {}

    def parse(line: int, values: Mapping[str, str]) -> list[Answer]:
        label, name, score_text, model, prompt = (values[column].strip() for column in _COLUMNS)
        name = stored_name(name)
        key = normalise_label(label)
        if key not in rows_of:
            raise ValueError(f'there is no label "{label}" in the clusters; give its text as there')
        if name and (
            problem := decision_problem(
                "group", keys.get(name, name), {group.key for group in groups}
            )
        ):
            raise ValueError(f'"{label}": {problem}')
        score = _parse_score(score_text)
        if not (sign := re.sub("[^A-Za-z0-9_-]+", "-", model).strip("-")):
            raise ValueError("the model is empty; name the model that answered")
        if (first := first_lines.setdefault((sign, key), line)) != line:
            raise ValueError(f'{model} has answered on "{label}" in line {first} already')
        comment = f"score {score:g}" + (f", prompt {prompt}" if prompt else "")
        decided = Decision(
            "",
            "",
            "group" if name else "drop",
            keys.get(name),
            f"{MACHINE}{sign}",
            answered_at,
            comment,
        )
        return [
            Answer(row, model, score, replace(decided, label_id=ids[row], label=texts[row]))
            for row in rows_of[key]
        ]

    return [answer for answers in read_table_rows(path, _COLUMNS, parse) for answer in answers]


def _parse_score(text: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = -1
    if not 0 <= score <= 1:
        raise ValueError(f'the score is "{text}"; expected a number from 0 to 1')
    return score


def answer_files(out: Path, answers: Sequence[Answer]) -> dict[Path, list[Decision]]:
    """Return the answers of each model by the file beside ``out`` that holds them, such as ``MODEL.machine.csv``."""
    files: dict[Path, list[Decision]] = {}
    for answer in answers:
        path = out.with_name(f"{answer.decision.annotator.removeprefix(MACHINE)}.machine.csv")
        files.setdefault(path, []).append(answer.decision)
    return files
