"""Write folders, and sets of files in a folder, that appear whole even if the process is killed.

Callers hold :func:`hgld.io.locks.exclusive_lock` for the folder, so what they find under the names of drafts was left
by a run that was killed, and never belongs to a run in progress.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hgld.errors import ConflictError
from hgld.io.files import atomic_write, sha256_of

#: File that states what the files of a complete set replace; it is written last.
_REPLACED = "replaced.json"


@contextmanager
def folder_draft(out: Path) -> Iterator[Path]:
    """Yield an empty folder beside ``out``, to be filled and given to :func:`replace_folder`; else it is removed.

    Drafts of runs that were killed are removed, and a folder that such a run was about to replace is restored.
    """
    draft, earlier = _draft_of(out), _earlier_of(out)
    if earlier.exists() and (not out.exists() or (out.is_dir() and not any(out.iterdir()))):
        earlier.replace(out)
    for leftover in (draft, earlier):
        shutil.rmtree(leftover, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def replace_folder(draft: Path, out: Path) -> None:
    """Rename a draft to ``out``; an existing folder is removed afterwards, or restored if renaming fails."""
    earlier = _earlier_of(out)
    if out.exists():
        out.replace(earlier)
    try:
        draft.replace(out)
    except OSError:
        if earlier.exists():
            earlier.replace(out)
        raise
    shutil.rmtree(earlier, ignore_errors=True)


def file_digests(folder: Path, names: Iterable[str]) -> dict[str, str | None]:
    """Return the SHA-256 of files of a folder by name; None for those that do not exist."""
    return {name: sha256_of(folder / name) if (folder / name).exists() else None for name in names}


@contextmanager
def replace_together(folder: Path, replaced: Mapping[str, str | None]) -> Iterator[Path]:
    """Yield a folder for new files that replace those of ``folder`` together when the block succeeds.

    If the process is killed, all files of a new folder appear or none. In a folder that exists, the files are renamed
    one by one once all of them are written; what is missing after a kill is done by :func:`finish_replacing`.

    Args:
        folder: Folder of the files.
        replaced: Names of the files, with the digests of what they replace (:func:`file_digests`).

    Raises:
        ConflictError: A file was changed since its digest was taken; nothing is replaced.
    """
    staging = _staging_in(folder) if folder.is_dir() else _draft_of(folder)
    staging.mkdir(parents=True)
    try:
        yield staging
        if folder.is_dir():
            _require_unchanged(folder, replaced)
            with atomic_write(staging / _REPLACED) as draft:
                draft.write_text(json.dumps(replaced), encoding="utf-8")
            finish_replacing(folder)
        else:
            staging.replace(folder)
    finally:
        if not (staging / _REPLACED).exists():
            shutil.rmtree(staging, ignore_errors=True)


def finish_replacing(folder: Path) -> None:
    """Finish what a killed run began to replace in a folder, and remove the files of one that did not get so far.

    Raises:
        ConflictError: A file that remains to be replaced was changed after the kill.
    """
    staging = _staging_in(folder)
    if (staging / _REPLACED).exists():
        for name, digest in json.loads((staging / _REPLACED).read_text(encoding="utf-8")).items():
            if not (staging / name).exists():
                continue
            if file_digests(folder, [name]) != {name: digest}:
                raise ConflictError(
                    f"{folder / name}: changed after a run that was interrupted when about to replace it by "
                    f"{staging / name}; copy what that file lacks into it and move it to {folder / name}, then run "
                    "again"
                )
            (staging / name).replace(folder / name)
        (staging / _REPLACED).unlink()
    for leftover in (staging, _draft_of(folder)):
        shutil.rmtree(leftover, ignore_errors=True)


def _require_unchanged(folder: Path, digests: Mapping[str, str | None]) -> None:
    for name, digest in file_digests(folder, digests).items():
        if digest != digests[name]:
            raise ConflictError(
                f"{folder / name}: changed while its new version was written; run the same command again"
            )


def _draft_of(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.part")


def _staging_in(folder: Path) -> Path:
    return folder / f".{folder.name}.part"


def _earlier_of(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.old")
