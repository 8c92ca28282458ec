"""Made-up labels and groups to review, without tables."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hgld.review.labels import Candidate, ReviewLabel
from hgld.review.session import LabelAction, ReviewSession
from hgld.review.store import open_store
from hgld.taxonomy.groups import Group

GROUPS = [
    Group("church", "human-made", "Churches and chapels."),
    Group("lake", "natural", "Standing water.", ("Q23397",)),
    Group("museum", "human-made", "Collections."),
]


def label(number: int, text: str = "", cluster: int = 1, suggested: str | None = "lake") -> ReviewLabel:
    """A label with one landmark."""
    return ReviewLabel(
        label_id=f"Q{number}",
        label=text or f"label {number}",
        landmarks=number,
        parents="kind of thing",
        cluster=cluster,
        cluster_name=f"name {cluster}",
        subcluster=1,
        examples=("Category:An example",),
        suggested_group=suggested or "",
        suggestions=(Candidate("group", suggested, "because", 0.9),) if suggested else (),
    )


LABELS = [label(1), label(2), label(3, suggested=None), label(4, cluster=2, suggested="church"), label(5, cluster=2)]


@contextmanager
def open_session(
    path: Path, labels: list[ReviewLabel] | None = None, groups: list[Group] | None = None, *, blind: bool = False
) -> Iterator[ReviewSession]:
    """Open a session with the store at ``path``."""
    with open_store(path, "ada") as store:
        labels = LABELS if labels is None else labels
        yield ReviewSession(labels, GROUPS if groups is None else groups, store, blind=blind)


def decide(session: ReviewSession, action: LabelAction, *label_ids: str) -> int | None:
    """Decide on labels as they are now."""
    return session.decide({label_id: session.version(label_id) for label_id in label_ids}, action)
