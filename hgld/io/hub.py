"""Files of the Hugging Face hub, which may not answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hgld.errors import SourceError

_TIMEOUT_S = 10


def hub_file(repository: str, names: Sequence[str]) -> Path:
    """The first of some files that a repository has: from the cache, else fetched.

    Args:
        repository: such as ``timm/resnet50.tv_in1k``.
        names: of the files, the one that is wanted most first.

    Raises:
        SourceError: none is in the cache, and the hub does not answer or has none.
    """
    import requests
    from huggingface_hub import hf_hub_download, hf_hub_url
    from huggingface_hub.errors import LocalEntryNotFoundError

    for name in names:
        try:
            return Path(hf_hub_download(repository, name, local_files_only=True))
        except LocalEntryNotFoundError:
            continue
    try:
        for name in names:
            url = hf_hub_url(repository, name)
            # One question first: the hub's own client goes on asking for a minute when nobody answers.
            answer = requests.head(url, allow_redirects=True, timeout=_TIMEOUT_S)
            if answer.ok:
                return Path(hf_hub_download(repository, name))
        answer.raise_for_status()
    except Exception as error:  # which ones the hub's client raises differs from version to version
        raise SourceError(f"{url} cannot be fetched: {error}") from error
    raise AssertionError("unreachable: raise_for_status raises when no answer was ok")
