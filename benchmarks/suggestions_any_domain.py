"""Measure suggestions for other domains than landmarks, beside the nearest name of a group; and fit their weights.

Lists to fit to are CIFAR-100, COCO and MIT's indoor scenes (labels and groups as published, ``other_lists.csv``), the
groceries in ``shared`` and 180 terms of hgld's vocabulary, of which only the names of the groups are used. A fifth of
the labels of each come from the others and belong to no group. The products in ``shared`` are the test::

    python benchmarks/suggestions_any_domain.py --fit
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from development_set import Embed
from numpy.typing import NDArray
from report import table

from hgld.completion.complete import calibration_error
from hgld.labels import suggest
from hgld.labels.evidence import EmbeddedLabels, Evidence
from hgld.resources import annotation_file
from hgld.taxonomy import Group, read_taxonomy, read_vocabulary

SHARED = Path(os.environ.get("HGLD_SHARED", "../shared"))
#: Words that say nothing to an English encoder.
FOREIGN = (
    *("blorf", "xqzt", "Zwiebelfisch", "tralivali", "quomodocunque", "ohjelmisto"),
    *("wjrkbl", "fnord", "gralloch", "plimsk", "vaahtosammutin"),
)


@dataclass(frozen=True)
class LabelledList:
    """Labels with the path of each, its group first; None for no group."""

    labels: Sequence[str]
    paths: Sequence[tuple[str, ...] | None]

    @property
    def groups(self) -> list[Group]:
        """The groups, in the order of their first labels."""
        return [
            Group(
                path[0], path[-1], "", key=" < ".join(path), between=path[1:-1], levels=tuple("abcdef"[: len(path)])
            )
            for path in dict.fromkeys(path for path in self.paths if path)
        ]

    @property
    def truth(self) -> NDArray[np.int64]:
        """int64, shape (n_labels,): index of the group of each label; -1 for none."""
        column = {group.path: number for number, group in enumerate(self.groups)}
        return np.array([-1 if path is None else column[path] for path in self.paths], np.int64)


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--encoder", default="minilm", help="text encoder, as in hgld embed")
    parser.add_argument("--fit", action="store_true", help="search weights of names and of no group, too")
    options = parser.parse_args()
    lists = read_lists()
    products = lists.pop("products (test)")
    embed = Embed(options.encoder, suggest.OTHER_TEMPLATES)
    if options.fit:
        print(fit({name: with_labels_of_others(name, lists) for name in lists}, embed), end="\n\n")
    plain = Embed(options.encoder, ["{}"])
    lines = [
        [name, *quality(labels, embed, plain)] for name, labels in {**lists, "products (test)": products}.items()
    ]
    header = ["list", "labels", "nearest name", "top", "first choice", "top", "calibration error", "foreign words"]
    print(table(header, lines))


def read_lists() -> dict[str, LabelledList]:
    """Read all lists by name."""
    rows: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    with Path(__file__).with_name("other_lists.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            rows.setdefault(row["list"], []).append((row["label"], (row["group"], row["root"])))
    with (SHARED / "grocery/images.csv").open(encoding="utf-8", newline="") as stream:
        found = {
            tuple(row[name].replace("-", " ") for name in ("product", "group", "kind"))
            for row in csv.DictReader(stream)
        }
        rows["groceries"] = [(product, (group, kind)) for product, group, kind in sorted(found)]
    groups = {group.key: group.path for group in read_taxonomy(annotation_file("taxonomy.csv"))}
    terms = [term for term in read_vocabulary(annotation_file("vocabulary.csv"), groups) if term.group]
    chosen = np.random.default_rng(1).permutation(len(terms))[:180]
    rows["landmarks"] = [(terms[row].text, groups[terms[row].group or ""]) for row in chosen]
    with (SHARED / "other_domains/plain/expected.csv").open(encoding="utf-8", newline="") as stream:
        paths = {
            row["canonical"]: tuple(row[f"level{level}"] for level in (4, 3, 2, 1)) for row in csv.DictReader(stream)
        }
        rows["products (test)"] = list(paths.items())
    return {name: LabelledList(*zip(*pairs, strict=True)) for name, pairs in rows.items()}


def with_labels_of_others(name: str, lists: Mapping[str, LabelledList]) -> LabelledList:
    """Return a list with labels of the others, a fifth of its own number, that belong to no group."""
    own, others = lists[name], [label for key, other in lists.items() if key != name for label in other.labels]
    chosen = np.random.default_rng(0).permutation(len(others))[: len(own.labels) // 5]
    return LabelledList([*own.labels, *(others[row] for row in chosen)], [*own.paths, *[None] * len(chosen)])


def find(labels: LabelledList, embed: Embed) -> list[Evidence]:
    """Collect the evidence for a list."""
    texts = list(labels.labels)
    rows = EmbeddedLabels(texts, texts, embed(texts))
    inputs = suggest.SuggestionInputs(rows, np.ones(len(texts), np.int64), labels.groups, [], [], embed)
    return inputs.evidence()


def quality(labels: LabelledList, embed: Embed, plain: Embed) -> list[str]:
    """Return the number of labels, the accuracies, the calibration error and the score of foreign words."""
    groups, truth = labels.groups, labels.truth
    roots = np.array([group.root for group in groups])
    scores = suggest.score_groups(find(labels, embed))
    nearest = plain(labels.labels) @ plain([group.name for group in groups]).T
    cells = [str(len(truth))]
    for values in (nearest, scores):
        first = values.argmax(axis=1)
        cells += [f"{np.mean(first == truth):.1%}", f"{np.mean(roots[first] == roots[truth]):.1%}"]
    foreign = LabelledList([*labels.labels, *FOREIGN], [*labels.paths, *[None] * len(FOREIGN)])
    highest = suggest.score_groups(find(foreign, embed))[-len(FOREIGN) :].max()
    return [*cells, f"{error_of_lists([scores], [labels]):.3f}", f"at most {highest:.2f}"]


def error_of_lists(scores: Sequence[NDArray[np.float64]], lists: Sequence[LabelledList]) -> float:
    """Return the calibration error of the first suggestions of several lists together."""
    truth = np.concatenate([labels.truth for labels in lists])
    first = np.concatenate([part.argmax(axis=1) for part in scores])
    score = np.concatenate([part.max(axis=1) for part in scores])
    return calibration_error(score, first == truth)


def fit(lists: Mapping[str, LabelledList], embed: Embed) -> str:
    """Return the calibration error over all lists by the weights of names and of no group, lowest first."""
    evidence = [find(labels, embed) for labels in lists.values()]
    lines = []
    for names, no_group in itertools.product(np.arange(1.6, 3.6, 0.2), (-0.5, 0.5, 1.5, 2.5)):
        changes = {"names": names, "similar": names, "no_group": no_group}
        scores = [suggest.score_groups(part, {**suggest.OTHER_WEIGHTS, **changes}) for part in evidence]
        error = error_of_lists(scores, [*lists.values()])
        lines.append([f"{names:.1f}", f"{no_group:.1f}", f"{error:.3f}"])
    return table(["names", "no group", "calibration error"], sorted(lines, key=lambda line: line[-1])[:8])


if __name__ == "__main__":
    main()
