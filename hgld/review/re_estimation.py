"""Estimate suggestions again from the decisions made so far, in a process of its own.

The process begins with the first estimate and has a low priority. It keeps the encoder of the label embeddings,
which it needs for the terms of the vocabulary; without that encoder, suggestions stay as they are.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import NamedTuple

from hgld.errors import HgldError, InputError
from hgld.labels.encoder_cache import load_cached_encoder
from hgld.labels.encoders import LoadEncoder
from hgld.labels.suggest import (
    SuggestionFiles,
    SuggestionInputs,
    find_suggestion_files,
    read_suggestion_inputs,
    suggest_groups,
)
from hgld.review.inputs import ReviewInputs
from hgld.review.review_labels import Suggestion, table_suggestions
from hgld.review.session import ReviewSession
from hgld.tables import input_digests, read_provenance
from hgld.taxonomy.decisions import Decision
from hgld.taxonomy.groups import Group

#: Suggestions are estimated again after this many new decisions, or after fewer of them and a pause in seconds.
AFTER_DECISIONS, AFTER_PAUSE_S = 20, 5.0
#: Change of a score from which suggestions count as changed.
_CHANGED_SCORE = 0.02
_NICENESS = 10
#: Time that the process gets to end, in seconds.
_GRACE_PERIOD_S = 2

log = logging.getLogger(__name__)

#: Suggestions by label_id.
_Suggestions = Mapping[str, tuple[Suggestion, ...]]


def re_estimation_files(inputs: ReviewInputs) -> SuggestionFiles:
    """Return what the suggestions of the ``clusters`` table were made from, to estimate them again.

    Raises:
        InputError: The table has no suggestions or no embeddings beside it, or its suggestions were made from other
            files than those beside it and those that come with hgld, such as earlier decisions.
    """
    files = find_suggestion_files(inputs.clusters, classes=inputs.classes, taxonomy=inputs.taxonomy)
    provenance = read_provenance(inputs.clusters)
    if provenance.command != "suggest":
        raise InputError(f"{inputs.clusters}: has no suggestions; hgld suggest adds them")
    found = input_digests(
        embeddings=files.embeddings, classes=files.classes, taxonomy=files.taxonomy, vocabulary=files.vocabulary
    )
    made_from = {role: digest for role, digest in provenance.inputs.items() if role != "clusters"}
    different = sorted(role for role in found.keys() | made_from.keys() if found.get(role) != made_from.get(role))
    if different:
        raise InputError(f"{inputs.clusters}: its suggestions were made from other files ({', '.join(different)})")
    return files


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
        load: Returns the encoder for a name and a device.
    """

    def __init__(
        self,
        session: ReviewSession,
        files: SuggestionFiles,
        *,
        after_pause_s: float = AFTER_PAUSE_S,
        load: LoadEncoder = load_cached_encoder,
    ) -> None:
        self._session = session
        self._arguments = (files, load)
        self._after_pause_s = after_pause_s
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Connection | None = None
        self._is_working = False
        self._is_off = False
        self._n_decisions = 0
        self._estimated_event = 0
        self._seen_event, self._seen_at = -1, 0.0

    def step(self) -> None:
        """Take over an estimate that is ready, or begin one that is due."""
        if self._is_off:
            return
        if self._is_working:
            self._receive()
        elif self._is_due():
            if self._connection is None:
                self._start()
            else:
                self._send(self._connection)

    def close(self) -> None:
        """End the process."""
        self._is_off = True
        if self._process is not None:
            self._process.terminate()
            self._process.join(_GRACE_PERIOD_S)
            self._process.kill()
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

    def _start(self) -> None:
        """Start the process, which says when it is ready: before, a large task would not fit into the pipe."""
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_work, args=(other, *self._arguments), daemon=True)
        self._process.start()
        other.close()
        self._is_working = True

    def _send(self, connection: Connection) -> None:
        decisions = [decision for decision in self._session.decisions() if decision.decision != "unsure"]
        self._n_decisions = len(decisions)
        self._estimated_event = self._session.state.last_event
        self._is_working = True
        try:
            connection.send(_Task(list(self._session.groups().values()), decisions))
        except OSError as error:
            self._give_up(str(error))

    def _receive(self) -> None:
        assert self._connection is not None
        try:
            if not self._connection.poll():
                return
            result: _Suggestions | str = self._connection.recv()
        except (EOFError, OSError):
            result = "the process that does it has ended"
        self._is_working = False
        if isinstance(result, str):
            self._give_up(result)
            return
        session = self._session
        new = {key: value for key, value in result.items() if key in session.labels and not session.is_decided(key)}
        if new:
            session.updates.add(new, self._n_decisions)

    def _give_up(self, reason: str) -> None:
        log.warning("suggestions are not re-estimated: %s", reason)
        self.close()


def differ(old: Sequence[Suggestion], new: Sequence[Suggestion]) -> bool:
    """Return whether suggestions are of other groups, or have scores that changed noticeably."""
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


def _work(connection: Connection, files: SuggestionFiles, load: LoadEncoder) -> None:
    """Answer tasks with suggestions that have changed, or with the reason why that is impossible.

    The first answer comes without a task and is empty.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C stops the server, which ends this process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # releases what libraries hold
    os.nice(_NICENESS)
    try:
        inputs = read_suggestion_inputs(files, load=load)
        present = table_suggestions(inputs.clusters)
        changed: _Suggestions = {}
        while True:
            connection.send(changed)
            task: _Task = connection.recv()
            new = estimate(inputs, task.groups, task.decisions)
            changed = {key: suggestions for key, suggestions in new.items() if differ(present[key], suggestions)}
            present |= changed
    except (EOFError, BrokenPipeError):
        return
    except HgldError as error:
        connection.send(str(error))
