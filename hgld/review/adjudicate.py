"""The stage ``adjudicate``: from the decisions of two annotators to one decision per label.

Where both agree, that is decided, and signed by both. What is left is looked at by a person or settled by a rule;
what neither settles stays open and is listed.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hgld.errors import ConfigurationError, indented_list
from hgld.resources import annotation_file
from hgld.review.opinions import UNSURE, Opinions, category, check_known, landmarks_by_label, read_opinions
from hgld.tables import CLUSTERS, read_table
from hgld.taxonomy.decisions import Decision, DecisionIndex, read_decisions, write_decisions
from hgld.taxonomy.groups import read_taxonomy
from hgld.taxonomy.label_identity import ITEM_ID, normalise_label

log = logging.getLogger(__name__)

AGREE_ONLY, MOST_LANDMARKS, _PREFER = "agree-only", "most-landmarks", "prefer:"


@dataclass(frozen=True)
class AdjudicateConfig:
    """How labels are settled on which two annotators differ.

    Args:
        rule: ``agree-only`` settles none; ``prefer:NAME`` takes what that annotator decided; ``most-landmarks``
            takes the opinion that holds more landmarks among the labels on which both agree.

    Raises:
        ConfigurationError: the rule is none of these.
    """

    rule: str

    def __post_init__(self) -> None:
        if self.rule not in (AGREE_ONLY, MOST_LANDMARKS) and self.preferred is None:
            raise ConfigurationError(
                f'there is no rule "{self.rule}"; give {AGREE_ONLY}, {MOST_LANDMARKS} or {_PREFER} and a name'
            )

    @property
    def preferred(self) -> str | None:
        """The annotator whose decisions are taken, if the rule names one."""
        return self.rule.removeprefix(_PREFER) if self.rule.startswith(_PREFER) else None


@dataclass(frozen=True)
class OpenLabel:
    """A label that the decisions of two annotators do not settle; None for who did not decide it."""

    label_id: str
    label: str
    first: Decision | None
    second: Decision | None


@dataclass(frozen=True)
class Outcome:
    """What became of the labels that two annotators decided.

    Args:
        decisions: one for each label that is settled, and ``unsure`` where both are.
        agreed: how many labels both put into the same group, or dropped.
        still_open: labels that are not settled.
    """

    decisions: list[Decision]
    agreed: int
    still_open: list[OpenLabel]


@dataclass(frozen=True)
class AdjudicateSummary:
    """What was written.

    Args:
        agreed: labels that both put into the same group, or dropped.
        settled: further labels that were settled.
        still_open: what each annotator decided on the labels that are not.
        kept: decisions of the output on labels that neither annotator decided.
        changed: decisions of the output that are now others.
        withdrawn: decisions of the output on labels that are now open.
        taxonomy: the taxonomy with groups that were proposed, if there are any.
    """

    agreed: int
    settled: int
    still_open: tuple[str, ...]
    kept: int
    changed: int
    withdrawn: int
    taxonomy: Path | None = None


def adjudicate_files(
    first: Path,
    second: Path,
    out: Path,
    config: AdjudicateConfig,
    *,
    clusters: Path | None = None,
    taxonomy: Path | None = None,
    force: bool = False,
) -> AdjudicateSummary | None:
    """Write one decision per label from those of two annotators, by a rule.

    Args:
        first: decisions of one annotator, in a file named after them.
        second: those of the other.
        out: the file of decisions to write. What it says of labels that neither annotator decided is kept.
        config: the rule.
        clusters: the ``clusters`` table, for the number of landmarks: the rule ``most-landmarks`` needs it, and
            open labels are listed by it.
        taxonomy: the groups; those that come with hgld by default.
        force: do not look at what ``out`` holds.

    Returns:
        None when ``out`` holds these decisions already and nothing is open.

    Raises:
        ConfigurationError: the rule needs what is not given, or names somebody else.
        InputError: a file cannot be read, or a label is not in the table.
    """
    taxonomy = annotation_file("taxonomy.csv") if taxonomy is None else taxonomy
    groups = {group.name for group in read_taxonomy(taxonomy)}
    one, other = read_opinions([first, second], groups)
    landmarks = None if clusters is None else landmarks_by_label(read_table(clusters, CLUSTERS))
    outcome = adjudicate(one, other, config, landmarks)
    before = [] if force or not out.exists() else read_decisions(out, groups)
    return write_outcome(out, one, other, outcome, before=before, landmarks=landmarks)


def disagreements(first: Opinions, second: Opinions) -> list[OpenLabel]:
    """The labels that somebody has to look at: decided differently, by one only, or unsure to both."""
    found = []
    for label_id in sorted(first.decisions.keys() | second.decisions.keys()):
        one, other = first.decisions.get(label_id), second.decisions.get(label_id)
        some = one or other
        assert some is not None
        if not _agree(one, other) or category(some) == UNSURE:
            found.append(OpenLabel(label_id, some.label, one, other))
    return found


def final_decisions(first: Opinions, second: Opinions, adjudicated: Iterable[Decision]) -> list[Decision]:
    """One decision per label: where both agree, theirs, and in any case what was adjudicated.

    A decision of both is signed by both, has the later time and joins their comments. Where both are unsure, it is
    ``unsure``, with their guess if it is the same.
    """
    final = {
        label_id: _joint(one, second.decisions[label_id])
        for label_id, one in first.decisions.items()
        if _agree(one, second.decisions.get(label_id))
    }
    final |= {row.label_id: row for row in adjudicated}
    return list(final.values())


def outcome_of(first: Opinions, second: Opinions, adjudicated: Iterable[Decision]) -> Outcome:
    """The final decisions, and what is still open."""
    decisions = final_decisions(first, second, adjudicated)
    settled = {row.label_id for row in decisions if row.decision != "unsure"}
    doubtful = disagreements(first, second)
    n_labels = len(first.decisions.keys() | second.decisions.keys())
    return Outcome(
        decisions,
        agreed=n_labels - len(doubtful),
        still_open=[one for one in doubtful if one.label_id not in settled],
    )


def adjudicate(
    first: Opinions, second: Opinions, config: AdjudicateConfig, landmarks: Mapping[str, int] | None = None
) -> Outcome:
    """Settle by a rule what two annotators do not agree on.

    A label that both are unsure about stays open under every rule, and one that only one of them decided under
    all but ``prefer`` with that one's name. ``most-landmarks`` weighs a group by the landmarks of the labels that
    both put into it, and dropping like a group; equal weights leave the label open, and being unsure yields to
    any other opinion. The comment on a settled label tells what the other annotator decided.

    Args:
        first: the decisions of one.
        second: those of the other.
        config: the rule.
        landmarks: how many landmarks have a label, by label_id; for ``most-landmarks``.

    Raises:
        ConfigurationError: the rule prefers somebody else, or needs the landmarks.
        InputError: a label on which both agree is not among the landmarks.
    """
    preferred = config.preferred
    if preferred is not None and preferred not in (first.name, second.name):
        raise ConfigurationError(
            f'the rule prefers "{preferred}", but the decisions are those of {first.name} and {second.name}'
        )
    weights: Mapping[str, int] = {}
    if config.rule == MOST_LANDMARKS:
        if landmarks is None:
            raise ConfigurationError(f"the rule {MOST_LANDMARKS} counts landmarks; name their table with --clusters")
        weights = _landmarks_agreed_on(first, second, landmarks)

    settled = []
    for label in disagreements(first, second):
        rows = {
            name: row for name, row in ((first.name, label.first), (second.name, label.second)) if row is not None
        }
        winner = _heavier(rows, weights) if config.rule == MOST_LANDMARKS else preferred
        if winner in rows and not _agree(label.first, label.second):
            settled.append(_settled(rows, winner))
    return outcome_of(first, second, settled)


def write_outcome(
    out: Path,
    first: Opinions,
    second: Opinions,
    outcome: Outcome,
    *,
    before: Sequence[Decision] = (),
    landmarks: Mapping[str, int] | None = None,
) -> AdjudicateSummary | None:
    """Write the final decisions, and keep those on labels that neither annotator decided.

    Args:
        out: the file of decisions to write.
        first: the decisions of one annotator.
        second: those of the other.
        outcome: what became of them.
        before: the decisions that ``out`` holds.
        landmarks: how many landmarks have a label, by label_id; the open labels are listed by it.

    Returns:
        None when ``before`` says the same and nothing is open.
    """
    kept, replaced = _apart(before, [*first.decisions.values(), *second.decisions.values()])
    index = DecisionIndex(outcome.decisions)
    now = [(row, index.find(row.label_id, row.label)) for row in replaced]
    withdrawn = [f'{row.label_id} ("{row.label}")' for row, after in now if after is None]
    if withdrawn:
        log.warning("%s: these labels were decided and are now open:\n%s", out, indented_list(withdrawn))
    final = {row.label_id: row for row in (*kept, *outcome.decisions)}
    if final != {row.label_id: row for row in before}:
        write_decisions(out, final.values())
    elif not outcome.still_open:
        return None
    still_open = sorted(outcome.still_open, key=lambda one: (-(landmarks or {}).get(one.label_id, 0), one.label))
    n_labels = len(first.decisions.keys() | second.decisions.keys())
    return AdjudicateSummary(
        agreed=outcome.agreed,
        settled=n_labels - outcome.agreed - len(still_open),
        still_open=tuple(_shown(label, first.name, second.name) for label in still_open),
        kept=len(kept),
        changed=sum(after is not None and category(after) != category(row) for row, after in now),
        withdrawn=len(withdrawn),
    )


def _apart(rows: Sequence[Decision], theirs: Iterable[Decision]) -> tuple[list[Decision], list[Decision]]:
    """The rows on labels other than ``theirs``, and those on the same.

    Labels are the same by their id, and by their text if one of the ids is made from it: a row that stayed would
    else be found for a label that is open now (:class:`DecisionIndex`).
    """
    ids_by_text: defaultdict[str, set[str]] = defaultdict(set)
    for row in theirs:
        ids_by_text[normalise_label(row.label)].add(row.label_id)
    ids = set().union(*ids_by_text.values())
    apart: list[Decision] = []
    same: list[Decision] = []
    for row in rows:
        with_text = [row.label_id, *ids_by_text.get(normalise_label(row.label), ())]
        by_text = len(with_text) > 1 and not all(map(ITEM_ID.fullmatch, with_text))
        (same if row.label_id in ids or by_text else apart).append(row)
    return apart, same


def _landmarks_agreed_on(first: Opinions, second: Opinions, landmarks: Mapping[str, int]) -> Counter[str]:
    """Landmarks of the labels that both put into a category, by category."""
    agreed = [
        row
        for label_id, row in first.decisions.items()
        if _agree(row, second.decisions.get(label_id)) and category(row) != UNSURE
    ]
    check_known([row.label_id for row in agreed], [first, second], landmarks)
    found: Counter[str] = Counter()
    for row in agreed:
        found[category(row)] += landmarks[row.label_id]
    return found


def _agree(one: Decision | None, other: Decision | None) -> bool:
    return one is not None and other is not None and category(one) == category(other)


def _heavier(rows: Mapping[str, Decision], weights: Mapping[str, int]) -> str | None:
    """Who of two chose the category of more weight; None for equal weights and for one alone."""
    weight = {name: -1 if category(row) == UNSURE else weights.get(category(row), 0) for name, row in rows.items()}
    return max(weight, key=weight.__getitem__) if len(set(weight.values())) == 2 else None


def _settled(rows: Mapping[str, Decision], winner: str) -> Decision:
    others = [_opinion(name, row) for name, row in rows.items() if name != winner]
    return replace(rows[winner], comment=_joined(rows[winner].comment, *others))


def _joint(one: Decision, other: Decision) -> Decision:
    annotators = dict.fromkeys(f"{one.annotator}+{other.annotator}".split("+"))
    return replace(
        one,
        group=one.group if one.group == other.group else None,
        annotator="+".join(annotators),
        decided_at=max(one.decided_at, other.decided_at),
        comment=_joined(one.comment, other.comment),
    )


def _joined(*comments: str) -> str:
    return "; ".join(dict.fromkeys(comment for comment in comments if comment))


def _opinion(name: str, row: Decision | None) -> str:
    if row is None:
        return f"{name}: nothing"
    return f"{name}: {category(row)}" + (f" ({row.comment})" if row.comment else "")


def _shown(label: OpenLabel, first: str, second: str) -> str:
    return f"{label.label} ({label.label_id})  {_opinion(first, label.first)}, {_opinion(second, label.second)}"
