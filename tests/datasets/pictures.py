import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from hgld.datasets.image_dataset import ImageDataset
from hgld.datasets.loading import Example
from hgld.datasets.manifest import Manifest
from hgld.datasets.transforms import ImageSettings, training_transform
from hgld.tables import MANIFEST


def picture(name: str, size: tuple[int, int] = (20, 16), file_format: str = "PNG", mode: str = "RGB") -> bytes:
    """Return an encoded picture of noise seeded by the name."""
    noise = np.random.default_rng(list(name.encode())).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)
    data = io.BytesIO()
    Image.fromarray(noise).convert(mode).save(data, file_format)
    return data.getvalue()


def save_pictures(root: Path, *paths: str) -> None:
    """Write a picture to each path below the folder."""
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(picture(path, file_format="PNG" if path.endswith("png") else "JPEG"))


def manifest_table(
    paths: Sequence[str],
    levels: Mapping[str, Sequence[str | None]],
    splits: Sequence[str] | None = None,
    **changes: Sequence[object],
) -> pa.Table:
    """Return the table of a manifest of picture files, whose paths are their ids unless changed."""
    columns: dict[str, Any] = {
        "id": list(paths),
        "path": list(paths),
        "offset": [None] * len(paths),
        "size": [None] * len(paths),
        "split": list(splits or ["train"] * len(paths)),
    } | changes
    fixed = {name: pa.array(columns[name], MANIFEST.schema.field(name).type) for name in MANIFEST.schema.names}
    return pa.table(fixed | {name: pa.array(texts, pa.string()) for name, texts in levels.items()})


def manifest_of(
    paths: Sequence[str],
    levels: Mapping[str, Sequence[str]],
    splits: Sequence[str] | None = None,
    **changes: Sequence[object],
) -> Manifest:
    return Manifest.from_arrow(manifest_table(paths, levels, splits, **changes))


def rows_of(manifest: Manifest, key: str = "paths") -> list[tuple[str, str, tuple[str, ...]]]:
    """Return path (or id), split and class names of each image."""
    names = [
        tuple(classes[code] for classes, code in zip(manifest.class_names, codes, strict=True))
        for codes in manifest.labels.tolist()
    ]
    return list(zip(getattr(manifest, key).tolist(), manifest.splits.tolist(), names, strict=True))


def assert_readable(manifest: Manifest, root: Path, rows: Sequence[int] | None = None) -> None:
    """Check that images can be read at their places, by default all of them."""
    dataset = ImageDataset(manifest, root, training_transform(ImageSettings(size=4, resize=4)))
    assert all(isinstance(dataset[row], Example) for row in (range(len(manifest)) if rows is None else rows))
