"""Changes of the labels and clusters since the last session of an annotator, e.g. after clustering again."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from hgld.errors import indented_list
from hgld.review.session import ReviewSession
from hgld.taxonomy.label_identity import normalise_label

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableChanges:
    """Differences between the labels of two sessions; each label as its text with its id.

    Args:
        new: Labels that were not there before.
        gone: Undecided labels that are no longer there.
        gone_decided: Decided labels that are no longer there; their decisions are kept.
        other_ids: Labels with the same text and another id.
        obsolete: Names of clusters and moves of labels that were made in another clustering.
    """

    new: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    gone_decided: tuple[str, ...] = ()
    other_ids: tuple[str, ...] = ()
    obsolete: tuple[str, ...] = ()

    def describe(self) -> str:
        """Return a list for each kind of change, empty if there is none."""
        lists = {
            "new labels": self.new,
            "labels that are gone": self.gone,
            "decided labels that are gone, whose decisions are kept": self.gone_decided,
            "labels with another id, for which the decisions on the old ids are offered": self.other_ids,
            "changes of clusters that are not used, as they belong to another clustering": self.obsolete,
        }
        return "\n".join(
            f"{title} ({len(items):,}):\n{indented_list(items)}" for title, items in lists.items() if items
        )


def log_table_changes(session: ReviewSession) -> None:
    """Compare the labels of a session with those of the last one in its store, and log the differences."""
    present = {label_id: (label.row.label, label.row.cluster) for label_id, label in session.labels.items()}
    previous = session.store.replace_labels(present)
    if not previous or previous == present:
        return
    text = table_changes(session, {label_id: text for label_id, (text, _) in previous.items()}).describe()
    if text:
        log.warning("%s: labels and clusters have changed since the last start:\n%s", session.store.path, text)


def table_changes(session: ReviewSession, previous: Mapping[str, str]) -> TableChanges:
    """Compare the labels of a session with earlier ones.

    Args:
        session: Session with the present labels.
        previous: Text of every label in the last session, by label_id.
    """
    new = {key: label.row.label for key, label in session.labels.items() if key not in previous}
    gone = {key: text for key, text in previous.items() if key not in session.labels}
    new_ids: defaultdict[str, list[str]] = defaultdict(list)
    for label_id, text in new.items():
        new_ids[normalise_label(text)].append(label_id)
    other_ids = {
        label_id: ids[0] for label_id, text in gone.items() if len(ids := new_ids.get(normalise_label(text), [])) == 1
    }
    lost = {key: text for key, text in gone.items() if key not in other_ids}
    return TableChanges(
        new=_texts(new, lambda key: key not in other_ids.values()),
        gone=_texts(lost, lambda key: not session.is_decided(key)),
        gone_decided=_texts(lost, session.is_decided),
        other_ids=tuple(f"{gone[old]} ({old}, now {new_id})" for old, new_id in other_ids.items()),
        obsolete=tuple(_obsolete_changes(session)),
    )


def _texts(labels: Mapping[str, str], condition: Callable[[str], bool]) -> tuple[str, ...]:
    return tuple(f"{text} ({label_id})" for label_id, text in labels.items() if condition(label_id))


def _obsolete_changes(session: ReviewSession) -> Iterator[str]:
    """Describe the names and moves in the store that differ from what the session shows."""
    for key, field in session.state.fields("name").items():
        if field.value is not None and field.value["name"] != session.cluster_name(int(key)):
            yield f'the name "{field.value["name"]}" of cluster {key}'
    for label_id, field in session.state.fields("cluster").items():
        label = session.labels.get(label_id)
        if label is not None and field.value is not None and field.value["cluster"] != session.cluster(label_id):
            yield f"{label.row.label} ({label_id}), moved to cluster {field.value['cluster']}"
