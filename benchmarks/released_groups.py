"""Compare the guidelines with the groups that the authors of H-GLDv2 gave to landmarks.

The CSV file has the columns ``category`` (URL of a Commons category) and ``hierarchical_label`` (the released group).
A category counts if its name ends in a term that a guideline lists, the longest such term; it agrees if its group is
that of the guideline. A name is only a hint at the label that the authors scraped, so even the best assignment of
terms to groups, the last column, is far from 100 %::

    python benchmarks/released_groups.py released_labels.csv
"""

from __future__ import annotations

import argparse
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from report import table

from hgld.io.table_rows import read_rows
from hgld.labels.wording import guideline_terms, normalised_words
from hgld.resources import annotation_file
from hgld.taxonomy.groups import Group, read_taxonomy

#: The authors are consistent about a term if it has so many landmarks, and this share of them is in one group.
MIN_CASES, MIN_SHARE = 8, 0.7

Words = tuple[str, ...]


class Landmark(NamedTuple):
    """The name of a category, its words, normalised, and the released group."""

    name: str
    words: Words
    group: str


class Agreement(NamedTuple):
    """Shares of the landmarks whose name ends in a term.

    Args:
        landmarks: Number of such landmarks.
        guideline: Share that is in the group of the guideline.
        best: Share that is in the most frequent group of its term.
    """

    landmarks: int
    guideline: float
    best: float


def main() -> None:
    """Print agreement and contradictions."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "released", type=Path, help="CSV file with the columns category and hierarchical_label"
    )
    parser.add_argument("--taxonomy", type=Path, default=annotation_file("taxonomy.csv"))
    parser.add_argument(
        "--splits", type=int, default=100, help="random halves for cross-validation"
    )
    options = parser.parse_args()
    landmarks, terms = (
        read_landmarks(options.released),
        group_of_terms(read_taxonomy(options.taxonomy)),
    )
    whole = agreement(landmarks, terms)
    rows = [("all", f"{whole.landmarks:,}", f"{whole.guideline:.1%}", f"{whole.best:.1%}")]
    halves = cross_validate(landmarks, terms, options.splits)
    names = ("the other half, by the guideline", "the other half, terms assigned by the first")
    rows += [
        (name, f"{half.landmarks:,}", f"{half.guideline:.1%}", f"{half.best:.1%}")
        for name, half in zip(names, halves, strict=True)
    ]
    print(table(("landmarks", "name ends in a term", "agree", "best assignment"), rows))
    for words, groups in contradictions(landmarks, terms):
        print(
            f"contradiction: “{' '.join(words)}” is {terms[words]}, but released as {dict(groups.most_common(3))}"
        )


def read_landmarks(path: Path) -> list[Landmark]:
    """Read names and groups of released landmarks."""

    def parse(line: int, row: Mapping[str, str]) -> Landmark:
        name = unquote(row["category"]).rpartition("Category:")[2].replace("_", " ")
        return Landmark(name, normalised_words(name), row["hierarchical_label"].strip())

    return read_rows(path, ("category", "hierarchical_label"), parse)


def group_of_terms(groups: Iterable[Group]) -> dict[Words, str]:
    """Return the group whose guideline lists each term."""
    return {
        normalised_words(term): group.name
        for group in groups
        for term in guideline_terms(group.guideline)
    }


def agreement(landmarks: Iterable[Landmark], terms: Mapping[Words, str]) -> Agreement:
    """Compare the groups of terms with those of the landmarks whose names end in them."""
    counts = groups_by_ending(landmarks, terms)
    total = max(sum(groups.total() for groups in counts.values()), 1)
    agreeing = sum(groups[terms[words]] for words, groups in counts.items())
    return Agreement(
        total, agreeing / total, sum(max(groups.values()) for groups in counts.values()) / total
    )


def groups_by_ending(
    landmarks: Iterable[Landmark], terms: Mapping[Words, str]
) -> dict[Words, Counter[str]]:
    """Count the released groups by the longest term that ends the name."""
    counts: defaultdict[Words, Counter[str]] = defaultdict(Counter)
    for landmark in landmarks:
        endings = (landmark.words[start:] for start in range(len(landmark.words)))
        ending = next((words for words in endings if words in terms), None)
        if ending:
            counts[ending][landmark.group] += 1
    return dict(counts)


def contradictions(
    landmarks: Sequence[Landmark], terms: Mapping[Words, str]
) -> list[tuple[Words, Counter[str]]]:
    """Return the terms about which the authors are consistent, but have another group than the guideline."""
    return [
        (words, groups)
        for words, groups in sorted(groups_by_either_end(landmarks, terms).items())
        if consistent_group(groups, MIN_CASES) not in (None, terms[words])
    ]


def groups_by_either_end(
    landmarks: Sequence[Landmark], terms: Mapping[Words, str]
) -> dict[Words, Counter[str]]:
    """Count the released groups by term, also of names that begin with it ("Menhir de ...", "Monument to ...")."""
    counts = groups_by_ending(landmarks, terms)
    reverse_terms = {words[::-1]: group for words, group in terms.items()}
    reverse_names = (landmark._replace(words=landmark.words[::-1]) for landmark in landmarks)
    for words, groups in groups_by_ending(reverse_names, reverse_terms).items():
        counts.setdefault(words[::-1], Counter()).update(groups)
    return counts


def consistent_group(groups: Counter[str], min_cases: int) -> str | None:
    """Return the group of nearly all cases, or None if there is none or the cases are few."""
    (group, cases), total = groups.most_common(1)[0], groups.total()
    return group if total >= min_cases and cases >= MIN_SHARE * total else None


def cross_validate(
    landmarks: Sequence[Landmark], terms: Mapping[Words, str], n_splits: int
) -> tuple[Agreement, Agreement]:
    """Estimate the agreement on landmarks that nobody has seen.

    Returns:
        Means over halves of random splits: by the guideline as it is, and with each term in the group that the other
        half is consistent about; half as many cases suffice there.
    """
    shuffled = list(landmarks)
    rng = random.Random(0)
    results: list[tuple[Agreement, Agreement]] = []
    for _ in range(n_splits):
        rng.shuffle(shuffled)
        middle = len(shuffled) // 2
        for first, second in (
            (shuffled[:middle], shuffled[middle:]),
            (shuffled[middle:], shuffled[:middle]),
        ):
            seen = groups_by_either_end(first, terms)
            learnt = {
                words: consistent_group(groups, MIN_CASES // 2) or terms[words]
                for words, groups in seen.items()
            }
            results.append((agreement(second, terms), agreement(second, {**terms, **learnt})))
    return _mean([pair[0] for pair in results]), _mean([pair[1] for pair in results])


def _mean(results: Sequence[Agreement]) -> Agreement:
    total = len(results)
    return Agreement(
        round(sum(result.landmarks for result in results) / total),
        sum(result.guideline for result in results) / total,
        sum(result.best for result in results) / total,
    )


if __name__ == "__main__":
    main()
