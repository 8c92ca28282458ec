"""Allowed values of columns with a fixed set of values, and the meaning of each value.

Code uses the types, so that mypy refuses other values; schemas use the meanings, so that tables with other
values are neither written nor read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Split = Literal["train", "index"]
#: Splits of GLDv2.
SPLIT_MEANINGS: Mapping[Split, str] = {
    "train": "The training set.",
    "index": "The images that queries are searched in.",
}
#: Splits of GLDv2; each numbers its landmarks by itself.
SPLITS: tuple[str, ...] = tuple(SPLIT_MEANINGS)

#: Outcome of looking up a landmark.
ScrapeStatus = Literal[
    "ok",
    "no_instance_of",
    "no_item",
    "no_infobox",
    "item_missing",
    "missing",
    "invalid_title",
    "redirect_loop",
    "redirect_unresolved",
    "error",
    "no_value",
]
SCRAPE_STATUS_MEANINGS: Mapping[ScrapeStatus, str] = {
    "ok": "At least one value was found.",
    "no_instance_of": 'The item has no value of "instance of".',
    "no_item": "The page has no item (source api).",
    "no_infobox": "The page shows no infobox (source html).",
    "item_missing": "The page names an item that was deleted.",
    "missing": "The page does not exist.",
    "invalid_title": "The title of the page is invalid.",
    "redirect_loop": "The redirects form a loop.",
    "redirect_unresolved": "The chain of redirects is longer than is followed, or its end is no category.",
    "error": "The servers kept failing; running the command again retries the row.",
}


def _entity_status_meanings() -> Mapping[ScrapeStatus, str]:
    """Return the meanings for lists of other entities, whose values may be of any property."""
    meanings: dict[ScrapeStatus, str] = {}
    for status, meaning in SCRAPE_STATUS_MEANINGS.items():
        name: ScrapeStatus = "no_value" if status == "no_instance_of" else status
        meanings[name] = meaning.replace('"instance of"', "the property")
    return meanings


#: Outcome of looking up an entity of another list.
ENTITY_STATUS_MEANINGS: Mapping[ScrapeStatus, str] = _entity_status_meanings()

ScrapeSource = Literal["api", "html", "dump"]
#: Where "instance of" values are from; "dump" only in tables of version 0.2.0.
SCRAPE_SOURCE_MEANINGS: Mapping[ScrapeSource, str] = {
    "api": "The APIs of Wikidata and Wikimedia Commons.",
    "html": "The category pages of Wikimedia Commons.",
    "dump": "A dump of Wikidata.",
}

RouteStep = Literal["direct", "hard_redirect", "soft_redirect", "commons_category", "topic"]
#: Steps from the category of a landmark to its item; the column has them joined by :data:`ROUTE_SEPARATOR`.
ROUTE_STEP_MEANINGS: Mapping[RouteStep, str] = {
    "direct": "None: the item is linked to the category itself.",
    "hard_redirect": "A redirect of MediaWiki to another category.",
    "soft_redirect": "A template that names another category.",
    "commons_category": "The item names the category in its property P373 (source dump).",
    "topic": "The item of the category names its main topic (P301), which is the item of the landmark.",
}
ROUTE_SEPARATOR = "+"

#: Why a landmark has no label.
RemovalReason = Literal["multiple", "irrelevant", "unlabelled"]
REMOVAL_REASON_MEANINGS: Mapping[RemovalReason, str] = {
    "multiple": "It has several relevant labels.",
    "irrelevant": "None of its labels describes a landmark.",
    "unlabelled": "It has no label.",
}

#: Why a landmark has no group.
MissingGroupReason = Literal[RemovalReason, "excluded"]
MISSING_GROUP_REASON_MEANINGS: Mapping[MissingGroupReason, str] = {
    "multiple": REMOVAL_REASON_MEANINGS["multiple"],
    "irrelevant": REMOVAL_REASON_MEANINGS["irrelevant"],
    "unlabelled": REMOVAL_REASON_MEANINGS["unlabelled"],
    "excluded": "Its label is dropped or undecided.",
}

LabelSource = Literal["instance_of", "photographs", "correction"]
#: Where the group of a landmark comes from.
LABEL_SOURCE_MEANINGS: Mapping[LabelSource, str] = {
    "instance_of": "A decision on what the landmark is an instance of.",
    "photographs": "A proposal of ``hgld complete``, which rests on its photographs.",
    "correction": "A decision on the landmark itself (``hgld build --corrections``).",
}

#: Outcome of fetching a photograph.
PhotographStatus = Literal[
    "ok",
    "missing",
    "invalid_title",
    "no_thumbnail",
    "no_address",
    "invalid_address",
    "not_in_tar_files",
    "unreadable",
    "error",
]
PHOTOGRAPH_STATUS_MEANINGS: Mapping[PhotographStatus, str] = {
    "ok": "It is in the tar file ``shard``.",
    "missing": "Commons has no such file any more.",
    "invalid_title": "Commons cannot have a file of this name.",
    "no_thumbnail": "Commons makes no picture of the file.",
    "no_address": "GLDv2's lists give no address for it.",
    "invalid_address": "The lists give an address that is not at Commons.",
    "not_in_tar_files": "None of the tar files holds it.",
    "unreadable": "The file in the tar file is damaged.",
    "error": "The servers kept failing; running the command again tries it again.",
}
