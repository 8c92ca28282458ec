"""Weights of open_clip's models: files of one's own, or those that it publishes under tags."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

from hgld.errors import ConfigurationError, SourceError
from hgld.io.hub import hub_file


def open_clip_weights(model: str, pretrained: str) -> tuple[Path, dict[str, Any]]:
    """Return the file of the weights, downloaded if necessary, and open_clip's configuration of their tag.

    Args:
        model: Name of a model of open_clip.
        pretrained: Path of a file, for which the configuration is empty; or a tag.

    Raises:
        ConfigurationError: open_clip has no such model, or ``pretrained`` is neither a file nor a tag of it.
        SourceError: The weights are not on this machine and cannot be downloaded.
    """
    require_open_clip_model(model)
    path = Path(pretrained)
    if path.is_file():
        return path, {}
    configuration = tag_configuration(model, pretrained)
    return _download(model, pretrained, configuration), configuration


def require_open_clip_model(model: str) -> None:
    """Raise a :class:`ConfigurationError` unless open_clip has a model of this name."""
    import open_clip

    if model not in open_clip.list_models():
        raise ConfigurationError(f'open_clip has no model "{model}"; open_clip.list_models() lists its models')


def tag_configuration(model: str, tag: str) -> dict[str, Any]:
    """Return open_clip's configuration of a tag, such as the normalisation of its images.

    Raises:
        ConfigurationError: The model has no weights of this tag.
    """
    import open_clip

    configuration: dict[str, Any] = open_clip.get_pretrained_cfg(model, tag)
    if not configuration:
        raise ConfigurationError(
            f'"{tag}" is neither a file nor a tag of the open_clip model {model} (its tags: {tags_of(model)})'
        )
    return configuration


def tags_of(model: str) -> str:
    """Return the tags of the weights of a model, in a text."""
    import open_clip

    return ", ".join(open_clip.list_pretrained_tags_by_model(model)) or "none"


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Suppress the log messages and progress bars of model libraries while they load."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with redirect_stderr(StringIO()):  # progress bars
            yield
    finally:
        logging.disable(before)


def _download(model: str, tag: str, source: dict[str, Any]) -> Path:
    """Return the file of a tag's weights from the cache, or download it from its hub or server."""
    import open_clip

    repository, _, file_name = source.get("hf_hub", "").rpartition("/")
    names = [file_name] if file_name else ["open_clip_model.safetensors", "open_clip_pytorch_model.bin"]
    try:
        if repository:
            return hub_file(repository, names)
        return Path(open_clip.download_pretrained(source))
    except SourceError as error:
        reason = str(error)
    except Exception as error:  # the types depend on the version of open_clip
        reason = f"{source['url']} cannot be downloaded: {error}"
    raise SourceError(f"the weights {tag} of {model} are not on this machine, and {reason}")
