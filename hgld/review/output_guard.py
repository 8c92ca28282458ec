"""Refuse to overwrite decisions that no other file holds, before a command that writes decisions replaces them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from hgld.errors import ConfigurationError
from hgld.taxonomy.decisions import Decision


def require_nothing_lost(out: Path, lost: Sequence[Decision]) -> None:
    """Check that writing ``out`` loses no decision.

    Args:
        out: File of decisions that is about to be written.
        lost: Decisions that only this file holds and that the new content does not have.

    Raises:
        ConfigurationError: Some decisions would be lost.
    """
    if lost:
        annotators = ", ".join(sorted({row.annotator for row in lost}))
        raise ConfigurationError(
            f"{out}: holds decisions by {annotators}, which would be lost ({len(lost):,} of its labels, such as "
            f'"{lost[0].label}"); write to another file, or replace them with `force`'
        )


def require_other_file(out: Path, inputs: Iterable[Path]) -> None:
    """Check that an output is not one of the inputs.

    Raises:
        ConfigurationError: It is.
    """
    if out.exists() and any(path.exists() and out.samefile(path) for path in inputs):
        raise ConfigurationError(f"{out}: is an input, and would be overwritten; write to another file")


def made_by_others(decision: Decision, annotators: Collection[str]) -> bool:
    """Return whether somebody who is not among ``annotators`` signed the decision."""
    return not set(decision.annotator.split("+")) <= set(annotators)
