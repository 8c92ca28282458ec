"""Example photographs of the largest groups, and who took them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image, ImageOps

from hgld.datasets.manifest import LANDMARK_LEVEL, Manifest, read_manifest
from hgld.errors import ConfigurationError, InputError, require_at_least
from hgld.figures.photographs import ExampleGroup, draw_examples
from hgld.hierarchy.label_matrix import single_labels
from hgld.inspection.photos import FindImage, images_of_manifest, shrink
from hgld.io.columns import column_names, read_columns
from hgld.io.files import atomic_write
from hgld.io.markdown import markdown_table

_PIXELS = 220
#: Towers and summits are above the centre.
_CENTRE = (0.5, 0.4)
_CREDIT_COLUMNS = ("page", "url", "author", "license", "licence", "licence_url")


@dataclass(frozen=True)
class ExamplesConfig:
    """Choice of groups and photographs.

    Args:
        level: Level of the groups. Default: the one above the finest.
        n_groups: Largest number of groups for each class of the coarsest level, those with most images first.
        n_photographs: Largest number of photographs for each group, of different classes of the finest level where
            there are enough.
        seed: Seed of the choice of photographs.

    Raises:
        ConfigurationError: A number is less than 1.
    """

    level: str | None = None
    n_groups: int = 7
    n_photographs: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        require_at_least(1, n_groups=self.n_groups, n_photographs=self.n_photographs)


def draw_examples_file(
    manifest: Path,
    out: Path,
    config: ExamplesConfig | None = None,
    *,
    root: Path | None = None,
    sources: Path | None = None,
) -> list[Path]:
    """Draw example photographs of the largest groups of a manifest, and write who took them.

    Args:
        manifest: Manifest of the photographs, of at least two levels, see hgld manifest.
        out: Image file X.png to write.
        root: Folder that the paths in ``manifest`` are relative to. Default: the folder of ``manifest``.
        sources: CSV or Parquet file with the id and the page, url, author or licence of each photograph, to write who
            took those of the picture to X.credits.md: the table from hgld fetch gldv2, or GLDv2's train.csv or
            train_attribution.csv. Default: none.

    Returns:
        The picture and, with ``sources``, the Markdown file ``X.credits.md`` beside it.

    Raises:
        InputError: A file cannot be read, or no photograph can; or images have several labels.
        ConfigurationError: There is no such level, or only one.
    """
    config = config or ExamplesConfig()
    images = read_manifest(manifest, root or manifest.parent)
    column = _column(manifest, images.level_names, config.level)
    try:
        single_labels(images.labelling)
    except InputError as error:
        raise InputError(f"{manifest}: {error}") from error
    find = images_of_manifest(images, root or manifest.parent)
    columns: dict[str, list[ExampleGroup]] = {}
    shown: list[tuple[str, str]] = []
    for heading, groups in _largest_groups(images, column, config.n_groups).items():
        for group in groups:
            rows = np.flatnonzero(images.labels[:, column] == group)
            photographs = dict(_photographs(images, rows, find, config))
            if not photographs:
                continue
            name = images.class_names[column][group]
            columns.setdefault(heading, []).append(ExampleGroup(name, _note(images, rows), [*photographs.values()]))
            shown += [(name, image_id) for image_id in photographs]
    if not columns:
        raise InputError(f"{manifest}: none of its photographs can be read; name their folder with `root`")
    credits = None if sources is None else _credits(sources, shown)
    draw_examples(out, columns)
    if credits is None:
        return [out]
    path = out.with_suffix(".credits.md")
    with atomic_write(path) as draft:
        draft.write_text(f"{credits}\n", encoding="utf-8")
    return [out, path]


def _column(path: Path, names: tuple[str, ...], level: str | None) -> int:
    if len(names) < 2:
        raise ConfigurationError(f"{path}: has the level {', '.join(names)} alone; groups need a level above it")
    if level is not None and level not in names[1:]:
        raise ConfigurationError(f'`level` is "{level}"; expected one of {", ".join(names[1:])}')
    return 1 if level is None else names.index(level)


def _largest_groups(images: Manifest, column: int, n: int) -> dict[str, list[int]]:
    """Return the groups with most images by the class of the coarsest level; by "" if they are that level."""
    counts = np.bincount(images.labels[:, column])
    order = sorted(range(len(counts)), key=lambda group: (-counts[group], images.class_names[column][group]))
    if column == len(images.level_names) - 1:
        return {"": order[:n]}
    coarsest = dict(zip(images.labels[:, column].tolist(), images.labels[:, -1].tolist(), strict=True))
    names = images.class_names[-1]
    return {
        names[root]: [group for group in order if coarsest[group] == root][:n]
        for root in sorted(range(len(names)), reverse=True)  # natural before human-made, as in other figures
    }


def _photographs(
    images: Manifest, rows: npt.NDArray[np.int64], find: FindImage, config: ExamplesConfig
) -> Iterator[tuple[str, Image.Image]]:
    """Yield ids and square photographs of a group, of different classes of the finest level first."""
    shuffled = np.random.default_rng(config.seed).permutation(rows)
    seen: Counter[int] = Counter()
    turns = []  # 0 for the first image of each class, 1 for the second of each
    for fine in images.labels[shuffled, 0].tolist():
        turns.append(seen[fine])
        seen[fine] += 1
    n = 0
    for row in shuffled[np.argsort(turns, kind="stable")].tolist():
        photograph = shrink(find(images.ids[row]), 2 * _PIXELS)
        if photograph is not None:
            yield images.ids[row], ImageOps.fit(photograph, (_PIXELS, _PIXELS), centering=_CENTRE)
            n += 1
        if n == config.n_photographs:
            return


def _note(images: Manifest, rows: npt.NDArray[np.int64]) -> str:
    n_fine = len(np.unique(images.labels[rows, 0]))
    finest = ("landmark", "landmarks") if images.level_names[0] == LANDMARK_LEVEL else ("class", "classes")
    return f"{n_fine:,} {finest[n_fine > 1]}, {len(rows):,} {'images' if len(rows) > 1 else 'image'}"


def _credits(sources: Path, shown: list[tuple[str, str]]) -> str:
    """Return a Markdown table of groups and photographs, in order, with what the sources say of each."""
    names = column_names(sources)
    known = [name for name in _CREDIT_COLUMNS if name in names]
    if "id" not in names or not known:
        raise InputError(f"{sources}: expected the column id and some of {', '.join(_CREDIT_COLUMNS)}")
    table = read_columns(sources, ("id", *known), dict.fromkeys(("id", *known), pa.string()))
    ids = pa.array([image_id for _, image_id in shown], pa.string())
    facts = {row["id"]: row for row in table.filter(pc.is_in(table["id"], ids)).to_pylist()}
    rows = [
        [group, image_id, *(facts.get(image_id, {}).get(name) or "" for name in known)] for group, image_id in shown
    ]
    return markdown_table(["group", "photograph", *known], rows)
