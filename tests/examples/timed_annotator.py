"""Write the store of an annotator who decides on all labels, at human pace and with some errors.

Usage: python timed_annotator.py CLUSTERS STORE SEED; the store is named after the annotator.

The annotator decides as the decisions that come with hgld do, but sometimes takes the second suggestion instead, more
often if blind; sees suggestions of every other label; and is slower at the beginning.
"""

import random
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

from hgld.resources import annotation_file
from hgld.review.labels import review_labels
from hgld.review.session import LabelAction, ReviewSession
from hgld.review.state import Change
from hgld.review.store import open_store
from hgld.tables import CLEAN, CLUSTERS, read_table
from hgld.taxonomy.decisions import DecisionIndex, read_decisions
from hgld.taxonomy.groups import read_taxonomy


def main(clusters: Path, path: Path, seed: int) -> None:
    """Decide on the labels of a ``clusters`` table, in the order of the page."""
    rng, at = random.Random(seed), datetime(2026, 3, 2, 9, tzinfo=timezone.utc)
    shipped = DecisionIndex(read_decisions(annotation_file("decisions/final.csv"), None))
    labels = review_labels(read_table(clusters, CLUSTERS), read_table(clusters.with_name("clean.parquet"), CLEAN))
    groups = read_taxonomy(annotation_file("taxonomy.csv"))
    with open_store(path, path.stem) as store:
        session = ReviewSession(labels, groups, store)
        for number, label in enumerate(labels):
            row = shipped.find(label.label_id, label.label)
            assert row is not None
            action = LabelAction(row.decision, row.group)
            session.blind = number % 2 == 0
            if rng.random() < (0.12 if session.blind else 0.03) and len(label.suggestions) > 1:
                action = LabelAction("group", label.suggestions[1].group)
            value = session.resulting_decision(label, action, session.groups())
            at += timedelta(seconds=rng.uniform(2, 6) + 6 * (number < len(labels) / 3))
            store.append([Change("decision", label.label_id, value, at=at)])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
