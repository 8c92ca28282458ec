"""Replace a folder, or several of its files, without a mixture of old and new files after a kill.

Callers hold :func:`hgld.io.locks.exclusive_lock` for the folder, so a draft that exists was left by
a run that was killed, and never belongs to a run in progress.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hgld.errors import ConflictError
from hgld.io.files import atomic_write, read_json, sha256_of

#: File that holds the digests of the files to be replaced; it is written when all new files are
#: complete.
_REPLACED = "replaced.json"


@contextmanager
def folder_draft(out: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``out``; it is deleted unless :func:`replace_folder` moves it.

    Drafts of runs that were killed are removed, and a folder that such a run was about to replace
    is restored.
    """
    draft = _hidden_folder_beside(out, "part")
    earlier = _hidden_folder_beside(out, "old")
    is_empty = out.is_dir() and not any(out.iterdir())
    if earlier.exists() and (is_empty or not out.exists()):
        earlier.replace(out)
    shutil.rmtree(draft, ignore_errors=True)
    shutil.rmtree(earlier, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def replace_folder(draft: Path, out: Path) -> None:
    """Rename a draft to ``out`` and remove the folder that it replaces.

    If renaming fails, the old folder is restored.
    """
    earlier = _hidden_folder_beside(out, "old")
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
    """Return the SHA-256 of files of a folder by name; None if a file does not exist."""
    digests: dict[str, str | None] = {}
    for name in names:
        path = folder / name
        digests[name] = sha256_of(path) if path.exists() else None
    return digests


@contextmanager
def replace_together(folder: Path, replaced: Mapping[str, str | None]) -> Iterator[Path]:
    """Yield a temporary folder whose files replace files of ``folder`` when the block succeeds.

    A new folder appears as a whole, also if the process is killed. In a folder that exists, the new
    files are renamed one by one after all of them are written; if the process is killed meanwhile,
    :func:`finish_replacing` renames the remaining files.

    Args:
        folder: The folder of the files.
        replaced: Digest of the present version of each file by name (:func:`file_digests`).

    Raises:
        ConflictError: A file was changed since its digest was taken; no file is replaced.
    """
    if folder.is_dir():
        staging = _staging_in(folder)
    else:
        staging = _hidden_folder_beside(folder, "part")
    staging.mkdir(parents=True)
    try:
        yield staging
        if folder.is_dir():
            for name, digest in file_digests(folder, replaced).items():
                if digest != replaced[name]:
                    raise ConflictError(
                        f"{folder / name}: changed while its new version was written; run the same command again"
                    )
            with atomic_write(staging / _REPLACED) as draft:
                draft.write_text(json.dumps(replaced), encoding="utf-8")
            finish_replacing(folder)
        else:
            staging.replace(folder)
    finally:
        if not (staging / _REPLACED).exists():
            shutil.rmtree(staging, ignore_errors=True)


def finish_replacing(folder: Path) -> None:
    """Finish the replacement that a killed run had begun, or remove its incomplete new files.

    Raises:
        ConflictError: A file that remains to be replaced was changed after the kill.
    """
    staging = _staging_in(folder)
    replaced = staging / _REPLACED
    if replaced.exists():
        for name, digest in read_json(replaced).items():
            old = folder / name
            new = staging / name
            if not new.exists():
                continue
            if file_digests(folder, [name]) != {name: digest}:
                raise ConflictError(
                    f"{old}: changed after a run that was interrupted when about to replace it by {new}; copy what "
                    f"that file lacks into it and move it to {old}, then run again"
                )
            new.replace(old)
        replaced.unlink()
    shutil.rmtree(staging, ignore_errors=True)
    shutil.rmtree(_hidden_folder_beside(folder, "part"), ignore_errors=True)


def _hidden_folder_beside(folder: Path, suffix: str) -> Path:
    return folder.with_name(f".{folder.name}.{suffix}")


def _staging_in(folder: Path) -> Path:
    return folder / f".{folder.name}.part"
