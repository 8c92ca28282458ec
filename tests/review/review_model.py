"""A plain model of a review session, to compare the real one with: dictionaries, copied before every step.

The model knows nothing of events. A step is the set of facts that it wrote, with what each held before; it can be
undone while all of them still are as the step left them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

from hgld.review.labels import LIKELY_SCORE, SURE_SCORE, ReviewLabel
from hgld.review.session import LabelAction
from hgld.taxonomy.decisions import Decision
from hgld.taxonomy.groups import Group
from hgld.taxonomy.label_identity import normalise_label


class RefusedError(Exception):
    """The action makes no sense now, or the annotator did not see the latest changes; nothing was done."""


class DecisionFact(NamedTuple):
    """What is decided on a label; ``decision`` is None if there is only a comment."""

    label: str
    decision: str | None
    group: str | None
    comment: str
    blind: bool | None


class ClusterFact(NamedTuple):
    """A cluster that a label was moved to, or the new name of a cluster, for a table that calls it ``table_name``."""

    value: Any
    table_name: str | None


class GroupFact(NamedTuple):
    """The present name of a group, or the key of the group that took its labels."""

    name: str = ""
    root: str = ""
    guideline: str = ""
    merged_into: str | None = None


#: Owner of the store.
ANNOTATOR = "ada"

#: Kind and key of a fact, as in :mod:`hgld.review.state`.
FactKey = tuple[str, str]


@dataclass(frozen=True)
class Entry:
    """A fact, the step that wrote it and who decided; all None for what the tables say."""

    fact: Any = None
    writer: int | None = None
    annotator: str | None = None


@dataclass(frozen=True)
class Step:
    """What a step changed: entries before and after it."""

    before: Mapping[FactKey, Entry]
    after: Mapping[FactKey, Entry]


class ReviewModel:
    """Labels, clusters and groups, and what an annotator did with them.

    Args:
        labels: Labels under review.
        taxonomy: Groups at the start.
    """

    def __init__(self, labels: Iterable[ReviewLabel], taxonomy: Iterable[Group]) -> None:
        self.taxonomy = {group.key: group for group in taxonomy}
        self.entries: dict[FactKey, Entry] = {}
        self.steps: list[Step] = []
        #: Numbers of the steps that "undo" and "redo" take next, the next one last.
        self.done: list[int] = []
        self.undone: list[int] = []
        #: How often each fact was written: what two windows of an annotator may differ in.
        self.versions: Counter[FactKey] = Counter()
        self.open(labels)

    def open(self, labels: Iterable[ReviewLabel], *, blind: bool = False) -> None:
        """Start a session, perhaps with another table of labels and clusters."""
        self.blind = blind
        self.labels = {label.label_id: label for label in labels}
        self.table_names = {label.cluster: label.cluster_name for label in self.labels.values()}

    # What the session shows.

    def fact(self, kind: str, key: str) -> Any:
        return self.entries.get((kind, key), Entry()).fact

    def facts(self, kind: str) -> dict[str, Any]:
        return {key: entry.fact for (of, key), entry in self.entries.items() if of == kind}

    def groups(self) -> dict[str, str]:
        """Return the names of groups by key."""
        names = {key: group.name for key, group in self.taxonomy.items()}
        for key, fact in self.facts("group").items():
            if fact is not None and fact.merged_into is not None:
                names.pop(key, None)
            elif fact is not None:
                names[key] = fact.name
        return names

    def survivor(self, key: str) -> str:
        """Return the group that takes the labels of a group after all merges."""
        seen = {key}
        while (fact := self.fact("group", key)) is not None and fact.merged_into is not None:
            key = fact.merged_into
            if key in seen:
                raise RefusedError("a circle of merges")
            seen.add(key)
        return key

    def decision(self, label_id: str) -> DecisionFact | None:
        fact: DecisionFact | None = self.fact("decision", label_id)
        if fact is None or fact.group is None:
            return fact
        return fact._replace(group=self.survivor(fact.group))

    def decisions(self) -> dict[str, DecisionFact]:
        """Return the decisions by label_id, also on labels that are gone."""
        found = {label_id: self.decision(label_id) for label_id in self.facts("decision")}
        return {key: fact for key, fact in found.items() if fact is not None and fact.decision is not None}

    def annotator(self, label_id: str) -> str | None:
        return self.entries["decision", label_id].annotator

    def cluster(self, label_id: str) -> int:
        fact = self.fact("cluster", label_id)
        if fact is not None and fact.table_name == self.table_names.get(fact.value):
            return int(fact.value)
        return self.labels[label_id].cluster

    def cluster_name(self, cluster: int) -> str:
        fact = self.fact("name", str(cluster))
        if fact is not None and fact.table_name == self.table_names.get(cluster):
            return str(fact.value)
        return self.table_names.get(cluster, f"cluster {cluster}")

    def clusters(self) -> dict[int, set[str]]:
        """Return the ids of the labels in each cluster that has any."""
        numbers = {self.cluster(label_id) for label_id in self.labels}
        return {number: {key for key in self.labels if self.cluster(key) == number} for number in numbers}

    def candidates(self, label_id: str) -> list[tuple[str, str | None, str, float | None]]:
        """Return what the label can take over: decision, group, comment and score."""
        label, present = self.labels[label_id], self.decision(label_id)
        found: list[tuple[str, str | None, str, float | None]] = []
        if present is None or present.decision is None:
            text = normalise_label(label.label)
            absent = [
                fact
                for key, fact in self.decisions().items()
                if key not in self.labels
                and normalise_label(fact.label) == text
                and not (self.blind and self.annotator(key) != ANNOTATOR)
            ]
            if absent and len({(fact.decision, fact.group) for fact in absent}) == 1:
                found.append((str(absent[0].decision), absent[0].group, absent[0].comment, None))
        for suggestion in () if self.blind else label.suggestions:
            found.append(("group", self.survivor(suggestion.group or ""), "", suggestion.score))
        return [row for row in found if row[1] is None or row[1] in self.groups()]

    # What the annotator does.

    def decide(self, label_ids: Iterable[str], action: LabelAction) -> None:
        facts: dict[FactKey, Any] = {}
        for label_id in label_ids:
            text = self.labels[label_id].label
            now = self.decision(label_id) or DecisionFact(text, None, None, "", None)
            comment = now.comment if action.comment is None else action.comment
            fact: DecisionFact | None = now._replace(label=text, comment=comment)
            if action.kind == "clear":
                fact = None
            elif action.kind == "comment":
                if now.decision is None and not comment:
                    fact = None
            else:
                decision, group, reason = action.kind, action.group, ""
                if action.kind in ("take", "accept", "accept_sure"):
                    candidates = self.candidates(label_id)[action.candidate - 1 :]
                    if not candidates:
                        continue
                    decision, group, reason, score = candidates[0]
                    if action.kind == "accept" and score is not None and score < LIKELY_SCORE:
                        continue
                    if action.kind == "accept_sure" and (score is None or score < SURE_SCORE):
                        continue
                if group is not None and group not in self.groups():
                    raise RefusedError("no such group")
                blind = now.blind if (decision, group) == (now.decision, now.group) else self.blind
                fact = DecisionFact(text, decision, group, comment or reason, blind)
            facts["decision", label_id] = fact
        if not facts:
            raise RefusedError("nothing to take over")
        self.write(facts)

    def move(self, label_ids: Iterable[str], cluster: int | None, name: str = "") -> None:
        facts: dict[FactKey, Any] = {}
        if cluster is None:
            if not name:
                raise RefusedError("no name")
            cluster = 1 + max(*self.clusters(), *self.table_names, *map(int, self.facts("name")), 0)
            facts["name", str(cluster)] = ClusterFact(name, self.table_names.get(cluster))
        elif cluster not in self.clusters():
            raise RefusedError("no such cluster")
        for label_id in label_ids:
            if self.cluster(label_id) != cluster:
                facts["cluster", label_id] = ClusterFact(cluster, self.table_names.get(cluster))
        self.write(facts)

    def merge(self, cluster: int, into: int) -> None:
        if cluster == into or cluster not in self.clusters():
            raise RefusedError("choose another cluster")
        self.move(self.clusters()[cluster], into)

    def rename_cluster(self, cluster: int, name: str) -> None:
        if cluster not in self.clusters() or not name:
            raise RefusedError("no such cluster, or no name")
        self.write({("name", str(cluster)): ClusterFact(name, self.table_names.get(cluster))})

    def propose_group(self, name: str, root: str, guideline: str) -> None:
        if not name:
            raise RefusedError("no name")
        taken = {key.casefold() for key, fact in self.facts("group").items() if fact is not None}
        taken |= {key.casefold() for key in self.groups()}
        key, number = normalise_label(name), 2
        while key in taken:
            key, number = f"{normalise_label(name)} ({number})", number + 1
        self.write_checked({("group", key): GroupFact(name, root, guideline)})

    def rename_group(self, key: str, name: str) -> None:
        if key not in self.groups() or not name:
            raise RefusedError("no such group, or no name")
        fact = self.fact("group", key) or GroupFact("", self.taxonomy[key].root, self.taxonomy[key].guideline)
        self.write_checked({("group", key): fact._replace(name=name)})

    def merge_group(self, key: str, into: str) -> None:
        if key == into or key not in self.groups() or into not in self.groups():
            raise RefusedError("choose another group")
        self.write_checked({("group", key): GroupFact(merged_into=into)})

    def undo(self, number: int) -> None:
        step = self.steps[number]
        if any(self.entries.get(key, Entry()) != entry for key, entry in step.after.items()):
            raise RefusedError("a later step wrote the same")
        self.check({**self.entries, **step.before})
        self.replace(step.before)
        self.done = [other for other in self.done if other != number]
        self.undone.append(number)

    def redo(self, number: int) -> None:
        step = self.steps[number]
        if any(self.entries.get(key, Entry()) != entry for key, entry in step.before.items()):
            raise RefusedError("a later step wrote the same")
        self.check({**self.entries, **step.after})
        self.replace(step.after)
        self.undone = [other for other in self.undone if other != number]
        self.done.append(number)

    def take_over(self, decisions: Iterable[Decision], groups: Iterable[Group]) -> None:
        """Start from decisions of somebody else: on labels, and for groups, that were never touched here."""
        facts: dict[FactKey, Any] = {}
        annotators = []
        rows = list(decisions)
        for label_id, label in self.labels.items():
            same_id = [row for row in rows if row.label_id == label_id]
            text = normalise_label(label.label)
            same_text = [row for row in rows if normalise_label(row.label) == text]
            agreed = len({(row.decision, row.group) for row in same_text}) == 1
            for row in (same_id or (same_text if agreed else []))[:1]:
                if ("decision", label_id) in self.entries:
                    continue
                facts["decision", label_id] = DecisionFact(
                    label.label, row.decision, row.group, row.comment, row.blind
                )
                annotators.append(row.annotator)
        needed = {fact.group for fact in facts.values()}
        group_facts: dict[FactKey, Any] = {}
        for group in groups:
            untouched = ("group", group.key) not in self.entries and self.groups().get(group.key) != group.name
            withdrawn = self.fact("group", group.key) is None and group.key not in self.taxonomy
            if untouched or (withdrawn and group.key in needed):
                group_facts["group", group.key] = GroupFact(group.name, group.root, group.guideline)
            for key in group.merged:
                if ("group", key) not in self.entries and self.survivor(key) != group.key:
                    group_facts["group", key] = GroupFact(merged_into=group.key)
        self.write_checked(group_facts)
        self.write(facts, annotators)

    # How it is kept.

    def write(self, facts: Mapping[FactKey, Any], annotators: Iterable[str] = ()) -> None:
        """Write facts as a new step; facts that stay the same are not part of it."""
        number = len(self.steps)
        by = annotators or repeat(ANNOTATOR)
        changed = {
            key: Entry(fact, number, annotator)
            for (key, fact), annotator in zip(facts.items(), by, strict=False)
            if fact != self.fact(*key)
        }
        if not changed:
            return
        before = {key: self.entries.get(key, Entry()) for key in changed}
        self.steps.append(Step(before, changed))
        self.done.append(number)
        self.undone = []
        self.replace(changed)

    def write_checked(self, facts: Mapping[FactKey, Any]) -> None:
        self.check(self.entries | {key: Entry(fact) for key, fact in facts.items()})
        self.write(facts)

    def replace(self, entries: Mapping[FactKey, Entry]) -> None:
        self.entries = {**self.entries, **entries}
        self.versions.update(entries.keys())

    def check(self, entries: Mapping[FactKey, Entry]) -> None:
        """Refuse entries with which two groups had the same name, or a decision or a merge had no group."""
        after = ReviewModel(self.labels.values(), self.taxonomy.values())
        after.entries = dict(entries)
        names = [name.casefold() for name in after.groups().values()]
        if len(set(names)) < len(names):
            raise RefusedError("two groups of the same name")
        used = {fact.group for fact in after.facts("decision").values() if fact is not None}
        used |= {fact.merged_into for fact in after.facts("group").values() if fact is not None}
        if not {after.survivor(key) for key in used if key is not None} <= after.groups().keys():
            raise RefusedError("a group is gone")
