"""Plain data for the list of labels: its sections, its head, the filters, and the views that are one click away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from hgld.review.label_filters import FILTERS
from hgld.review.label_lists import LabelLists, View
from hgld.review.label_order import Order
from hgld.taxonomy.groups import Group

#: Orders as the annotator reads them.
ORDER_TITLES: dict[Order, str] = {
    "table": "as in the clusters",
    "landmarks": "most landmarks first",
    "uncertain": "least certain first",
    "settling": "what settles most first",
}
#: Scores in percent that the first suggestion can be asked to be below.
SCORES = (30, 50, 70, 90, 95)


@dataclass(frozen=True, slots=True)
class ViewLink:
    """A view that is one click away.

    Args:
        title: Its name.
        view: The view.
        count: Number of labels in its list.
        is_shown: Whether the page shows it.
        is_queue: Whether it is the queue.
    """

    title: str
    view: View
    count: int
    is_shown: bool
    is_queue: bool = False


@dataclass(frozen=True, slots=True)
class ListHead:
    """The head of a list of labels of all clusters.

    Args:
        title: What the labels have in common.
        order: Title of the order.
        labels: Number of labels.
        landmarks: Number of landmarks with these labels.
    """

    title: str
    order: str
    labels: int
    landmarks: int


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice in the form of filters.

    Args:
        value: Value in the address.
        title: What the annotator reads.
        is_chosen: Whether it is chosen now.
        count: Number of labels; None if it is not counted.
    """

    value: str
    title: str
    is_chosen: bool
    count: int | None = None


@dataclass(frozen=True, slots=True)
class FilterForm:
    """The form of filters.

    Args:
        filters: Filters that are on or off.
        groups: Groups, of which one can be chosen.
        scores: Scores that the first suggestion must be below; empty if the session shows no suggestions.
        orders: Orders, of which one is chosen.
        text: Text to search.
    """

    filters: Sequence[Choice]
    groups: Sequence[Choice]
    scores: Sequence[Choice]
    orders: Sequence[Choice]
    text: str


def queue_view(lists: LabelLists) -> View:
    """Return the queue: undecided labels of all clusters, one after the other."""
    return View(filters=("undecided",), order="settling" if "settling" in lists.orders else "landmarks")


def view_links(lists: LabelLists, shown: View) -> list[ViewLink]:
    """Return the queue, all labels, and a view of each filter that matches a label."""
    counts = lists.counts()
    queue = queue_view(lists)
    links = [ViewLink("Queue", queue, counts["undecided"], shown.current == queue, is_queue=True)]
    links.append(ViewLink("All labels", View(), len(lists.session.labels), shown.current == View()))
    for name in lists.filters:
        view = View(filters=(name,))
        if name not in ("undecided", "decided") and (counts[name] or shown.current == view):
            links.append(ViewLink(FILTERS[name].title, view, counts[name], shown.current == view))
    return links


def list_head(view: View, label_ids: Sequence[str], lists: LabelLists, groups: Mapping[str, Group]) -> ListHead:
    """Return the head of a list of labels of all clusters."""
    labels = lists.session.labels
    landmarks = sum(labels[label_id].row.landmarks for label_id in label_ids)
    return ListHead(view_title(view, groups), ORDER_TITLES[view.order], len(label_ids), landmarks)


def view_title(view: View, groups: Mapping[str, Group]) -> str:
    """Return what the labels in a list have in common.

    >>> view_title(View(filters=("undecided", "commented"), below=50, text="wood"), {})
    'Undecided, commented, suggestion below 50 %, with “wood”'
    """
    parts = [FILTERS[name].title.lower() for name in view.filters]
    if view.group:
        parts.append(f"in {groups[view.group].name if view.group in groups else view.group}")
    if view.below is not None:
        parts.append(f"suggestion below {view.below} %")
    if view.text:
        parts.append(f"with “{view.text}”" if parts else f"labels with “{view.text}”")
    title = ", ".join(parts) or "all labels"
    return title[0].upper() + title[1:]


def filter_form(view: View, lists: LabelLists, groups: Mapping[str, Group]) -> FilterForm:
    """Return the form of filters with what the view has chosen."""
    counts = lists.counts()
    return FilterForm(
        [Choice(name, each.title, name in view.filters, counts[name]) for name, each in lists.filters.items()],
        [Choice(key, group.name, key == view.group) for key, group in groups.items()],
        [Choice(str(score), f"below {score} %", score == view.below) for score in SCORES]
        if lists.shows_suggestions
        else [],
        [Choice(order, ORDER_TITLES[order], order == view.order) for order in lists.orders],
        view.text,
    )


def sections(view: View, label_ids: Sequence[str], lists: LabelLists) -> list[tuple[str, list[str]]]:
    """Return the sections of a list, each with its title; a list that goes across clusters has one without."""
    session = lists.session
    if view.cluster is not None:
        rows = (session.labels[label_id].row for label_id in label_ids)
        by_subcluster = groupby(rows, key=lambda row: (row.cluster, row.subcluster))
        return [(f"Sub-cluster {number}", [row.label_id for row in part]) for (_, number), part in by_subcluster]
    if view.order != "table":
        return [("", list(label_ids))] if label_ids else []
    by_cluster = groupby(label_ids, key=session.cluster)
    return [(f"{number} · {session.cluster_name(number)}", list(part)) for number, part in by_cluster]
