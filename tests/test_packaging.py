"""A wheel contains the files that a checkout has beside the package."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from hgld import resources
from hgld.errors import ConfigurationError
from tests.child_processes import run_child, run_script

CHECKOUT = Path(__file__).parent.parent
#: Folders beside the package, and where a wheel has them below hgld/_resources.
FOLDERS = {
    "annotations": "annotations",
    "data/sample": "sample",
    "data/subsets": "subsets",
    "pipelines/benchmarks": "pipelines/benchmarks",
}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", str(folder), str(CHECKOUT)]
    run_child([*build, "--no-build-isolation"])
    (wheel,) = folder.glob("hgld-*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


def test_wheel_contains_annotations_sample_and_presets(unpacked: Path) -> None:
    inside = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    for folder, where in FOLDERS.items():
        files = [path for path in (CHECKOUT / folder).rglob("*") if path.is_file()]
        assert {
            f"hgld/_resources/{where}/{path.relative_to(CHECKOUT / folder).as_posix()}" for path in files
        } <= inside
    assert {"hgld/py.typed", "hgld/templates/label_map.html", "hgld/templates/review/script/page.js"} <= inside
    assert not any(name.startswith(("tests/", "benchmarks/", "hgld/tests/")) for name in inside)


def test_installed_wheel_finds_its_files(unpacked: Path) -> None:
    script = (
        "from hgld.resources import annotation_file, sample_file, subset_file\n"
        "from hgld.io.preset_files import comparison_file, training_file\n"
        "print(annotation_file('taxonomy.csv'), sample_file('train_label_to_category.csv'))\n"
        "print(training_file('happier'), training_file('h-gldv2/happier'), comparison_file('own_images'))\n"
        "print(subset_file('washington/train.csv'))"
    )
    assert run_script(script, cwd=unpacked).count(str(unpacked)) == 6


def test_missing_file_is_reported() -> None:
    with pytest.raises(ConfigurationError, match=r"absent\.csv is part of hgld"):
        resources.annotation_file("absent.csv")
