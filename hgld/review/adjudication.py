"""The stage ``adjudicate``: combine the decisions of two annotators into one decision per label.

A decision on which both agree is final and signed by both. The other labels are decided by a person or by a rule;
those that neither settles stay open and are listed. Renamed and proposed groups of both annotators are merged
(:mod:`hgld.review.decision_files`) and written as the taxonomy beside the final decisions.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hgld.errors import ConfigurationError, indented_list
from hgld.io.writable import require_other_file
from hgld.review.decision_files import (
    UNSURE,
    GroupConflict,
    MergedTaxonomy,
    Opinions,
    category,
    changed_groups,
    landmarks_by_label,
    made_by_others,
    read_opinions,
    require_landmark_counts,
    require_nothing_lost,
    write_changed_taxonomy,
)
from hgld.tables import CLUSTERS, read_table
from hgld.taxonomy.decisions import (
    Category,
    Decision,
    DecisionIndex,
    read_decisions,
    write_decisions,
)
from hgld.taxonomy.groups import Group, find_taxonomy, read_taxonomy, taxonomy_beside
from hgld.taxonomy.label_identity import ITEM_ID, normalise_label

log = logging.getLogger(__name__)

AGREE_ONLY, MOST_LANDMARKS, _PREFER = "agree-only", "most-landmarks", "prefer:"


@dataclass(frozen=True)
class AdjudicateConfig:
    """Settings of an adjudication: how to settle labels on which two annotators differ.

    Args:
        rule: ``agree-only`` settles none; ``prefer:NAME`` takes the decision of that annotator; ``most-landmarks``
            takes the group with more landmarks among the labels on which both agree.
    """

    rule: str

    def __post_init__(self) -> None:
        if self.rule not in (AGREE_ONLY, MOST_LANDMARKS) and self.preferred is None:
            raise ConfigurationError(
                f'there is no rule "{self.rule}"; give {AGREE_ONLY}, {MOST_LANDMARKS} or {_PREFER} and a name'
            )

    @property
    def preferred(self) -> str | None:
        """Annotator whose decisions are taken, if the rule names one."""
        return self.rule.removeprefix(_PREFER) if self.rule.startswith(_PREFER) else None


@dataclass(frozen=True)
class OpenLabel:
    """A label that two annotators leave open; None in place of a missing decision."""

    label_id: str
    label: str
    first: Decision | None
    second: Decision | None


@dataclass(frozen=True)
class Adjudication:
    """Combined decisions of two annotators.

    Args:
        decisions: Decision on each settled label, and ``unsure`` on labels that both annotators are unsure about.
        agreed: Number of labels that both put into the same group or dropped.
    """

    annotators: tuple[Opinions, Opinions]
    decisions: list[Decision]
    agreed: int
    still_open: list[OpenLabel]

    @property
    def inputs(self) -> list[Decision]:
        """Decisions of both annotators."""
        return [row for annotator in self.annotators for row in annotator.decisions.values()]

    @property
    def n_labels(self) -> int:
        """Number of labels that an annotator decided."""
        return len({row.label_id for row in self.inputs})


@dataclass(frozen=True)
class AdjudicateSummary:
    """Result of the stage ``adjudicate``.

    Args:
        still_open: Labels that are not settled, those with many landmarks first.
        kept: Number of earlier decisions in the output on labels that neither annotator decided.
        changed: Number of earlier decisions in the output that were replaced by different ones.
        withdrawn: Number of earlier decisions in the output on labels that are now open.
    """

    annotators: tuple[str, str]
    agreed: int
    settled: int
    still_open: tuple[OpenLabel, ...]
    kept: int
    changed: int
    withdrawn: int
    group_names: Mapping[str, str]
    group_conflicts: tuple[GroupConflict, ...] = ()
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
        first: CSV file of decisions of one annotator, with the taxonomy beside it if groups were renamed or proposed.
        second: CSV file of decisions of the other annotator.
        out: File of decisions to write. Its decisions on labels that neither annotator decided are kept, and so are
            the names of groups in the taxonomy beside it. If groups were changed, their taxonomy is written there.
        config: Rule for labels on which the annotators differ.
        clusters: Clusters from hgld cluster, to count landmarks; required by most-landmarks and the page. Default:
            none.
        taxonomy: File of the groups; by default that of the list's project, for GLDv2 the one in hgld.
        force: Replace decisions of other people in the output on the same labels.

    Returns:
        None if ``out`` holds these decisions and groups already, and nothing is open.

    Raises:
        ConfigurationError: The rule needs an input that is not given, or names another annotator; ``out`` is an
            input, or holds decisions of other annotators that would be replaced.
    """
    require_other_file(out, [first, second, *filter(None, (clusters, taxonomy))])
    original = read_taxonomy(find_taxonomy(taxonomy, clusters or first))
    (first_opinions, second_opinions), merged = read_opinions(
        [first, second], original, settled=changed_groups(out), preferred=config.preferred
    )
    landmarks = None if clusters is None else landmarks_by_label(read_table(clusters, CLUSTERS))
    adjudication = adjudicate(first_opinions, second_opinions, config, landmarks)
    return write_adjudication(
        out,
        adjudication,
        taxonomy=merged,
        original=original,
        earlier=read_decisions(out, merged.keys) if out.exists() else [],
        landmarks=landmarks,
        force=force,
    )


def open_labels(first: Opinions, second: Opinions) -> list[OpenLabel]:
    """Return the labels to adjudicate: decided differently, by only one annotator, or unsure to both."""
    labels = []
    for label_id in sorted(first.decisions.keys() | second.decisions.keys()):
        decisions = first.decisions.get(label_id), second.decisions.get(label_id)
        decided = next(decision for decision in decisions if decision is not None)
        if not _agree(*decisions) or category(decided) == UNSURE:
            labels.append(OpenLabel(label_id, decided.label, *decisions))
    return labels


def combine_decisions(
    first: Opinions, second: Opinions, adjudicated: Iterable[Decision]
) -> Adjudication:
    """Return one decision per label: the adjudicated one if there is one, else the one on which both agree.

    A joint decision is signed by both annotators, has the later time and joins their comments. If both are unsure, it
    is ``unsure``, with their guess if they have the same.
    """
    decisions = {
        label_id: _joint_decision(decision, second.decisions[label_id])
        for label_id, decision in first.decisions.items()
        if _agree(decision, second.decisions.get(label_id))
    }
    decisions |= {decision.label_id: decision for decision in adjudicated}
    settled = {row.label_id for row in decisions.values() if row.decision != "unsure"}
    to_adjudicate = open_labels(first, second)
    return Adjudication(
        (first, second),
        list(decisions.values()),
        agreed=len(first.decisions.keys() | second.decisions.keys()) - len(to_adjudicate),
        still_open=[label for label in to_adjudicate if label.label_id not in settled],
    )


def adjudicate(
    first: Opinions,
    second: Opinions,
    config: AdjudicateConfig,
    landmarks: Mapping[str, int] | None = None,
) -> Adjudication:
    """Settle by a rule the labels on which two annotators do not agree.

    A label that both are unsure about stays open under every rule. A label that only one of them decided stays open
    unless the rule prefers that annotator. The rule ``most-landmarks`` weights a group by the landmarks of the labels
    that both put into it, and "drop" like a group; equal weights leave the label open, and "unsure" yields to any
    other opinion. The comment on a settled label names the decision of the other annotator.

    Args:
        landmarks: Number of landmarks by label_id; required by ``most-landmarks``.

    Raises:
        ConfigurationError: The rule prefers another annotator, or needs the landmarks.
    """
    preferred = config.preferred
    if preferred is not None and preferred not in (first.annotator, second.annotator):
        raise ConfigurationError(
            f'the rule prefers "{preferred}", but the decisions are those of {first.annotator} and {second.annotator}'
        )
    weights: Mapping[Category, int] = {}
    if config.rule == MOST_LANDMARKS:
        if landmarks is None:
            raise ConfigurationError(
                f"the rule {MOST_LANDMARKS} needs the number of each label; give the table of clusters as `clusters`"
            )
        weights = _agreed_landmarks(first, second, landmarks)

    settled = []
    for label in open_labels(first, second):
        candidates = ((first.annotator, label.first), (second.annotator, label.second))
        decisions = {
            annotator: decision for annotator, decision in candidates if decision is not None
        }
        winner = (
            _heavier_opinion(decisions, weights) if config.rule == MOST_LANDMARKS else preferred
        )
        if winner in decisions and not _agree(label.first, label.second):
            others = [opinion_text(name, row) for name, row in decisions.items() if name != winner]
            row = decisions[winner]
            settled.append(replace(row, comment=_join_comments(row.comment, *others)))
    return combine_decisions(first, second, settled)


def write_adjudication(
    out: Path,
    adjudication: Adjudication,
    *,
    taxonomy: MergedTaxonomy,
    original: Sequence[Group],
    earlier: Sequence[Decision] = (),
    landmarks: Mapping[str, int] | None = None,
    adjudicator: str | None = None,
    force: bool = False,
) -> AdjudicateSummary | None:
    """Write the final decisions, and keep earlier ones on labels that neither annotator decided.

    Returns:
        None if nothing is open and neither decisions nor groups differ from those in the files.
    """
    present = taxonomy.with_survivors(earlier)
    if not force:
        require_replaceable(out, adjudication, present, adjudicator)
    kept, replacements = _replacements(adjudication, present)
    withdrawn = [f'{row.label_id} ("{row.label}")' for row, new in replacements if new is None]
    if withdrawn:
        log.warning(
            "%s: these labels were decided and are now open:\n%s", out, indented_list(withdrawn)
        )
    final = {row.label_id: row for row in (*kept, *adjudication.decisions)}
    is_changed = write_changed_taxonomy(taxonomy.groups, original, out)
    if not out.exists() or final != {row.label_id: row for row in earlier}:
        write_decisions(out, final.values())
    elif not (adjudication.still_open or taxonomy.conflicts or is_changed):
        return None
    counts = landmarks or {}
    still_open = sorted(
        adjudication.still_open, key=lambda label: (-counts.get(label.label_id, 0), label.label)
    )
    return AdjudicateSummary(
        annotators=(adjudication.annotators[0].annotator, adjudication.annotators[1].annotator),
        agreed=adjudication.agreed,
        settled=adjudication.n_labels - adjudication.agreed - len(still_open),
        still_open=tuple(still_open),
        kept=len(kept),
        changed=sum(
            new is not None and category(new) != category(row) for row, new in replacements
        ),
        withdrawn=len(withdrawn),
        group_names={group.key: group.name for group in taxonomy.groups},
        group_conflicts=tuple(taxonomy.conflicts),
        taxonomy=None if list(taxonomy.groups) == list(original) else taxonomy_beside(out),
    )


def require_replaceable(
    out: Path,
    adjudication: Adjudication,
    earlier: Sequence[Decision],
    adjudicator: str | None = None,
) -> None:
    """Raise a :class:`ConfigurationError` if earlier decisions of people who are not concerned would be lost.

    Concerned are both annotators, the adjudicator, and whoever signed a decision on the same label in an input.
    """
    _, replacements = _replacements(adjudication, earlier)
    lost = []
    for row, new in replacements:
        inputs = [annotator.decisions.get(row.label_id) for annotator in adjudication.annotators]
        people = {name for decision in inputs if decision for name in decision.annotator.split("+")}
        people |= {annotator.annotator for annotator in adjudication.annotators} | {
            adjudicator or ""
        }
        if (new is None or category(new) != category(row)) and made_by_others(row, people):
            lost.append(row)
    require_nothing_lost(out, lost)


def opinion_text(
    annotator: str, decision: Decision | None, group_names: Mapping[str, str] | None = None
) -> str:
    """Return an annotator's decision in a line, with the key of the group or, if known, its name.

    >>> opinion_text("ada", None)
    'ada: nothing'
    """
    if decision is None:
        return f"{annotator}: nothing"
    choice = category(decision)
    if choice.group is not None and group_names is not None:
        choice = replace(choice, group=group_names.get(choice.group, choice.group))
    return f"{annotator}: {choice}" + (f" ({decision.comment})" if decision.comment else "")


def kept_decisions(earlier: Sequence[Decision], opinions: Sequence[Opinions]) -> list[Decision]:
    """Return the earlier decisions on labels that no annotator decided."""
    return _split_earlier(
        earlier, [row for annotator in opinions for row in annotator.decisions.values()]
    )[0]


def _replacements(
    adjudication: Adjudication, earlier: Sequence[Decision]
) -> tuple[list[Decision], list[tuple[Decision, Decision | None]]]:
    """Return the earlier decisions to keep, and the others with their replacements; None if the label is open now."""
    kept, superseded = _split_earlier(earlier, adjudication.inputs)
    index = DecisionIndex(adjudication.decisions)
    return kept, [(row, index.find(row.label_id, row.label)) for row in superseded]


def _split_earlier(
    earlier: Sequence[Decision], decisions: Iterable[Decision]
) -> tuple[list[Decision], list[Decision]]:
    """Split earlier decisions into those on other labels than ``decisions``, and those on the same labels.

    Labels are the same if their ids are, or if their texts are and one of the ids is made from the text. Otherwise
    :class:`DecisionIndex` would find an earlier decision by its text for a label that is now open.
    """
    ids_by_text: defaultdict[str, set[str]] = defaultdict(set)
    for row in decisions:
        ids_by_text[normalise_label(row.label)].add(row.label_id)
    ids = set().union(*ids_by_text.values())
    on_other_labels: list[Decision] = []
    on_same_labels: list[Decision] = []
    for row in earlier:
        ids_of_text = [row.label_id, *ids_by_text.get(normalise_label(row.label), ())]
        same_text = len(ids_of_text) > 1 and not all(map(ITEM_ID.fullmatch, ids_of_text))
        (on_same_labels if row.label_id in ids or same_text else on_other_labels).append(row)
    return on_other_labels, on_same_labels


def _agreed_landmarks(
    first: Opinions, second: Opinions, landmarks: Mapping[str, int]
) -> Counter[Category]:
    """Count the landmarks of the labels that both put into the same category, by category."""
    agreed = [
        row
        for label_id, row in first.decisions.items()
        if _agree(row, second.decisions.get(label_id)) and category(row) != UNSURE
    ]
    require_landmark_counts([row.label_id for row in agreed], [first, second], landmarks)
    counts: Counter[Category] = Counter()
    for row in agreed:
        counts[category(row)] += landmarks[row.label_id]
    return counts


def _agree(first: Decision | None, second: Decision | None) -> bool:
    return first is not None and second is not None and category(first) == category(second)


def _heavier_opinion(
    decisions: Mapping[str, Decision], weights: Mapping[Category, int]
) -> str | None:
    """Return the annotator whose category weighs more; None for equal weights or a single decision."""
    weight_by_annotator = {
        annotator: -1 if category(row) == UNSURE else weights.get(category(row), 0)
        for annotator, row in decisions.items()
    }
    if len(set(weight_by_annotator.values())) < 2:
        return None
    return max(weight_by_annotator, key=weight_by_annotator.__getitem__)


def _joint_decision(first: Decision, second: Decision) -> Decision:
    annotators = dict.fromkeys(f"{first.annotator}+{second.annotator}".split("+"))
    return replace(
        first,
        group=first.group if first.group == second.group else None,
        annotator="+".join(annotators),
        decided_at=max(first.decided_at, second.decided_at),
        comment=_join_comments(first.comment, second.comment),
        blind=next(
            (blind for blind in (False, None) if blind in (first.blind, second.blind)), True
        ),
    )


def _join_comments(*comments: str) -> str:
    return "; ".join(dict.fromkeys(comment for comment in comments if comment))
