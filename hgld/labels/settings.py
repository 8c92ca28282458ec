"""Settings of the stages from scraped values or a list to clusters, in a module that is fast to import for help."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hgld.errors import ConfigurationError, require, require_at_least, require_choice

DEFAULT_ENCODER = "open_clip:ViT-L-14/laion2b_s32b_b82k"
DEFAULT_TEMPLATE = "A picture of a {}"
DEFAULT_CLUSTERS = 12
DEFAULT_SUBCLUSTERS = 78
KeepMultiple = Literal["first", "most-specific"]


@dataclass(frozen=True)
class PlainConfig:
    """Settings of the stage ``labels``: the columns of the list, and which spellings are one label.

    Args:
        label: Column of the labels.
        id: Column of the ids. Default: id if the list has such a column, otherwise the number of
            the row from 1.
        split: Name of the split of all rows. Default: all.
        split_column: Column of the splits.
        count: Column with a count of each row, such as how often it occurs; whole numbers. Tables and summaries of
            labels add the counts up.
        item: Column of the Wikidata items of the labels: Q ids or addresses; rows may be without.
        keep: Labels that stay apart although they count as the same spelling, separated by commas,
            such as lights,light; may be repeated.
    """

    label: str
    id: str | None = None
    split: str | None = None
    split_column: str | None = None
    count: str | None = None
    item: str | None = None
    keep: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.split is not None and self.split_column is not None:
            raise ConfigurationError(
                "`split` and `split_column` exclude each other; omit one of them"
            )
        for text in self.keep:
            if len(split_names(text)) < 2:
                raise ConfigurationError(
                    f'`keep` is "{text}"; expected two labels or more, such as lights,light'
                )


def split_names(text: str) -> list[str]:
    """Return the labels in a text, which are separated by commas; those with commas stand in quotation marks."""
    names = next(csv.reader([text], skipinitialspace=True), [])
    return [name.strip() for name in names if name.strip()]


@dataclass(frozen=True)
class CleanConfig:
    """Settings of the stage ``clean``: which landmarks are kept.

    Args:
        keep_multiple: Keep landmarks with several labels, with the first label, or with the most
            specific label: the only label that is not an ancestor (P279) of another label. Default:
            remove such landmarks, as the paper does.
        allow_errors: Treat landmarks whose scrape failed as unlabelled.
    """

    keep_multiple: KeepMultiple | None = None
    allow_errors: bool = False

    def __post_init__(self) -> None:
        if self.keep_multiple is not None:
            require_choice(KeepMultiple, keep_multiple=self.keep_multiple)


@dataclass(frozen=True)
class EmbedConfig:
    """Settings of the stage ``embed``: how labels are encoded.

    Args:
        encoder: open_clip:MODEL/TAG, open_clip:MODEL/PATH with a local checkpoint, minilm (no download) or ngrams
            (spelling only).
        templates: Prompt template with {} in place of the label; may be repeated, vectors are then
            averaged.
        batch_size: Number of labels encoded at once.
        device: Torch device. Default: cuda if available, otherwise cpu.
    """

    encoder: str = DEFAULT_ENCODER
    templates: Sequence[str] = (DEFAULT_TEMPLATE,)
    batch_size: int = 256
    device: str | None = None

    def __post_init__(self) -> None:
        if not self.templates:
            raise ConfigurationError(
                f'`templates` is empty; expected one such as "{DEFAULT_TEMPLATE}"'
            )
        for template in self.templates:
            if template.count("{}") != 1:
                raise ConfigurationError(
                    f'the template "{template}" has {template.count("{}")} placeholders for the label; expected '
                    f'exactly one {{}}, as in "{DEFAULT_TEMPLATE}"'
                )
        require_at_least(1, batch_size=self.batch_size)


@dataclass(frozen=True)
class ClusterConfig:
    """Settings of the clustering.

    Args:
        n_clusters: Number of clusters. Default: 12, or a quarter of the labels where that is less.
        n_subclusters: Total number of sub-clusters. Default: 78, or half of the labels where that is less.
        seed: Random seed.
    """

    n_clusters: int | None = None
    n_subclusters: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n_clusters is not None:
            require_at_least(1, n_clusters=self.n_clusters)
        if self.n_subclusters is not None:
            require_at_least(1, n_subclusters=self.n_subclusters)
        if self.n_clusters and self.n_subclusters and self.n_subclusters < self.n_clusters:
            raise ConfigurationError(
                f"`n_subclusters` is {self.n_subclusters}, fewer than the {self.n_clusters} clusters; every cluster "
                "has at least one sub-cluster"
            )
        require(0 <= self.seed < 2**32, "0 or more, below 2^32", seed=self.seed)

    def numbers(self, n_labels: int) -> tuple[int, int]:
        """Return the numbers of clusters and of sub-clusters of different labels.

        >>> ClusterConfig().numbers(5_700), ClusterConfig().numbers(33), ClusterConfig(n_subclusters=5).numbers(33)
        ((12, 78), (8, 16), (5, 5))
        """
        n_clusters = self.n_clusters
        if n_clusters is None:
            n_clusters = max(
                1, min(DEFAULT_CLUSTERS, n_labels // 4, self.n_subclusters or n_labels)
            )
        n_subclusters = self.n_subclusters
        if n_subclusters is None:
            n_subclusters = max(n_clusters, min(DEFAULT_SUBCLUSTERS, n_labels // 2))
        return n_clusters, n_subclusters
