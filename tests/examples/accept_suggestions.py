"""Write the changes of an annotator who accepts suggestions of 0.5 or more, and drops other labels.

Usage: python accept_suggestions.py CLUSTERS CHANGES; see annotator.py for the output.
"""

import csv
import sys
from pathlib import Path

from hgld.tables import CLUSTERS, read_table


def main(clusters: Path, changes: Path) -> None:
    """Write a row for each label of a ``clusters`` table with suggestions."""
    with changes.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(("label", "decision", "group", "comment"))
        for row in read_table(clusters, CLUSTERS).to_pylist():
            accepted = (row["suggestion_score"] or 0) >= 0.5
            decision = ("group", row["suggested_group"]) if accepted else ("drop", "")
            writer.writerow((row["label"], *decision, ""))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
