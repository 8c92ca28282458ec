"""``hgld push-dataset``: publish a release as a repository of the Hugging Face hub, with a tag for each version."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.io.hub import hub_snapshot, repository_tags, require_replaceable_repository, upload_folder
from hgld.release.facts import CROISSANT
from hgld.release.publish import CHECKSUMS, read_checksums, verify_checksums


@dataclass(frozen=True)
class PushDatasetSummary:
    """Result of publishing a release: its tag, such as ``v1.0.0``, its files, and the URL of the commit."""

    name: str
    tag: str
    files: int
    n_bytes: int
    url: str


def push_dataset(
    folder: Path, repository: str, *, private: bool = False, force: bool = False
) -> PushDatasetSummary | None:
    """Upload a release to the Hugging Face hub in one commit, and tag it with its version.

    A version that is tagged never changes. Files of an earlier release that this one lacks are removed.

    Args:
        folder: Folder from hgld release.
        repository: Repository of the Hugging Face hub to upload to; it is created if there is none.
        private: Create a private repository.
        force: Replace files of something else than a release of hgld.

    Returns:
        Counts of the release, or None if it is published already.

    Raises:
        ConfigurationError: The repository holds something else, or other files of this version; or a public one was
            to be private.
        InputError: The folder is no release, or was changed since.
        SourceError: The hub cannot be reached or refuses the upload.
    """
    if different := [name for names in verify_checksums(folder) for name in names]:
        raise InputError(
            f"{folder}: files are not those of hgld release; run it again, with `force` to discard edits:\n"
            f"{indented_list(different)}"
        )
    metadata = json.loads((folder / CROISSANT).read_text(encoding="utf-8"))
    tag = f"v{metadata['version']}"
    existing = require_replaceable_repository(
        repository,
        "a release of hgld",
        lambda names: {CHECKSUMS, CROISSANT} <= {*names},
        kind="dataset",
        private=private,
        force=force,
    )
    if existing and tag in repository_tags(repository, "dataset"):
        published = hub_snapshot(repository, [CHECKSUMS], tag, kind="dataset") / CHECKSUMS
        if published.is_file() and published.read_bytes() == (folder / CHECKSUMS).read_bytes():
            return None
        raise ConfigurationError(
            f"{repository}: {tag} is published with other files; raise the version in release.yaml and release again"
        )
    earlier = []
    if CHECKSUMS in existing:
        earlier = [*read_checksums(hub_snapshot(repository, [CHECKSUMS], kind="dataset") / CHECKSUMS)]
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    name = f"{metadata['name']} {metadata['version']}"
    url = upload_folder(folder, repository, kind="dataset", private=private, message=name, replaces=earlier, tag=tag)
    return PushDatasetSummary(name, tag, len(sizes), sum(sizes), url)
