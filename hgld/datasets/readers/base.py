"""The interface of readers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hgld.datasets.manifest import Manifest


@dataclass(frozen=True)
class ReaderResult:
    """The images of a dataset.

    Args:
        manifest: The images with their splits and labels.
        excluded: Number of images that are not in the manifest, by reason.
        other_files: Number of files among the images that are none, by suffix.
    """

    manifest: Manifest
    excluded: Mapping[str, int] = field(default_factory=dict)
    other_files: Mapping[str, int] = field(default_factory=dict)


class Reader(Protocol):
    """Reads a dataset in its published layout.

    A reader is a frozen dataclass whose fields are the settings that affect its result. Each field is an option of
    the reader's command; the ``Args:`` section of the class docstring has its help text.
    """

    def files(self, root: Path) -> Mapping[str, Path]:
        """Return the files that define the images and their labels, by their role in the layout.

        A folder or a tar file stands for the images that are in it.

        Args:
            root: Folder of the dataset.
        """

    def read(self, root: Path) -> ReaderResult:
        """Read the images of a dataset; readers of published layouts do not check whether the image files exist.

        Args:
            root: Folder of the dataset.

        Raises:
            InputError: A file is missing or malformed.
        """
