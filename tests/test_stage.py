"""Every stage that reads files and writes tables, under everything that can go wrong with its files.

The tables themselves are tested in the folder of each stage's package.
"""

import re
import shutil
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hgld import tables
from hgld.completion import complete_file
from hgld.completion.inputs import CompletionFiles
from hgld.datasets.manifest_files import leave_out_images, make_manifest
from hgld.datasets.readers.own_images import LabelTable
from hgld.errors import BusyError, ConfigurationError, HgldError, InputError
from hgld.gldv2.image_index import index_images
from hgld.hierarchy import build_file
from hgld.io.locks import exclusive_lock
from hgld.labels import ClusterConfig, EmbedConfig, clean_file, cluster_file, embed_file, suggest_file
from hgld.labels.plain_labels import label_file
from hgld.labels.settings import PlainConfig
from hgld.resources import annotation_file
from hgld.taxonomy.decisions import write_decisions
from tests.child_processes import run_child, single_thread_environment
from tests.completion.landmark_photographs import Landmark, labelled_landmarks, write_landmarks
from tests.datasets.pictures import save_pictures
from tests.kill_points import kill_points
from tests.labels.label_tables import PROVENANCE, decision, scraped_table
from tests.test_storage import mounted

CHECKOUT = Path(__file__).parent.parent


#: A file of the inputs, or several that are one argument.
Names = str | list[str]


@dataclass(frozen=True)
class Case:
    """A stage with small inputs, which it gets as files in this order, before the output, the settings and keywords.

    Args:
        function: The stage.
        files: Its files by position.
        outputs: Names of its outputs, the tables first.
        keywords: Further files by keyword.
        config: Its settings.
    """

    function: Callable[..., object]
    files: Sequence[Names]
    outputs: Sequence[str]
    keywords: Mapping[str, Names] = field(default_factory=dict)
    config: object = None

    @property
    def inputs(self) -> list[str]:
        """Names of the files without which the stage cannot run."""
        names = [*self.files, *self.keywords.values()]
        return [name for each in names for name in ([each] if isinstance(each, str) else each) if name != "."]

    def run(self, folder: Path, out: Path, force: bool) -> object:
        """Run the stage on a folder of inputs and another one for outputs."""

        def paths(names: Names) -> Path | list[Path]:
            return folder / names if isinstance(names, str) else [folder / name for name in names]

        further = [] if self.config is None else [self.config]
        keywords = {key: paths(names) for key, names in self.keywords.items()}
        return self.function(*map(paths, self.files), out / self.outputs[0], *further, **keywords, force=force)


def run_complete(tree: Path, npy: Path, ids: Path, images: Path, none: Path, out: Path, force: bool) -> object:
    return complete_file(CompletionFiles(tree, [npy], [images], none, None), out, force=force)


def run_manifest(labels: Path, out: Path, force: bool) -> object:
    return make_manifest(LabelTable(labels, "class"), labels.with_name("images"), out, force=force)


CASES = {
    "clean": Case(
        clean_file, [["scraped.parquet"]], ["clean.parquet", "removed.parquet"], {"irrelevant": "irrelevant.csv"}
    ),
    "labels": Case(label_file, ["plain.csv"], ["plain.parquet", "plain.variants.csv"], config=PlainConfig("label")),
    "embed": Case(embed_file, ["clean.parquet"], ["labels.parquet"], config=EmbedConfig(encoder="ngrams")),
    "cluster": Case(
        cluster_file,
        ["labels.parquet"],
        ["clusters.parquet", "clusters.png", "clusters.html"],
        config=ClusterConfig(2, 2),
    ),
    "suggest": Case(
        suggest_file,
        ["clusters.parquet"],
        ["suggested.parquet"],
        {
            "embeddings": "labels.parquet",
            "taxonomy": "taxonomy.csv",
            "vocabulary": ["vocabulary.csv"],
            "decisions": ["decisions.csv"],
        },
    ),
    "build": Case(
        lambda clean, out, **others: build_file(clean, out, csv=out.parent, **others),
        ["clean.parquet"],
        ["hierarchy.parquet", "train_label_to_hierarchical.csv"],
        {"decisions": "decisions.csv", "taxonomy": "taxonomy.csv"},
    ),
    "complete": Case(
        run_complete,
        ["hierarchy.parquet", "photographs.npy", "photographs.ids.txt", "train.csv", "none.parquet"],
        ["completed.parquet"],
    ),
    "manifest": Case(run_manifest, ["labels.csv"], ["manifest.parquet"]),
    "manifest leave-out": Case(leave_out_images, ["manifest.parquet", "copies.csv"], ["kept.parquet"]),
    "index-images": Case(index_images, ["."], ["images.parquet"]),
}
EVERY_CASE = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def write_inputs(folder: Path) -> None:
    landmarks = [[("Q16970", "church building")], [("Q23397", "lake")], [("Q12280", "bridge")], []]
    tables.write_table(folder / "scraped.parquet", tables.SCRAPED, scraped_table(landmarks), PROVENANCE)
    (folder / "irrelevant.csv").write_text("item,label,reason\nQ570116,tourist attraction,says nothing\n")
    for name in ("taxonomy", "vocabulary"):
        shutil.copy(annotation_file(f"{name}.csv"), folder)
    (folder / "plain.csv").write_text("label\nChurch\nchurches\nlake\n")
    groups = {"church building": "church", "lake": "lake", "bridge": "bridge"}
    write_decisions(folder / "decisions.csv", [decision(*value, groups[value[1]]) for (value,) in landmarks[:3]])
    for stage in ("clean", "embed", "cluster"):
        CASES[stage].run(folder, folder, True)
    labelled = [*labelled_landmarks(20), Landmark("train", 20, None, [[1.0] * 8])]
    files = write_landmarks(folder / "photographs", labelled, name="photographs.npy")
    for path in (folder / "photographs").iterdir():
        if path.name != "clean.parquet":
            path.rename(folder / path.name.replace("removed", "none"))
    assert files.clean is None
    save_pictures(folder / "images", *[f"{number}.jpg" for number in range(12)])
    (folder / "labels.csv").write_text("path,class\n" + "".join(f"{n}.jpg,c{n // 2}\n" for n in range(12)))
    CASES["manifest"].run(folder, folder, True)
    (folder / "copies.csv").write_text("id,leave_out\n1.jpg,true\n2.jpg,false\n")
    with tarfile.open(folder / "images.tar", "w") as archive:
        archive.add(folder / "images", ".")


@pytest.fixture(scope="module")
def written_inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stages")
    write_inputs(folder)
    return folder


@pytest.fixture
def inputs(written_inputs: Path, tmp_path: Path) -> Path:
    """A folder of the inputs of all stages, which a test may change."""
    return shutil.copytree(written_inputs, tmp_path / "in")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def change(path: Path) -> None:
    """Change the bytes of a file, but nothing that a stage reads from it."""
    if path.suffix == ".parquet":
        pq.write_table(pq.read_table(path), path, compression="gzip")
    else:
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))


def test_every_stage_has_a_case() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (CHECKOUT / "hgld").rglob("*.py")]
    stages = {name for source in sources for name in re.findall(r'STAGE = Stage\(\s*"([^"]+)"', source)}
    assert stages == CASES.keys()


@EVERY_CASE
def test_files_are_rewritten_only_after_a_change(case: Case, inputs: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    assert case.run(inputs, out, False) is not None
    before = contents(out)
    assert before.keys() == {*case.outputs}
    assert case.run(inputs, out, False) is None
    assert case.run(inputs, out, True) is not None
    assert contents(out) == before, "the same work gives the same bytes"
    for name in case.outputs:
        (out / name).unlink()
        assert case.run(inputs, out, False) is not None or name.endswith("hierarchical.csv")
        assert contents(out) == before
    for name in case.inputs:
        if name.endswith((".parquet", ".csv")) and (name, case.outputs[0]) != (
            "clusters.parquet",
            "suggested.parquet",
        ):
            change(inputs / name)
            assert case.run(inputs, out, False) is not None, name
            assert case.run(inputs, out, False) is None, name
            assert contents(out).keys() == before.keys()


@EVERY_CASE
@pytest.mark.parametrize("force", [False, True])
def test_files_of_other_programs_are_never_replaced(case: Case, inputs: Path, tmp_path: Path, force: bool) -> None:
    for name in case.outputs:
        if name.endswith((".parquet", ".csv")):
            out = tmp_path / f"{force} {name}"
            out.mkdir()
            if name.endswith(".csv"):
                (out / name).write_text("name,age,city\nada,36,London\n")
            else:
                pq.write_table(pa.table({"name": ["ada"]}), out / name)
            before = contents(out)
            with pytest.raises(ConfigurationError, match=f"{re.escape(name)}: exists, and hgld did not write it"):
                case.run(inputs, out, force)
            assert contents(out)[name] == before[name]


@EVERY_CASE
def test_missing_and_wrong_inputs_are_named_and_nothing_is_written(case: Case, inputs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for name in case.inputs:
        path = inputs / name
        whole = path.read_bytes()
        path.unlink()
        if not name.endswith(".ids.txt"):
            with pytest.raises(InputError, match=rf"{re.escape(name)}: no such file"):
                case.run(inputs, out, False)
        for content in (b"", b"no table", whole[: len(whole) // 2] if path.suffix == ".parquet" else b"\xff\xfe\x00"):
            path.write_bytes(content)
            with pytest.raises(HgldError, match=re.escape(name.removesuffix(".ids.txt"))):
                case.run(inputs, out, False)
        path.write_bytes(whole)
    assert not out.exists() or contents(out) == {}


@EVERY_CASE
def test_inputs_are_never_overwritten(case: Case, inputs: Path, tmp_path: Path) -> None:
    """The output of a stage is a link to one of its inputs."""
    before = contents(inputs)
    for name in case.inputs:
        if name in ("clusters.parquet", "photographs.npy"):  # suggest may write in place
            continue
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / case.outputs[0]).symlink_to(inputs / name)
        with pytest.raises(ConfigurationError, match="`out` is a file to read; name another one"):
            case.run(inputs, tmp_path / "out", True)
        shutil.rmtree(tmp_path / "out")
    assert contents(inputs) == before


@EVERY_CASE
def test_one_run_at_a_time_writes_an_output(case: Case, inputs: Path, tmp_path: Path) -> None:
    with exclusive_lock(tmp_path / "out" / case.outputs[0]), pytest.raises(BusyError, match="another run is writing"):
        case.run(inputs, tmp_path / "out", False)
    assert contents(tmp_path / "out") == {}


STORAGE = """
import json, os, sys
from pathlib import Path
from tests.test_stage import CASES
inputs, out, full = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "full"
if full:
    try:
        with (out / "full").open("wb", buffering=0) as stream:
            while True:
                stream.write(bytes(1024))
    except OSError:
        pass
for name, case in CASES.items():
    try:
        case.run(inputs, out, False)
    except OSError as error:
        print(f"{name}: {error.strerror}: {os.listdir(out)}")
"""


@pytest.mark.parametrize(
    ("options", "reason", "left"),
    [("size=16k", "No space left on device", "['full']"), ("ro", "Read-only file system", "[]")],
    ids=["full", "read-only"],
)
def test_storage_that_cannot_be_written(options: str, reason: str, left: str, inputs: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    kind = "full" if left != "[]" else "read-only"
    command = [*mounted(disk, options), sys.executable, "-c", STORAGE, str(inputs), str(disk), kind]
    assert run_child(command, cwd=CHECKOUT).stdout.splitlines() == [f"{name}: {reason}: {left}" for name in CASES]


KILLED = """
import sys
from pathlib import Path
from tests.test_stage import CASES, kill
kill(CASES[sys.argv[1]], Path(sys.argv[2]), Path(sys.argv[3]))
"""


def kill(case: Case, inputs: Path, out: Path) -> None:
    """Kill the stage before each change of a file: outputs are then old or new, and the next run completes."""
    old = out.with_name("old")

    def prepare() -> None:
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(old, out)

    case.run(inputs, old, False)
    former = contents(old)
    for name in case.inputs[-1:]:
        change(inputs / name)
    prepare()
    case.run(inputs, out, True)
    new = contents(out)
    number = 0
    for number in kill_points(lambda: case.run(inputs, out, True), out, prepare):
        left = {name: content for name, content in contents(out).items() if not name.startswith(".")}
        assert all(content in (former[name], new[name]) for name, content in left.items()), number
        case.run(inputs, out, not case.inputs)
        # The lock of a run that was killed after it had written all is free, and may stay until the next change.
        names = {name for name in contents(out) if not name.endswith(".lock")}
        assert names == new.keys(), (number, "the next run removes what is left")
    assert number >= 2


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_killed_stages_leave_old_or_new_tables(name: str, inputs: Path, tmp_path: Path) -> None:
    run_child(
        [sys.executable, "-c", KILLED, name, inputs, tmp_path / "out"],
        cwd=CHECKOUT,
        environment=single_thread_environment(),
    )


def test_two_outputs_are_two_files(inputs: Path, tmp_path: Path) -> None:
    out = tmp_path / "clean.parquet"
    with pytest.raises(ConfigurationError, match="`removed` and `out` cannot be the same file"):
        clean_file([inputs / "scraped.parquet"], out, removed=out)
