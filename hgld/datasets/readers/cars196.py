"""Cars196 (Krause et al., 2013)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hgld.datasets.readers.base import ReaderResult
from hgld.datasets.readers.image_files import image_file_manifest
from hgld.datasets.readers.text_lists import parse_ranges
from hgld.errors import InputError

#: Class numbers of the models of each type, from Chang et al. (Your "Flamingo" is My "Bird", CVPR 2021), as used by
#: the authors of H-GLDv2. Most model names contain the type.
_MODELS = {
    "cab": "53-54 65 69-70 74-75 86-87 90-91 106 111 113-114 122 124-125",
    "convertible": "8 10 12 21 27 31 36 38-39 45 55 59 77 80-81 100 102-103 107 123 157-158 161 175 179 196",
    "coupe": "6 9 11 13-15 22 25 28 34 42-43 46 56-57 66 72 93 99 101 104 112 128 141 144 150-153 160 163 171-172 "
    "180",
    "hatchback": "7 19 98 130 139 168 170 178 183 190-193",
    "minivan": "60 78 85 108 126-127 174",
    "sedan": "2-5 16-17 20 23-24 26 29 35 40-41 44 47 49 51 61 63 67 73 79 96-97 105 115 117 129 134-138 140 156 "
    "162 164-165 167 173 176-177 181-182 184-185 187-188 194",
    "SUV": "1 32-33 37 48 50 52 58 62 68 76 89 94-95 109-110 118 120-121 131-133 142-143 145-149 154-155 159 186 "
    "189 195",
    "van": "64 71 88 119 166 169",
    "wagon": "18 30 82-84 92 116",
}
_TYPE = {number: kind for kind, models in _MODELS.items() for number in parse_ranges(models)}


@dataclass(frozen=True)
class Cars196:
    """Reader of ``cars_annos.mat``; the first 98 models are for training. The levels are model and type.

    The file has ``annotations`` with ``relative_im_path`` and ``class``, and ``class_names``.
    """

    def files(self, root: Path) -> Mapping[str, Path]:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        return {"annotations": root / "cars_annos.mat"}

    def read(self, root: Path) -> ReaderResult:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        from scipy.io import loadmat

        (path,) = self.files(root).values()
        if not path.is_file():
            raise InputError(f"{path}: no such file; is this the folder of the dataset?")
        try:
            contents = loadmat(path, simplify_cells=True)
            names = [str(name) for name in contents["class_names"]]
            paths = [str(image["relative_im_path"]) for image in contents["annotations"]]
            classes = [int(image["class"]) for image in contents["annotations"]]
            levels = {"model": [names[n - 1] for n in classes], "type": [_TYPE[n] for n in classes]}
        except (ValueError, LookupError, TypeError, NotImplementedError) as error:
            raise InputError(
                f"{path}: expected annotations with relative_im_path and class, and class_names of {len(_TYPE)} "
                f"models ({type(error).__name__}: {error})"
            ) from error
        splits = ["train" if number <= len(_TYPE) // 2 else "test" for number in classes]
        return ReaderResult(image_file_manifest(root, paths, splits, levels))
