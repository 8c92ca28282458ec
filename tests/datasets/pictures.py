"""Small pictures and manifests of them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from hgld.datasets.manifest import Manifest
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
