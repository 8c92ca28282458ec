"""Count the keys that simulated annotators press until 95 % of landmarks have their right decision, for each order.

The annotators know the group of every label and use the keys of the review page as well as they can. The labels are
the half "final" of the development set, to which nothing was fitted, in two cases: with superclasses, and with
neither superclasses nor a vocabulary, where suggestions are wrong most often. Their numbers of landmarks are drawn.
With ``--clusters``, the labels are also those of a real table, decided as in ``annotations/decisions``::

    python benchmarks/keystrokes.py --clusters washington/clusters.parquet
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
from development_set import DevelopmentSet, read_development_set
from numpy.typing import NDArray
from report import table, write_section

from hgld import tables
from hgld.labels.clusters import ClusterConfig, cluster_labels
from hgld.labels.suggest import SuggestionInputs, find_suggestion_files, read_suggestion_inputs, suggest_groups
from hgld.resources import annotation_file
from hgld.review.label_lists import Order, settling_order
from hgld.review.labels import LIKELY_SCORE, SURE_SCORE, Candidate, ReviewLabel
from hgld.review.session import shown_suggestions
from hgld.review.state import certainty
from hgld.taxonomy.decisions import Decision, DecisionIndex, read_decisions
from hgld.taxonomy.groups import Group

#: Share of landmarks that have their right decision in the end.
GOAL = 0.95
#: Rows of the list that are on the screen at once.
ROWS_ON_SCREEN = 15
#: Share of steps in which a wrong key is pressed, noticed, and undone.
SLIP_RATE = 0.02
#: Drawn numbers of landmarks, and random slips: all counts of keys are means over these.
N_SEEDS = 3

#: Numbers of landmarks are drawn from a Pitman-Yor process for 304,000 landmarks. Its two parameters give the 5,700
#: labels of all of GLDv2, and about the 230 labels of the 841 landmarks of Washington.
N_LANDMARKS, DISCOUNT, CONCENTRATION = 304_000, 0.545, 12.8


class Case(NamedTuple):
    """Labels with what the simulated annotator knows of them.

    Args:
        inputs: What suggestions are made from.
        labels: Labels with their first suggestions, in the order of the table.
        decisions: Right decision on each label, by label_id.
    """

    inputs: SuggestionInputs
    labels: list[ReviewLabel]
    decisions: Mapping[str, Decision]


class Step(NamedTuple):
    """Keys that decide on some labels: their number, and the group of each label, None if it is dropped."""

    keys: int
    groups: Mapping[str, str | None]


class Review:
    """A review in progress.

    Attributes:
        labels: Labels with their suggestions, in the order of the table.

    Args:
        case: Labels to decide.
        slip_rate: Share of steps in which the annotator presses a wrong key, notices it, and undoes it.
        seed: Seed of the slips.
    """

    def __init__(self, case: Case, *, slip_rate: float = 0.0, seed: int = 0) -> None:
        self.labels = {label.label_id: label for label in case.labels}
        self._case = case
        self._slip_rate, self._chance = slip_rate, np.random.default_rng(seed)
        self._decided: dict[str, str | None] = {}

    def run(self, strategy: Strategy) -> Outcome:
        """Decide labels by a strategy until the goal is reached."""
        total = sum(label.landmarks for label in self.labels.values())
        keys = right = wrong = 0
        for step in strategy(self):
            slips = self._chance.random() < self._slip_rate
            keys += 2 * step.keys + 1 if slips else step.keys
            for label_id, group in step.groups.items():
                landmarks = self.labels[label_id].landmarks
                if group == self.right_group(label_id):
                    right += landmarks
                else:
                    wrong += landmarks
            self._decided.update(step.groups)
            if right >= GOAL * total:
                break
        return Outcome(keys, len(self._decided), right / total, wrong / total)

    def undecided(self, label_ids: Sequence[str]) -> list[str]:
        """Return those of some labels that are undecided."""
        return [label_id for label_id in label_ids if label_id not in self._decided]

    def right_group(self, label_id: str) -> str | None:
        """Return the group of a label; None if it is dropped."""
        return self._case.decisions[label_id].group

    def accepted_group(self, label_id: str, least_score: float) -> str | None:
        """Return the first suggestion of a label if it has this score at least."""
        suggestions = self.labels[label_id].suggestions
        return suggestions[0].group if suggestions and certainty(self.labels[label_id]) >= least_score else None

    def keys_for(self, label_id: str) -> int:
        """Return the number of keys that decide a label when the cursor is on it."""
        group = self.right_group(label_id)
        candidates = shown_suggestions(self.labels[label_id])
        is_shown = any(candidate.group == group for candidate in candidates)
        # Enter, a digit, or D; else G, the beginning of a word, and Enter.
        return 1 if group is None or is_shown else self.keys_to_choose(group)

    def keys_to_choose(self, group: str | None) -> int:
        """Return the number of keys that choose a group by its name, or drop."""
        return 1 if group is None else keys_to_find(group, tuple(self._case.inputs.groups))


#: Iterates over the steps of an annotator, given the review in progress.
Strategy = Callable[[Review], Iterator[Step]]


class Outcome(NamedTuple):
    """Keys and decided labels at the end, and shares of landmarks with a right and a wrong decision."""

    keys: float
    labels: float
    right: float
    wrong: float


# What annotators do.


def by_cluster(review: Review, *, select_subclusters: bool = False) -> Iterator[Step]:
    """Go through the table; select runs of labels of the same group, or whole sub-clusters if that is shorter."""
    for _, members in groupby(review.labels.values(), key=lambda label: (label.cluster, label.subcluster)):
        rows = [label.label_id for label in members]
        steps = steps_in_runs(review, rows)
        if select_subclusters:
            steps = min(steps, steps_with_selection(review, rows), key=lambda some: sum(step.keys for step in some))
        yield from steps


def steps_in_runs(review: Review, rows: Sequence[str]) -> list[Step]:
    """Return the fewest keys for some rows, each decided alone or in a run of rows with the same group."""
    best: list[tuple[int, list[Step]]] = [(0, [])]
    for end, last in enumerate(rows):
        group = review.right_group(last)
        before, steps = best[end]
        keys = review.keys_for(last)
        options = [(before + keys, [*steps, Step(keys, {last: group})])]
        for start in range(end - 1, -1, -1):
            if review.right_group(rows[start]) != group:
                break
            before, steps = best[start]
            keys = end - start + review.keys_to_choose(group)  # Shift+Down for each further row
            options.append((before + keys, [*steps, Step(keys, dict.fromkeys(rows[start : end + 1], group))]))
        best.append(min(options, key=lambda option: option[0]))
    return best[-1][1]


def steps_with_selection(review: Review, rows: Sequence[str]) -> list[Step]:
    """Return the keys if the sub-cluster is selected (B), wrong rows are taken out (X), and the rest is accepted."""
    accepted = {row: review.accepted_group(row, LIKELY_SCORE) for row in rows}
    right = {row: group for row, group in accepted.items() if group and group == review.right_group(row)}
    wrong = [place for place, row in enumerate(rows) if accepted[row] and row not in right]
    moves = wrong[-1] if wrong else 0
    first = Step(2 + moves + len(wrong), right)
    return [first, *steps_in_runs(review, [row for row in rows if row not in right])]


def in_queue(
    review: Review, order: Order, *, accept_screen: bool = False, accept_all: bool = False
) -> Iterator[Step]:
    """Go through all labels in an order.

    Args:
        review: Review in progress.
        order: Order of the labels.
        accept_screen: Whether sure suggestions on the screen are accepted at once, after wrong ones were corrected.
        accept_all: Whether sure suggestions of all labels are accepted at the beginning, without a look at them.
    """
    if accept_all:
        sure = {row: group for row in review.labels if (group := review.accepted_group(row, SURE_SCORE))}
        yield Step(2, sure)
    rows = review.undecided(ranked(review, order))
    while rows:
        steps = steps_on_screen(review, rows[:ROWS_ON_SCREEN]) if accept_screen else [step_alone(review, rows[0])]
        yield from steps
        rows = review.undecided(rows)


def steps_on_screen(review: Review, rows: Sequence[str]) -> list[Step]:
    """Return the keys for the rows on the screen: correct wrong but sure ones, accept sure ones, decide the rest."""
    sure = {row: group for row in rows if (group := review.accepted_group(row, SURE_SCORE))}
    right = {row: group for row, group in sure.items() if group == review.right_group(row)}
    if len(right) < 2:
        return [step_alone(review, row) for row in rows]
    steps, cursor = [], 0
    for place, row in enumerate(rows):
        if row in sure and row not in right:
            step = step_alone(review, row)
            steps.append(Step(place - cursor + step.keys, step.groups))
            cursor = place + 1  # decided labels are left behind
    rest = [step_alone(review, row) for row in rows if row not in sure]
    return [*steps, Step(1, right), *rest]


def step_alone(review: Review, row: str) -> Step:
    """Return the keys that decide one label."""
    return Step(review.keys_for(row), {row: review.right_group(row)})


def ranked(review: Review, order: Order) -> list[str]:
    """Return all labels in an order, as :class:`hgld.review.label_lists.LabelLists` does."""
    if order == "settling":
        undecided = set(review.undecided(list(review.labels)))
        return settling_order(list(review.labels.values()), review.labels.keys() - undecided)
    labels = list(review.labels.values())
    if order == "uncertain":
        labels.sort(key=lambda label: (certainty(label), -label.landmarks))
    elif order == "landmarks":
        labels.sort(key=lambda label: -label.landmarks)
    return [label.label_id for label in labels]


@lru_cache
def keys_to_find(key: str, groups: tuple[Group, ...]) -> int:
    """Return the fewest keys that choose a group by typing: G, the beginning of a word until it is first, and Enter.

    The search of the page ranks groups whose name begins with the text first, then those with a word that does, then
    those with the text anywhere in the name; on ties by name.
    """
    names = {group.key: group.name.lower() for group in groups}
    name = names[key]

    def rank(other: str, text: str) -> int:
        if other.startswith(text):
            return 0
        if any(word.startswith(text) for word in re.split(r"[\W_]+", other)):
            return 1
        return 2 if text in other else 3

    starts = [match.start() for match in re.finditer(r"\w+", name)]
    for length in range(1, len(name) + 1):
        for start in starts:
            text = name[start : start + length]
            if min(names.values(), key=lambda other: (rank(other, text), other)) == name:
                return length + 2
    raise ValueError(f'no text leads to the group "{name}" first')


# What they decide on.


def make_case(inputs: SuggestionInputs, decisions: Mapping[str, Decision], rows: Sequence[tuple[int, int]]) -> Case:
    """Return labels with their suggestions in the order of the table.

    Args:
        inputs: What suggestions are made from, with the landmarks.
        decisions: Right decisions by label_id; labels without one are left out.
        rows: Cluster and sub-cluster of each label.
    """
    names = {row["item"]: row["label"] for part in inputs.classes for row in part.to_pylist()}
    parents = {row["item"]: row["subclass_of"] for part in inputs.classes for row in part.to_pylist()}
    labels = [
        ReviewLabel(
            label_id=label_id,
            label=text,
            landmarks=int(landmarks),
            parents=", ".join(names.get(parent, parent) for parent in parents.get(label_id, ())),
            cluster=cluster,
            cluster_name="",
            subcluster=subcluster,
            examples=(),
            suggested_group="",
            suggestions=tuple(Candidate("group", group, reason, score) for group, score, reason in suggestions),
        )
        for label_id, text, landmarks, (cluster, subcluster), suggestions in zip(
            inputs.labels.ids, inputs.labels.texts, inputs.landmarks, rows, suggest_groups(inputs), strict=True
        )
        if label_id in decisions
    ]
    labels.sort(key=lambda label: (label.cluster, label.subcluster, -label.landmarks, label.label_id))
    return Case(inputs, labels, decisions)


def development_cases(development: DevelopmentSet, seed: int) -> Iterator[tuple[str, Case]]:
    """Iterate over the cases of the development set, with numbers of landmarks drawn by a seed."""
    landmarks = draw_landmarks(len(development.decisions), seed)
    labels = development.inputs.labels
    clusters = cluster_labels(labels.vectors, landmarks, labels.texts, ClusterConfig())
    rows = list(zip(clusters.cluster.tolist(), clusters.subcluster.tolist(), strict=True))
    decisions = {row.label_id: row for row in development.decisions}
    with_landmarks = replace(development.inputs, landmarks=landmarks)
    yield "with superclasses", make_case(with_landmarks, decisions, rows)
    bare = replace(with_landmarks, classes=[], vocabulary=[])
    yield "no superclasses, no vocabulary", make_case(bare, decisions, rows)


def draw_landmarks(n_labels: int, seed: int) -> NDArray[np.int64]:
    """Draw the number of landmarks of some labels out of all labels of GLDv2: int64, shape (n_labels,)."""
    chance = np.random.default_rng(seed)
    label_of, counts = np.zeros(N_LANDMARKS, np.int64), np.zeros(N_LANDMARKS, np.int64)
    n_all = 0
    for landmark, (place, keep) in enumerate(chance.random((N_LANDMARKS, 2))):
        # The label of an earlier landmark, less the discount of each label; else a new label.
        earlier = int(place * (landmark + CONCENTRATION))
        label = label_of[earlier] if earlier < landmark else -1
        if label < 0 or keep * counts[label] < DISCOUNT:
            label, n_all = n_all, n_all + 1
        label_of[landmark] = label
        counts[label] += 1
    every = np.sort(counts[:n_all])
    middle = (np.arange(n_labels) + 0.5) / n_labels * n_all
    return chance.permutation(every[middle.astype(np.int64)])


def table_case(clusters: Path) -> Case:
    """Return the labels of a ``clusters`` table that ``annotations/decisions`` decides."""
    inputs = read_suggestion_inputs(find_suggestion_files(clusters))
    decided = DecisionIndex(read_decisions(annotation_file("decisions/final.csv"), {g.key for g in inputs.groups}))
    found = {
        label_id: replace(decision, label_id=label_id, label=text)
        for label_id, text in zip(inputs.labels.ids, inputs.labels.texts, strict=True)
        if (decision := decided.find(label_id, text)) is not None and decision.decision != "unsure"
    }
    table = tables.read_table(clusters, tables.CLUSTERS)
    rows = list(zip(table["cluster"].to_pylist(), table["subcluster"].to_pylist(), strict=True))
    return make_case(inputs, found, rows)


# Measurements.


def strategies() -> Iterator[tuple[str, Strategy]]:
    """Iterate over what is compared, today's order first."""
    yield "cluster by cluster", by_cluster
    yield "the same, selecting sub-clusters", partial(by_cluster, select_subclusters=True)
    orders: dict[str, Order] = {
        "most landmarks first": "landmarks",
        "least certain first": "uncertain",
        "most settling first": "settling",
    }
    for name, order in orders.items():
        yield name, partial(in_queue, order=order)
    for name, order in orders.items():
        yield f"{name}, sure ones by screen", partial(in_queue, order=order, accept_screen=True)
    yield "all sure ones unseen, then most landmarks first", partial(in_queue, order="landmarks", accept_all=True)


def mean_outcome(cases: Sequence[Case], strategy: Strategy, slip_rate: float) -> Outcome:
    """Return the mean outcome of reviews with this rate of slips, one for each case."""
    outcomes = [Review(case, slip_rate=slip_rate, seed=seed).run(strategy) for seed, case in enumerate(cases)]
    return Outcome(*np.mean(outcomes, axis=0))


def measure(cases: Sequence[Case]) -> list[list[str]]:
    """Return the rows of a table: each strategy as it is, and with slips."""
    rows: list[list[str]] = []
    today = 0.0
    for name, strategy in strategies():
        plain, slipping = (mean_outcome(cases, strategy, slip_rate) for slip_rate in (0.0, SLIP_RATE))
        today = today or plain.keys
        rows.append(
            [
                name,
                f"{plain.labels:,.0f}",
                f"{plain.keys:,.0f}",
                f"{plain.keys / today:.0%}",
                f"{slipping.keys:,.0f}",
                f"{plain.wrong:.2%}",
            ]
        )
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Measure, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--clusters", type=Path, help="clusters with suggestions, beside their embeddings and classes"
    )
    options = parser.parse_args()
    cases: dict[str, list[Case]] = {}
    development = read_development_set("final")
    for seed in range(N_SEEDS):
        for name, case in development_cases(development, seed):
            cases.setdefault(f"development set, {name}", []).append(case)
    if options.clusters:
        cases["Washington"] = [table_case(options.clusters)]
    header = ["labels decided", "keys", "of today's", "with slips", "landmarks decided wrongly"]
    bodies = []
    for name, seeds in cases.items():
        labels = seeds[0].labels
        total = np.mean([sum(label.landmarks for label in case.labels) for case in seeds])
        title = f"{name}: {len(labels):,} labels, {total:,.0f} landmarks"
        print(title, flush=True)
        bodies.append(table([title, *header], measure(seeds)))
    write_section("keystrokes", "\n\n".join(bodies))


if __name__ == "__main__":
    main()
