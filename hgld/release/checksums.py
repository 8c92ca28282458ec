"""The checksums of a release, which also tell the files that hgld wrote from others."""

from __future__ import annotations

from pathlib import Path

from hgld.errors import InputError, indented_list
from hgld.io.files import sha256_of

CHECKSUMS = "checksums.sha256"


def write_checksums(folder: Path) -> None:
    """Write the SHA-256 of every file of a folder, in the format of ``sha256sum``."""
    lines = [f"{sha256_of(folder / name)}  {name}\n" for name in files_in(folder)]
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def verify_checksums(folder: Path) -> tuple[list[str], list[str]]:
    """Compare the files of a release with its checksums.

    Returns:
        The files without a checksum, and the files with one that are changed or missing.

    Raises:
        InputError: The folder has no checksums, or they cannot be parsed.
    """
    path = folder / CHECKSUMS
    if not path.is_file():
        raise InputError(f"{folder}: no {CHECKSUMS}, so not a release")
    listed = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        digest, separator, name = line.partition("  ")
        if not separator:
            raise InputError(f'{path}: line {number}: expected "<SHA-256>  <file>", found "{line}"')
        listed[name] = digest
    present = files_in(folder)
    unlisted = [name for name in present if name not in listed and name != CHECKSUMS]
    changed = [name for name, digest in listed.items() if name not in present or sha256_of(folder / name) != digest]
    return unlisted, changed


def require_replaceable(folder: Path, *, discard_edits: bool) -> None:
    """Check that replacing a folder loses only files that hgld wrote.

    Args:
        folder: Folder to replace; it need not exist.
        discard_edits: Whether files of an earlier release that were edited since may be lost.

    Raises:
        InputError: The folder is a file, or contains files that hgld did not write.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not folder.is_dir():
        raise InputError(f"{folder}: a file of this name exists; expected a folder, or nothing")
    if not (folder / CHECKSUMS).is_file():
        raise InputError(f"{folder}: not written by hgld release (no {CHECKSUMS}); choose another folder")
    unlisted, changed = verify_checksums(folder)
    if unlisted:
        raise InputError(
            f"{folder}: contains files not written by hgld release; move them away:\n{indented_list(unlisted)}"
        )
    if changed and not discard_edits:
        raise InputError(
            f"{folder}: files changed since hgld release wrote them; keep copies elsewhere, then run again with "
            f"`force`:\n{indented_list(changed)}"
        )


def same_checksums(first: Path, second: Path) -> bool:
    """Return whether two folders have the same checksums; False if the second has none."""
    return (second / CHECKSUMS).is_file() and (second / CHECKSUMS).read_bytes() == (first / CHECKSUMS).read_bytes()


def files_in(folder: Path) -> list[str]:
    """Return the paths of all files of a folder, relative to it, sorted."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
