"""Download and upload files of the Hugging Face hub, and find weights of open_clip.

If the hub cannot be reached, functions raise an error at once instead of retrying for minutes.

The hub's own variables apply: ``HF_TOKEN`` for the token, ``HF_ENDPOINT`` for another server of the
same protocol, ``HF_HOME`` for the cache.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hgld.errors import ConfigurationError, SourceError
from hgld.version import __version__

if TYPE_CHECKING:
    from huggingface_hub import HfApi

#: Content of a repository.
Kind = Literal["model", "dataset"]

_TIMEOUT_S = 10
#: Files that the hub adds to a new repository.
_OF_THE_HUB = {".gitattributes", "README.md"}
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9_][A-Za-z0-9_.-]*")


def hub_file(repository: str, names: Sequence[str]) -> Path:
    """Return the path of the first file that the cache has, or download the first that the hub has.

    Args:
        repository: Name of the repository, ``owner/name``.
        names: Names of alternative files.

    Raises:
        SourceError: No file is in the cache, and the hub has no such file or cannot be reached.
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
            # The hub's client retries for a minute if no server answers, so send one request first.
            response = requests.head(url, allow_redirects=True, timeout=_TIMEOUT_S)
            if response.ok:
                return Path(hf_hub_download(repository, name))
        response.raise_for_status()
    except Exception as error:  # the exceptions of the hub's client differ between versions
        raise SourceError(f"{url} cannot be downloaded: {error}") from error
    raise AssertionError("unreachable: raise_for_status raises when no response was ok")


def hub_snapshot(
    repository: str, names: Sequence[str], revision: str | None = None, *, kind: Kind = "model"
) -> Path:
    """Return a folder with files of a repository, all of one commit.

    Args:
        repository: Name of the repository, ``owner/name``.
        names: Names of the files; the folder lacks files that the repository lacks.
        revision: Branch, tag or commit. Default: the present commit of the main branch, or the
            commit of the last download if the hub cannot be reached.
        kind: Content of the repository.

    Raises:
        ConfigurationError: The name is malformed.
        SourceError: The repository or revision does not exist, the token may not read it, or the
            hub cannot be reached and the files are not in the cache.
    """
    require_repository_name(repository)
    try:
        return Path(
            _api().snapshot_download(
                repository,
                repo_type=kind,
                revision=revision,
                allow_patterns=list(names),
                etag_timeout=_TIMEOUT_S,
            )
        )
    except Exception as error:  # see hub_file
        revision_text = f" of the revision {revision}" if revision else ""
        raise SourceError(
            f"{repository}: files{revision_text} cannot be downloaded: {_reason(error)}"
        ) from error


def require_repository_name(repository: str) -> None:
    """Raise a ConfigurationError if a text is not the name of a repository, ``owner/name``."""
    if not _REPOSITORY.fullmatch(repository):
        raise ConfigurationError(
            f'"{repository}" is no name of a repository; expected owner/name, of letters, digits, "-", "_" and "."'
        )


def require_replaceable_repository(
    repository: str,
    what: str,
    is_ours: Callable[[Sequence[str]], bool],
    *,
    kind: Kind = "model",
    private: bool = False,
    force: bool = False,
) -> list[str]:
    """Check that an upload may replace the files of a repository, and return their names.

    Args:
        repository: Name of the repository, which need not exist.
        what: What is uploaded, such as "a model of hgld", for error messages.
        is_ours: Returns whether files with these names are an earlier upload of the same kind.
        kind: Content of the repository.
        private: The repository must not be public.
        force: Files of other origin may be replaced.

    Raises:
        ConfigurationError: The name is malformed, or the repository holds something else or is
            public.
        SourceError: The hub cannot be reached, or refuses the token.
    """
    from huggingface_hub.errors import RepositoryNotFoundError

    require_repository_name(repository)
    api = _api()
    request_info = api.dataset_info if kind == "dataset" else api.model_info
    try:
        info = request_info(repository, timeout=_TIMEOUT_S)
    except RepositoryNotFoundError:
        return []
    except Exception as error:  # see hub_file
        raise SourceError(f"{repository}: {_reason(error)}") from error
    names = [file.rfilename for file in info.siblings or ()]
    if private and not info.private:
        raise ConfigurationError(
            f"{repository}: exists and is public, which `private` does not change; change it on its page, or name "
            "another one"
        )
    may_replace = force or set(names) <= _OF_THE_HUB or is_ours(names)
    if not may_replace:
        raise ConfigurationError(
            f"{repository}: exists and holds something else than {what} ({', '.join(names[:5])}); name another one, "
            "or replace its files with `force`"
        )
    return names


def upload_folder(
    folder: Path,
    repository: str,
    *,
    private: bool,
    message: str,
    replaces: Sequence[str],
    kind: Kind = "model",
    tag: str | None = None,
) -> str:
    """Upload the files of a folder in one commit, and return the URL of the commit.

    The repository is created if it does not exist. An interrupted upload changes no file of it.

    Args:
        folder: Folder to upload.
        repository: Name of the repository, ``owner/name``.
        private: Create the repository as private.
        message: Message of the commit.
        replaces: Files that are removed from the repository if the folder lacks them.
        kind: Content of the repository.
        tag: Tag of the commit. Default: no tag.

    Raises:
        SourceError: The hub cannot be reached or refuses the upload, or the upload was cut off.
    """
    api = _api()
    outcome = "No file of the repository was changed"
    try:
        api.create_repo(repository, repo_type=kind, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repository,
            repo_type=kind,
            folder_path=folder,
            commit_message=message,
            delete_patterns=list(replaces),
        )
        if tag is not None:
            outcome = f"Its files are there, but not the tag {tag}; run the same command again"
            api.create_tag(repository, repo_type=kind, tag=tag, revision=commit.oid)
    except Exception as error:  # see hub_file
        raise SourceError(
            f"{repository}: cannot be uploaded: {_reason(error)}. {outcome}"
        ) from error
    return str(commit.commit_url)


def repository_tags(repository: str, kind: Kind = "model") -> list[str]:
    """Return the tags of a repository.

    Raises:
        SourceError: The repository does not exist, or the hub cannot be reached.
    """
    try:
        return [tag.name for tag in _api().list_repo_refs(repository, repo_type=kind).tags]
    except Exception as error:  # see hub_file
        raise SourceError(f"{repository}: {_reason(error)}") from error


def _api() -> HfApi:
    from huggingface_hub import HfApi

    return HfApi(library_name="hgld", library_version=__version__)


def _reason(error: Exception) -> str:
    """Return in one line why a request failed and what the user can do."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    kind = type(error).__name__
    if kind == "RevisionNotFoundError":
        return "there is no such revision"
    if kind == "GatedRepoError":
        return "its owner grants access on request; ask for it on its page, and set HF_TOKEN"
    if kind == "RepositoryNotFoundError":
        return "there is no such repository, or it is private; set HF_TOKEN to a token that may read it"
    if status in (401, 403):
        return f"the hub refuses access ({status}); set HF_TOKEN to a token with write access to it"
    if kind in ("LocalEntryNotFoundError", "IncompleteSnapshotError"):
        return "the hub cannot be reached, and they are not in the cache"
    cause: BaseException = error
    if isinstance(error.__cause__, Exception):
        # The error itself is "Error while uploading ...".
        cause = error.__cause__
    return " ".join(str(cause).split()).removesuffix(".") or type(cause).__name__


def open_clip_weights(model: str, pretrained: str) -> tuple[Path, dict[str, Any]]:
    """Return the file of weights, downloaded if necessary, and open_clip's configuration of the tag.

    Args:
        model: Name of a model of open_clip.
        pretrained: A tag of the model; or the path of a file, for which the configuration is empty.

    Raises:
        ConfigurationError: open_clip has no such model, or ``pretrained`` is neither a file nor a
            tag of the model.
        SourceError: The weights are not on this machine and cannot be downloaded.
    """
    open_clip_architecture(model)
    path = Path(pretrained)
    if path.is_file():
        return path, {}
    configuration = tag_configuration(model, pretrained)
    return _download(model, pretrained, configuration), configuration


def open_clip_architecture(model: str) -> dict[str, Any]:
    """Return open_clip's configuration of a model; raise a ConfigurationError for unknown models."""
    import open_clip

    if model not in open_clip.list_models():
        raise ConfigurationError(
            f'open_clip has no model "{model}"; open_clip.list_models() lists its models'
        )
    return open_clip.get_model_config(model)  # type: ignore[no-any-return]


def tag_configuration(model: str, tag: str) -> dict[str, Any]:
    """Return open_clip's configuration of a tag; raise a ConfigurationError for unknown tags."""
    import open_clip

    configuration: dict[str, Any] = open_clip.get_pretrained_cfg(model, tag)
    if not configuration:
        raise ConfigurationError(
            f'"{tag}" is neither a file nor a tag of the open_clip model {model} (its tags: {tags_of(model)})'
        )
    return configuration


def tags_of(model: str) -> str:
    """Return the tags of a model's weights as a text, separated by commas."""
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
    names = ["open_clip_model.safetensors", "open_clip_pytorch_model.bin"]
    if file_name:
        names = [file_name]
    try:
        if repository:
            return hub_file(repository, names)
        return Path(open_clip.download_pretrained(source))
    except SourceError as error:
        reason = str(error)
    except Exception as error:  # the types depend on the version of open_clip
        reason = f"{source['url']} cannot be downloaded: {error}"
    raise SourceError(f"the weights {tag} of {model} are not on this machine, and {reason}")
