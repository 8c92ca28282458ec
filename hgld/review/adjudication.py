"""The stage ``adjudicate``: combine the decisions of two annotators into one decision per label.

A decision on which both agree is final and signed by both. A person or a rule decides the other labels;
labels without a final decision stay open and are listed. Renamed and proposed groups of both annotators
are merged (:mod:`hgld.review.decision_files`) and written as the taxonomy beside the final decisions.
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

AGREE_ONLY = "agree-only"
MOST_LANDMARKS = "most-landmarks"
_PREFER = "prefer:"


@dataclass(frozen=True)
class AdjudicateConfig:
    """Settings of an adjudication: how to settle labels on which two annotators differ.

    Args:
        rule: ``agree-only`` leaves these labels open; ``prefer:NAME`` takes the decision of that annotator;
            ``most-landmarks`` takes the group with more landmarks among the labels on which both agree.
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
        if self.rule.startswith(_PREFER):
            return self.rule.removeprefix(_PREFER)
        return None


@dataclass(frozen=True)
class OpenLabel:
    """A label that needs adjudication; the decision of an annotator is None if missing."""

    label_id: str
    label: str
    first: Decision | None
    second: Decision | None


@dataclass(frozen=True)
class Adjudication:
    """Combined decisions of two annotators.

    Args:
        decisions: Decision on each settled label, and ``unsure`` on labels that both annotators are unsure
            about.
        agreed: Number of labels that both put into the same group or dropped.
        still_open: Labels without a final decision.
    """

    annotators: tuple[Opinions, Opinions]
    decisions: list[Decision]
    agreed: int
    still_open: list[OpenLabel]

    @property
    def inputs(self) -> list[Decision]:
        """Decisions of both annotators."""
        first, second = self.annotators
        return [*first.decisions.values(), *second.decisions.values()]

    @property
    def n_labels(self) -> int:
        """Number of labels that an annotator decided."""
        first, second = self.annotators
        return len(first.decisions.keys() | second.decisions.keys())


@dataclass(frozen=True)
class AdjudicateSummary:
    """Result of the stage ``adjudicate``.

    Args:
        still_open: Labels without a final decision, in descending order of landmarks.
        kept: Number of earlier decisions in the output on labels that neither annotator decided.
        changed: Number of earlier decisions in the output that were replaced by a different decision.
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
    """Combine the decisions of two annotators into one decision per label, by a rule.

    Args:
        first: CSV file of decisions of one annotator, with the taxonomy beside it if groups were renamed
            or proposed.
        second: CSV file of decisions of the other annotator.
        out: File of decisions to write. Earlier decisions in this file on labels that neither annotator
            decided are kept, and so are the names of groups in the taxonomy beside it. If groups were
            changed, the changed taxonomy is written beside this file.
        config: Rule for labels on which the annotators differ.
        clusters: Clusters from hgld cluster, to count landmarks; required by most-landmarks and the page.
        taxonomy: File of the groups. Default: the file of the list's project; for GLDv2 the file in hgld.
        force: Replace decisions of other people in the output on the same labels.

    Returns:
        None if ``out`` already holds these decisions and groups, and no label is open.

    Raises:
        ConfigurationError: An input that the rule needs is missing, the rule names another annotator, or
            ``out`` is an input or holds decisions of other annotators that would be replaced.
    """
    inputs = [path for path in (first, second, clusters, taxonomy) if path is not None]
    require_other_file(out, inputs)
    original = read_taxonomy(find_taxonomy(taxonomy, clusters or first))
    opinions, merged = read_opinions(
        [first, second], original, settled=changed_groups(out), preferred=config.preferred
    )
    landmarks = None
    if clusters is not None:
        landmarks = landmarks_by_label(read_table(clusters, CLUSTERS))
    adjudication = adjudicate(opinions[0], opinions[1], config, landmarks)
    earlier: Sequence[Decision] = ()
    if out.exists():
        earlier = read_decisions(out, merged.keys)
    return write_adjudication(
        out,
        adjudication,
        taxonomy=merged,
        original=original,
        earlier=earlier,
        landmarks=landmarks,
        force=force,
    )


def open_labels(first: Opinions, second: Opinions) -> list[OpenLabel]:
    """Return the labels to adjudicate: decided differently, by only one annotator, or unsure to both."""
    labels = []
    for label_id in sorted(first.decisions.keys() | second.decisions.keys()):
        decision = first.decisions.get(label_id)
        other = second.decisions.get(label_id)
        present = decision or other
        assert present is not None
        if not _agree(decision, other) or category(present) == UNSURE:
            labels.append(OpenLabel(label_id, present.label, decision, other))
    return labels


def combine_decisions(
    first: Opinions, second: Opinions, adjudicated: Iterable[Decision]
) -> Adjudication:
    """Return one decision per label: the adjudicated decision, or a decision on which both agree.

    A joint decision is signed by both annotators, has the later time and joins their comments. If both are
    unsure, the joint decision is ``unsure``, with their guess if both guesses are the same.
    """
    decisions = {}
    for label_id, decision in first.decisions.items():
        other = second.decisions.get(label_id)
        if other is not None and _agree(decision, other):
            decisions[label_id] = _joint_decision(decision, other)
    for decision in adjudicated:
        decisions[decision.label_id] = decision
    to_adjudicate = open_labels(first, second)
    still_open = []
    for label in to_adjudicate:
        final = decisions.get(label.label_id)
        if final is None or final.decision == "unsure":
            still_open.append(label)
    n_labels = len(first.decisions.keys() | second.decisions.keys())
    n_agreed = n_labels - len(to_adjudicate)
    return Adjudication((first, second), list(decisions.values()), n_agreed, still_open)


def adjudicate(
    first: Opinions,
    second: Opinions,
    config: AdjudicateConfig,
    landmarks: Mapping[str, int] | None = None,
) -> Adjudication:
    """Settle by a rule the labels on which two annotators do not agree.

    A label that both are unsure about stays open under every rule. A label that only one annotator decided
    stays open unless the rule prefers that annotator. The rule ``most-landmarks`` weights a group by the
    landmarks of the labels that both put into it, and treats "drop" like a group; equal weights leave the
    label open, and any other opinion wins over "unsure". The comment on a settled label names the decision
    of the other annotator.

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
        decisions = {}
        if label.first is not None:
            decisions[first.annotator] = label.first
        if label.second is not None:
            decisions[second.annotator] = label.second
        winner = preferred
        if config.rule == MOST_LANDMARKS:
            winner = _heavier_opinion(decisions, weights)
        if winner in decisions and not _agree(label.first, label.second):
            decision = decisions.pop(winner)
            comments = [decision.comment]
            comments += [opinion_text(name, other) for name, other in decisions.items()]
            settled.append(replace(decision, comment=_join_comments(*comments)))
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
    """Write the final decisions, and keep earlier decisions on labels that neither annotator decided.

    Returns:
        None if no label is open and the files already hold the same decisions and groups.
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
    final = {row.label_id: row for row in kept + adjudication.decisions}
    is_changed = write_changed_taxonomy(taxonomy.groups, original, out)
    if not out.exists() or final != {row.label_id: row for row in earlier}:
        write_decisions(out, final.values())
    elif not (adjudication.still_open or taxonomy.conflicts or is_changed):
        return None
    counts = landmarks or {}
    still_open = sorted(
        adjudication.still_open, key=lambda label: (-counts.get(label.label_id, 0), label.label)
    )
    n_changed = 0
    for row, new in replacements:
        if new is not None and category(new) != category(row):
            n_changed += 1
    is_original = list(taxonomy.groups) == list(original)
    return AdjudicateSummary(
        annotators=(adjudication.annotators[0].annotator, adjudication.annotators[1].annotator),
        agreed=adjudication.agreed,
        settled=adjudication.n_labels - adjudication.agreed - len(still_open),
        still_open=tuple(still_open),
        kept=len(kept),
        changed=n_changed,
        withdrawn=len(withdrawn),
        group_names={group.key: group.name for group in taxonomy.groups},
        group_conflicts=tuple(taxonomy.conflicts),
        taxonomy=None if is_original else taxonomy_beside(out),
    )


def require_replaceable(
    out: Path,
    adjudication: Adjudication,
    earlier: Sequence[Decision],
    adjudicator: str | None = None,
) -> None:
    """Raise a :class:`ConfigurationError` if decisions of people without a say would be lost.

    Both annotators, the adjudicator, and everybody who signed a decision on the same label in an input
    have a say.
    """
    _, replacements = _replacements(adjudication, earlier)
    lost = []
    for row, new in replacements:
        if new is not None and category(new) == category(row):
            continue
        people = {adjudicator or ""}
        for annotator in adjudication.annotators:
            people.add(annotator.annotator)
            decision = annotator.decisions.get(row.label_id)
            if decision is not None:
                people.update(decision.annotator.split("+"))
        if made_by_others(row, people):
            lost.append(row)
    require_nothing_lost(out, lost)


def opinion_text(
    annotator: str, decision: Decision | None, group_names: Mapping[str, str] | None = None
) -> str:
    """Return an annotator's decision as a line of text, with the name of the group, or its key.

    >>> opinion_text("ada", None)
    'ada: nothing'
    """
    if decision is None:
        return f"{annotator}: nothing"
    choice = category(decision)
    if choice.group is not None and group_names is not None:
        choice = replace(choice, group=group_names.get(choice.group, choice.group))
    comment = f" ({decision.comment})" if decision.comment else ""
    return f"{annotator}: {choice}{comment}"


def kept_decisions(earlier: Sequence[Decision], opinions: Sequence[Opinions]) -> list[Decision]:
    """Return the earlier decisions on labels that no annotator decided."""
    decisions: list[Decision] = []
    for annotator in opinions:
        decisions += annotator.decisions.values()
    kept, _ = _split_earlier(earlier, decisions)
    return kept


def _replacements(
    adjudication: Adjudication, earlier: Sequence[Decision]
) -> tuple[list[Decision], list[tuple[Decision, Decision | None]]]:
    """Return the earlier decisions to keep, and the other earlier decisions with their replacements.

    A replacement is None if the label is open now.
    """
    kept, superseded = _split_earlier(earlier, adjudication.inputs)
    index = DecisionIndex(adjudication.decisions)
    return kept, [(row, index.find(row.label_id, row.label)) for row in superseded]


def _split_earlier(
    earlier: Sequence[Decision], decisions: Iterable[Decision]
) -> tuple[list[Decision], list[Decision]]:
    """Return earlier decisions on other labels than ``decisions``, and earlier decisions on the same labels.

    Two labels are the same if they have the same id, or the same text and one id was made from the text.
    Otherwise :class:`DecisionIndex` would find an earlier decision by its text for a label that is now open.
    """
    decisions = list(decisions)
    ids_by_text: defaultdict[str, set[str]] = defaultdict(set)
    for row in decisions:
        ids_by_text[normalise_label(row.label)].add(row.label_id)
    ids = {row.label_id for row in decisions}
    on_other_labels: list[Decision] = []
    on_same_labels: list[Decision] = []
    for row in earlier:
        ids_with_same_text = ids_by_text.get(normalise_label(row.label), set())
        are_items = all(ITEM_ID.fullmatch(key) for key in ids_with_same_text | {row.label_id})
        if row.label_id in ids or (ids_with_same_text and not are_items):
            on_same_labels.append(row)
        else:
            on_other_labels.append(row)
    return on_other_labels, on_same_labels


def _agreed_landmarks(
    first: Opinions, second: Opinions, landmarks: Mapping[str, int]
) -> Counter[Category]:
    """Count the landmarks of the labels that both put into the same category, by category."""
    agreed: dict[str, Category] = {}
    for label_id, row in first.decisions.items():
        if _agree(row, second.decisions.get(label_id)) and category(row) != UNSURE:
            agreed[label_id] = category(row)
    require_landmark_counts(list(agreed), [first, second], landmarks)
    counts: Counter[Category] = Counter()
    for label_id, agreed_category in agreed.items():
        counts[agreed_category] += landmarks[label_id]
    return counts


def _agree(first: Decision | None, second: Decision | None) -> bool:
    return first is not None and second is not None and category(first) == category(second)


def _heavier_opinion(
    decisions: Mapping[str, Decision], weights: Mapping[Category, int]
) -> str | None:
    """Return the annotator whose category weighs more; None for equal weights or a single decision."""
    weight_by_annotator = {}
    for annotator, row in decisions.items():
        weight = weights.get(category(row), 0)
        if category(row) == UNSURE:
            weight = -1
        weight_by_annotator[annotator] = weight
    if len(set(weight_by_annotator.values())) < 2:
        return None
    return max(weight_by_annotator, key=weight_by_annotator.__getitem__)


def _joint_decision(first: Decision, second: Decision) -> Decision:
    """Return the decision of both annotators on a label on which they agree."""
    annotators = dict.fromkeys(f"{first.annotator}+{second.annotator}".split("+"))
    conditions = (first.blind, second.blind)
    blind: bool | None = True
    if False in conditions:
        blind = False
    elif None in conditions:
        blind = None
    return replace(
        first,
        group=first.group if first.group == second.group else None,
        annotator="+".join(annotators),
        decided_at=max(first.decided_at, second.decided_at),
        comment=_join_comments(first.comment, second.comment),
        blind=blind,
    )


def _join_comments(*comments: str) -> str:
    return "; ".join(dict.fromkeys(comment for comment in comments if comment))
