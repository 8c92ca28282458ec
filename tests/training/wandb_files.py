"""Read what Weights & Biases writes in offline mode: records in the log format of LevelDB."""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wandb.proto import wandb_internal_pb2

_BLOCK, _FILE_HEADER, _RECORD_HEADER = 32768, 7, 7
_FULL, _LAST = 1, 4


@dataclass
class WandbRun:
    """A run as its offline files have it: id, settings, values by step, and exit code."""

    run_id: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    steps: dict[int, dict[str, Any]] = field(default_factory=dict)
    exit_code: int | None = None


def read_offline_runs(folder: Path) -> list[WandbRun]:
    """Return the runs below a folder in the order in which they began."""
    return [_read_run(path) for path in sorted(folder.glob("offline-run-*/*.wandb"))]


def _read_run(path: Path) -> WandbRun:
    run = WandbRun()
    for data in _records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run.run_id = record.run.run_id
            run.config |= {update.key: json.loads(update.value_json) for update in record.run.config.update}
        elif kind == "history":
            items = {item.key or ".".join(item.nested_key): item.value_json for item in record.history.item}
            values = {key: json.loads(value) for key, value in items.items()}
            run.steps.setdefault(record.history.step.num, {}).update(values)
        elif kind == "exit":
            run.exit_code = record.exit.exit_code
    return run


def _records(data: bytes) -> Iterator[bytes]:
    position, parts = _FILE_HEADER, b""
    while position + _RECORD_HEADER <= len(data):
        left = _BLOCK - position % _BLOCK
        if left < _RECORD_HEADER:
            position += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        position += _RECORD_HEADER
        parts += data[position : position + length]
        position += length
        if kind in (_FULL, _LAST):
            yield parts
            parts = b""
