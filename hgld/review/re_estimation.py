"""Estimate suggestions again from the decisions made so far, in a process of its own.

The process begins with the first estimate and has a low priority. It keeps the encoder of the label embeddings,
which it needs for the terms of the vocabulary; without that encoder, suggestions stay as they are.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import NamedTuple

from hgld.errors import HgldError
from hgld.labels.suggest import SuggestionFiles, SuggestionInputs, read_suggestion_inputs, suggest_groups
from hgld.review.review_labels import ReviewLabel, Suggestion
from hgld.review.session import ReviewSession
from hgld.taxonomy.decisions import Decision
from hgld.taxonomy.groups import Group

#: Suggestions are estimated again after this many new decisions, or after fewer of them and a pause in seconds.
AFTER_DECISIONS, AFTER_PAUSE_S = 20, 5.0
#: Change of a score from which suggestions count as changed.
_CHANGED_SCORE = 0.02
_NICENESS = 10

log = logging.getLogger(__name__)

#: Suggestions by label_id.
_Suggestions = Mapping[str, tuple[Suggestion, ...]]


class _Task(NamedTuple):
    """What an estimate is based on."""

    groups: Sequence[Group]
    decisions: Sequence[Decision]


class ReEstimation:
    """The estimates for one session. Nothing of it waits: call :meth:`step` now and then.

    Args:
        session: Session whose undecided labels get new suggestions.
        files: What suggestions are made from.
        after_pause_s: Pause after decisions from which a few of them are enough, in seconds.
    """

    def __init__(
        self, session: ReviewSession, files: SuggestionFiles, *, after_pause_s: float = AFTER_PAUSE_S
    ) -> None:
        self._session = session
        self._files = files
        self._after_pause_s = after_pause_s
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Connection | None = None
        self._task: _Task | None = None
        self._is_off = False
        self._estimated_event = 0
        self._seen_event, self._seen_at = -1, 0.0

    def step(self) -> None:
        """Take over an estimate that is ready, or begin one that is due."""
        if self._is_off:
            return
        if self._task is not None:
            self._receive(self._task)
        elif self._is_due():
            self._send()

    def close(self) -> None:
        """End the process."""
        self._is_off = True
        if self._process is not None:
            self._process.terminate()
            self._process.join()

    def _is_due(self) -> bool:
        state = self._session.state
        if state.last_event != self._seen_event:
            self._seen_event, self._seen_at = state.last_event, time.monotonic()
        if state.last_event == self._estimated_event:
            return False
        events = state.events_after(self._estimated_event)
        n_changed = len({event.key for event in events if event.kind == "decision"})
        has_paused = time.monotonic() - self._seen_at >= self._after_pause_s
        return n_changed >= (1 if has_paused else AFTER_DECISIONS)

    def _send(self) -> None:
        if self._connection is None:
            context = multiprocessing.get_context("spawn")
            self._connection, other = context.Pipe()
            self._process = context.Process(target=_work, args=(other, self._files), daemon=True)
            self._process.start()
            other.close()
        decisions = [decision for decision in self._session.decisions() if decision.decision != "unsure"]
        self._task = _Task(list(self._session.groups().values()), decisions)
        self._estimated_event = self._session.state.last_event
        try:
            self._connection.send(self._task)
        except OSError as error:
            self._give_up(str(error))

    def _receive(self, task: _Task) -> None:
        assert self._connection is not None
        try:
            if not self._connection.poll():
                return
            result: _Suggestions | str = self._connection.recv()
        except (EOFError, OSError):
            result = "the process that does it has ended"
        self._task = None
        if isinstance(result, str):
            self._give_up(result)
            return
        labels = self._session.labels
        changed = {
            label_id: new
            for label_id, new in result.items()
            if label_id in labels and not self._session.is_decided(label_id) and differs(labels[label_id], new)
        }
        if changed:
            self._session.updates.add(changed, len(task.decisions))

    def _give_up(self, reason: str) -> None:
        log.warning("suggestions are not re-estimated: %s", reason)
        self.close()


def differs(label: ReviewLabel, new: Sequence[Suggestion]) -> bool:
    """Return whether a label has other suggestions now, or the same with scores that changed noticeably."""
    old = label.suggestions
    if [suggestion.group for suggestion in old] != [suggestion.group for suggestion in new]:
        return True
    return any(abs((a.score or 0) - (b.score or 0)) >= _CHANGED_SCORE for a, b in zip(old, new, strict=True))


def estimate(
    inputs: SuggestionInputs, groups: Sequence[Group], decisions: Sequence[Decision]
) -> dict[str, tuple[Suggestion, ...]]:
    """Return the suggestions for all labels after some decisions.

    Args:
        inputs: What suggestions are made from.
        groups: Present groups, which may be others than those of ``inputs``.
        decisions: Decisions for these groups.
    """
    keys = {group.key for group in groups}
    vocabulary = [term for term in inputs.vocabulary if term.group is None or term.group in keys]
    suggested = suggest_groups(replace(inputs, groups=groups, vocabulary=vocabulary), decisions)
    return {
        label_id: tuple(Suggestion(*suggestion) for suggestion in row)
        for label_id, row in zip(inputs.labels.ids, suggested, strict=True)
    }


def _work(connection: Connection, files: SuggestionFiles) -> None:
    """Answer tasks with suggestions by label_id, or with the reason why that is impossible."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C stops the server, which ends this process
    os.nice(_NICENESS)
    try:
        inputs = read_suggestion_inputs(files)
        while True:
            task: _Task = connection.recv()
            connection.send(estimate(inputs, task.groups, task.decisions))
    except (EOFError, BrokenPipeError):
        return
    except HgldError as error:
        connection.send(str(error))
