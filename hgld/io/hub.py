"""Files of the Hugging Face hub, with an error instead of a long wait where it cannot be reached."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hgld.errors import SourceError

_TIMEOUT_S = 10


def hub_file(repository: str, names: Sequence[str]) -> Path:
    """Return the path of the first file that a repository has, from the cache or downloaded.

    Args:
        repository: Name of the repository, such as ``timm/resnet50.tv_in1k``.
        names: Names of alternative files, the preferred one first.

    Raises:
        SourceError: No file is in the cache, and the hub has none or cannot be reached.
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
            # The hub's client retries for a minute where nobody answers, so send one request first.
            response = requests.head(url, allow_redirects=True, timeout=_TIMEOUT_S)
            if response.ok:
                return Path(hf_hub_download(repository, name))
        response.raise_for_status()
    except Exception as error:  # the exceptions of the hub's client differ between versions
        raise SourceError(f"{url} cannot be downloaded: {error}") from error
    raise AssertionError("unreachable: raise_for_status raises when no response was ok")
