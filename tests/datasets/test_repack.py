import csv
import io
import shutil
import tarfile
import weakref
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from hgld.compute.parts import Part
from hgld.datasets.encoded_images import EncodedImages
from hgld.datasets.image_dataset import ImageDataset, read_images
from hgld.datasets.manifest import Manifest, read_manifest, write_manifest
from hgld.datasets.repack import RepackPlan, RepackSummary, plan_repack, repack_images
from hgld.datasets.repacked_shards import RepackedImage, RepackedShards, repack_image
from hgld.datasets.settings import RepackConfig
from hgld.datasets.transforms import ImageSettings, evaluation_transform
from hgld.errors import BusyError, ConfigurationError, InputError
from hgld.gldv2.image_index import index_images
from hgld.io.files import sha256_of
from hgld.io.images import UnreadableImageError, open_image, upright_rgb
from hgld.progress import NoProgress
from hgld.tables import IMAGES, MANIFEST, Provenance, read_table
from tests.assertions import not_none
from tests.child_processes import run_hgld_without_torch, run_script
from tests.commands import run_hgld
from tests.datasets.pictures import manifest_table, picture
from tests.gldv2.test_image_index import write_tar

SMALL = RepackConfig(size=16, shard_size=3, workers=0)
#: Pixel sizes of the images of a manifest, which are smaller than SMALL, larger, upright and oblong.
SIZES = [(20, 16), (40, 30), (16, 60), (33, 33), (12, 40), (64, 48), (17, 18)]
NAMES = [f"{'xy'[n // 4]}/{n}.{'png' if n % 3 == 1 else 'jpg'}" for n in range(len(SIZES))]
CLASSES = [f"c{n // 2}" for n in range(len(SIZES))]


def write_source(folder: Path, *, boxes: bool = False, in_tar: bool = False) -> Path:
    """Write images of seven sizes, as files or in a tar file, and a manifest of them; returns its path."""
    encoded = [
        picture(name, size, "PNG" if name.endswith("png") else "JPEG")
        for name, size in zip(NAMES, SIZES, strict=True)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    places: dict[str, list[object]] = {}
    if in_tar:
        write_tar(folder / "all.tar", dict(zip(NAMES, encoded, strict=True)))
        with tarfile.open(folder / "all.tar") as archive:
            members = archive.getmembers()
        places = {
            "path": ["all.tar"] * len(NAMES),
            "offset": [member.offset_data for member in members],
            "size": [member.size for member in members],
        }
    else:
        for name, data in zip(NAMES, encoded, strict=True):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(data)
    splits = ["train", "test"] * 3 + ["train"]
    table = manifest_table(NAMES, {"class": CLASSES, "kind": ["k"] * len(NAMES)}, splits, **places)
    if boxes:
        of_images = [
            None if n % 2 else [1.0, 2.0, width - 2.0, height - 1.0] for n, (width, height) in enumerate(SIZES)
        ]
        column = pa.array(of_images, MANIFEST.optional.field("box").type)
        table = table.add_column(len(MANIFEST.schema), "box", column)
    path = folder / "manifest.parquet"
    write_manifest(path, Manifest.from_arrow(table), Provenance("manifest"))
    return path


def run(path: Path, out: Path, config: RepackConfig = SMALL, **options: Any) -> RepackSummary:
    return not_none(repack_images(path, out, config, **options))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The manifest of images as files."""
    return write_source(tmp_path / "source")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def pixels(image: Image.Image) -> np.ndarray[tuple[int, ...], np.dtype[np.int16]]:
    return np.asarray(image, np.int16)


def remove_images(folder: Path) -> None:
    """Remove everything below a folder but its manifest."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "manifest.parquet":
            path.unlink()


def smooth_picture(size: tuple[int, int]) -> Image.Image:
    return Image.open(io.BytesIO(picture("x", (6, 4)))).resize(size, Image.Resampling.BICUBIC)


@pytest.mark.parametrize("in_tar", [False, True])
def test_images_are_reduced_or_copied_and_keep_their_labels(in_tar: bool, tmp_path: Path) -> None:
    path, out = write_source(tmp_path / "source", in_tar=in_tar), tmp_path / "out"
    summary = run(path, out)
    assert (summary.images, summary.copies, summary.shards, summary.written, summary.skipped) == (7, 3, 3, 3, ())
    before, after = read_manifest(path), read_manifest(out / "manifest.parquet")
    assert after.ids.tolist() == before.ids.tolist()
    assert after.splits.tolist() == before.splits.tolist()
    assert (after.level_names, after.class_names) == (before.level_names, before.class_names)
    np.testing.assert_array_equal(after.labels, before.labels)
    assert after.boxes is None
    names = [f"images_0000{n}.tar" for n in range(3)]
    assert after.paths.tolist() == np.repeat(names, [3, 3, 1]).tolist()
    places = list(zip(after.paths, after.offsets, strict=True))
    assert places == sorted(places), "images are read in the order of the manifest"
    sums = [f"{sha256_of(out / name)}  {name}" for name in names]
    assert (out / "sha256sums.txt").read_text().splitlines() == sums, "as sha256sum writes them"
    originals, repacked = EncodedImages(before, path.parent), EncodedImages(after, out)
    for row, (width, height) in enumerate(SIZES):
        if min(width, height) <= 16:
            assert repacked.read(row) == originals.read(row)
            continue
        scale = 16 / min(width, height)
        expected = io.BytesIO()
        size = (round(width * scale), round(height * scale))
        upright_rgb(open_image(originals.read(row))).resize(size, Image.Resampling.BICUBIC).save(
            expected, "JPEG", quality=90
        )
        assert repacked.read(row) == expected.getvalue()


def test_a_dataset_and_a_search_of_the_folder_read_the_same_images(path: Path, out: Path) -> None:
    run(path, out)
    transform = evaluation_transform(ImageSettings(size=8, resize=10))
    before, after = (ImageDataset(read_manifest(p), p.parent, transform) for p in (path, out / "manifest.parquet"))
    for row in range(len(SIZES)):
        mean_difference = (before[row].image.float() - after[row].image.float()).abs().mean()  # type: ignore[union-attr]
        assert mean_difference < 0.15 * 0.225 * 255, "of noise; 0.15 of ImageNet's standard deviation"
    assert read_images(out).ids.tolist() == NAMES


def test_gldv2_ids_are_found_by_index_images(tmp_path: Path) -> None:
    ids, out = ["0af3c0ffee000000", "1bf3c0ffee000001"], tmp_path / "out"
    for image_id in ids:
        (tmp_path / image_id).write_bytes(picture(image_id, file_format="JPEG"))
    table = manifest_table(ids, {"landmark": ["1", "2"]})
    write_manifest(tmp_path / "m.parquet", Manifest.from_arrow(table), Provenance("manifest"))
    run(tmp_path / "m.parquet", out)
    index_images(out, tmp_path / "images.parquet")
    index, manifest = read_table(tmp_path / "images.parquet", IMAGES), read_manifest(out / "manifest.parquet")
    assert index["id"].to_pylist() == ids
    assert index["offset"].to_pylist() == manifest.offsets.tolist()
    with tarfile.open(out / "images_00000.tar") as archive:
        assert archive.getnames() == [f"0/a/f/{ids[0]}.jpg", f"1/b/f/{ids[1]}.jpg"]


def test_long_and_foreign_ids_are_stored(tmp_path: Path) -> None:
    ids, out = ["ü" * 200, f"{'folder/' * 40}図.jpg", "/../../etc/passwd"], tmp_path / "out"
    paths = ["0.jpg", "1.jpg", "2.jpg"]
    for path in paths:
        (tmp_path / path).write_bytes(picture(path, file_format="JPEG"))
    table = manifest_table(paths, {"class": ["a"] * 3}, id=ids)
    write_manifest(tmp_path / "m.parquet", Manifest.from_arrow(table), Provenance("manifest"))
    run(tmp_path / "m.parquet", out)
    manifest = read_manifest(out / "manifest.parquet")
    assert manifest.ids.tolist() == ids
    assert [EncodedImages(manifest, out).read(row) for row in range(3)] == [
        (tmp_path / path).read_bytes() for path in paths
    ]
    with tarfile.open(out / "images_00000.tar") as archive:
        assert archive.getnames() == [f"{ids[0]}.jpg", ids[1], "etc/passwd.jpg"]


def test_boxes_are_scaled_with_their_images(tmp_path: Path) -> None:
    path, out = write_source(tmp_path / "source", boxes=True), tmp_path / "out"
    run(path, out)
    before, after = read_manifest(path), read_manifest(out / "manifest.parquet")
    assert before.boxes is not None
    assert after.boxes is not None
    np.testing.assert_array_equal(np.isnan(after.boxes), np.isnan(before.boxes))
    for row in range(len(SIZES)):
        left, top, right, bottom = after.box(row) or (0, 0, *open_image(EncodedImages(after, out).read(row)).size)
        assert min(right - left, bottom - top) == pytest.approx(min(16, *np.subtract(SIZES[row], 3 * (row % 2 == 0))))


@given(
    width=st.integers(1, 90),
    height=st.integers(1, 90),
    size=st.integers(1, 60),
    corners=st.none() | st.tuples(*[st.floats(-5, 95)] * 4),
)
def test_shorter_side_is_the_size_and_the_box_keeps_its_share(
    width: int, height: int, size: int, corners: tuple[float, float, float, float] | None
) -> None:
    data = picture("x", (width, height), "JPEG")
    box = corners and (*np.minimum(corners[:2], corners[2:]).tolist(), *np.maximum(corners[:2], corners[2:]).tolist())
    inside = np.clip(np.round(box or (0, 0, width, height)), 0, [width, height] * 2)
    if min(inside[2:] - inside[:2]) <= 0:
        with pytest.raises(UnreadableImageError, match="outside"):
            repack_image(data, box, size, 90)
        return
    image = repack_image(data, box, size, 90)
    stored = open_image(image.data)
    if image.is_copy:
        assert (image.data, image.box) == (data, box)
        return
    if box is None:
        assert (min(stored.size), image.box) == (size, None)
        assert max(stored.size) == pytest.approx(max(width, height) * size / min(width, height), abs=0.5)
        return
    assert image.box is not None
    left, top, right, bottom = image.box
    share = np.array([stored.width / width, stored.height / height] * 2)
    np.testing.assert_allclose(image.box, inside * share)
    assert min(right - left, bottom - top) == pytest.approx(size, abs=0.5 + size * 0.5 / min(stored.size))


def test_reduced_images_are_upright() -> None:
    turned, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6
    smooth = smooth_picture((120, 80))
    smooth.save(turned, "JPEG", exif=exif, quality=95)
    stored = open_image(repack_image(turned.getvalue(), None, 40, 95).data)
    assert (stored.size, dict(stored.getexif())) == ((40, 60), {})
    expected = smooth.transpose(Image.Transpose.ROTATE_270).resize((40, 60), Image.Resampling.BICUBIC)
    assert np.abs(pixels(stored) - pixels(expected)).mean() < 3


def test_large_jpeg_files_are_reduced_to_nearly_the_same_pixels() -> None:
    data = io.BytesIO()
    smooth_picture((800, 640)).save(data, "JPEG")
    stored = open_image(repack_image(data.getvalue(), None, 64, 95).data)
    assert stored.size == (80, 64)
    expected = open_image(data.getvalue()).resize((80, 64), Image.Resampling.BICUBIC)
    assert np.abs(pixels(stored) - pixels(expected)).mean() < 3


def test_without_a_size_all_images_are_copied(path: Path, out: Path) -> None:
    summary = run(path, out, RepackConfig(workers=0))
    assert summary.copies == len(SIZES)
    after = read_manifest(out / "manifest.parquet")
    assert [EncodedImages(after, out).read(row) for row in range(7)] == [
        (path.parent / name).read_bytes() for name in NAMES
    ]


def test_a_split_is_written_alone(path: Path, out: Path) -> None:
    run(path, out, RepackConfig(split="test", workers=0))
    after = read_manifest(out / "manifest.parquet")
    assert (after.ids.tolist(), after.split_names) == (NAMES[1::2], ("test",))


def test_unreadable_images_are_listed_and_left_out(path: Path, out: Path) -> None:
    data = (path.parent / NAMES[5]).read_bytes()
    (path.parent / NAMES[5]).write_bytes(data[: len(data) // 2])
    (path.parent / NAMES[6]).unlink()
    summary = run(path, out)
    assert (summary.images, summary.skipped) == (5, (NAMES[5], NAMES[6]))
    after = read_manifest(out / "manifest.parquet")
    assert after.ids.tolist() == NAMES[:5]
    assert after.class_names[0] == ("c0", "c1", "c2")  # the class of the last image is gone
    with (out / "skipped.csv").open(encoding="utf-8", newline="") as stream:
        skipped = list(csv.DictReader(stream))
    assert [row["id"] for row in skipped] == NAMES[5:]
    assert skipped[0]["reason"].startswith("damaged")
    assert "No such file" in skipped[1]["reason"]


def test_folder_without_readable_images_is_refused_before_the_work(path: Path, out: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="of 7 images, 7 were tried, and none can be read; is this the folder"):
        repack_images(path, out, SMALL, root=tmp_path / "empty")
    assert not list(out.glob("*.tar"))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_any_number_of_workers_writes_the_same_bytes(tmp_path: Path) -> None:
    path = write_source(tmp_path / "source")
    run(path, tmp_path / "none", SMALL)
    run(path, tmp_path / "two", RepackConfig(size=16, shard_size=3, workers=2))
    assert contents(tmp_path / "two") == contents(tmp_path / "none")


@pytest.mark.parametrize("images_before", range(0, 7, 2))
def test_interrupted_run_resumes(images_before: int, path: Path, out: Path, tmp_path: Path) -> None:
    class Interrupting(NoProgress):
        left = images_before

        def advance(self, units: int = 1, **details: float) -> None:
            if not self.left:
                raise KeyboardInterrupt
            self.left -= units

    run(path, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        repack_images(path, out, SMALL, progress=Interrupting())
    assert not (out / "manifest.parquet").exists()
    assert run(path, out).written == 3 - images_before // 3
    assert contents(out) == contents(tmp_path / "whole")
    assert repack_images(path, out, SMALL) is None


KILLED = """
import shutil, sys
from pathlib import Path
from hgld.datasets.repack import repack_images
from tests.datasets.test_repack import SMALL, contents, write_source
from tests.kill_points import kill_points

home = Path(sys.argv[1])
path, out = write_source(home / "source"), home / "out" / "repacked"
repack_images(path, home / "whole", SMALL)
whole = contents(home / "whole")

def prepare():
    shutil.rmtree(out.parent, ignore_errors=True)

for number in kill_points(lambda: repack_images(path, out, SMALL), out.parent, prepare):
    complete = (out / "manifest.parquet").exists()
    assert not complete or contents(out).keys() >= whole.keys(), number
    assert (repack_images(path, out, SMALL) is None) == complete, number
    assert contents(out) == whole, number
print(number)
"""


@pytest.mark.slow
def test_parts_in_any_order_write_the_same_bytes(tmp_path: Path) -> None:
    path = write_source(tmp_path / "source", boxes=True)
    (path.parent / NAMES[4]).write_bytes(b"no picture")
    whole, out = tmp_path / "whole", tmp_path / "parts"
    repack_images(path, whole, SMALL)

    class OtherRuns(NoProgress):
        """Progress that starts other runs while this one writes."""

        def start(self, total: int, done: int = 0) -> None:
            with pytest.raises(BusyError, match=r"another run is writing part 2/2 of .*parts; wait"):
                repack_images(path, out, SMALL, part=Part(2, 2))
            for force in (False, True):
                with pytest.raises(BusyError, match="parts: part 2/2 is still running"):
                    repack_images(path, out, SMALL, force=force)
            first = run(path, out, part=Part(1, 2))
            assert (first.images, first.shards, first.written, first.skipped) == (3, 1, 1, ())

    second = run(path, out, part=Part(2, 2), progress=OtherRuns())  # of three tar files
    assert (second.images, second.shards, second.written, second.skipped) == (3, 2, 2, (NAMES[4],))
    assert not (out / "manifest.parquet").exists()
    assert repack_images(path, out, SMALL, part=Part(3, 9)) is None
    (out / "images_00000.tar").unlink()
    run(path, out, part=Part(1, 3))
    assert run(path, out).written == 0
    assert contents(out) == contents(whole)
    with pytest.raises(ConfigurationError, match="`force` would discard what other parts have written"):
        repack_images(path, out, SMALL, part=Part(1, 2), force=True)


@pytest.mark.slow
def test_run_killed_at_any_change_of_the_files_resumes(tmp_path: Path) -> None:
    assert int(run_script(KILLED, tmp_path)) > 10


def test_verify_writes_damaged_tar_files_again(path: Path, out: Path) -> None:
    run(path, out)
    whole = contents(out)
    tar = bytearray((out / "images_00001.tar").read_bytes())
    tar[600] ^= 1
    (out / "images_00001.tar").write_bytes(tar)
    assert repack_images(path, out, SMALL) is None, "the size is right"
    summary = run(path, out, verify=True)
    assert (summary.verified, summary.written) == (2, 1)
    assert contents(out) == whole
    remove_images(path.parent)
    summary = run(path, out, verify=True)
    assert (summary.verified, summary.written) == (3, 0)


@pytest.mark.parametrize("damage", ["cut", "gone", "record cut"])
def test_cut_and_missing_tar_files_are_written_again(damage: str, path: Path, out: Path) -> None:
    run(path, out)
    whole = contents(out)
    if damage == "cut":
        (out / "images_00000.tar").write_bytes(whole["images_00000.tar"][:1000])
    elif damage == "gone":
        (out / "images_00000.tar").unlink()
    else:
        (out / "images_00000.json").write_bytes(whole["images_00000.json"][:10])
    assert run(path, out).written == 1
    assert contents(out) == whole


def test_memory_holds_few_images_at_once(tmp_path: Path) -> None:
    alive = weakref.WeakSet[RepackedImage]()
    most = 0

    def images() -> Iterator[RepackedImage]:
        nonlocal most
        for _ in range(20):
            image = RepackedImage(b"image", ".jpg", None, is_copy=True)
            alive.add(image)
            most = max(most, len(alive))
            yield image

    shards = RepackedShards(tmp_path, 20, 20)
    record = shards.write(0, range(20), [f"{number}" for number in range(20)], images())
    assert len(record.rows) == 20
    assert most <= 2


@pytest.mark.parametrize("in_tar", [False, True])
def test_other_labels_do_not_need_the_images(in_tar: bool, tmp_path: Path) -> None:
    path, out = write_source(tmp_path / "source", in_tar=in_tar), tmp_path / "out"
    run(path, out)
    remove_images(path.parent)
    times = {tar: tar.stat().st_mtime_ns for tar in out.glob("*.tar")}
    relabelled = read_manifest(path).to_arrow().drop_columns(["class", "kind"])
    relabelled = relabelled.append_column("colour", pa.array(["red", "blue", *["green"] * 5]))
    write_manifest(path, Manifest.from_arrow(relabelled), Provenance("manifest"))
    assert run(path, out).written == 0
    assert read_manifest(out / "manifest.parquet").class_names == (("blue", "green", "red"),)
    assert {tar: tar.stat().st_mtime_ns for tar in out.glob("*.tar")} == times


def test_other_settings_need_force(path: Path, out: Path, tmp_path: Path) -> None:
    run(path, out)
    smaller = RepackConfig(size=12, shard_size=5, workers=0)
    with pytest.raises(ConfigurationError, match=r"other settings or images(?s:.*)size: 16 then, 12 now"):
        repack_images(path, out, smaller)
    with pytest.raises(ConfigurationError, match="other settings or images"):
        plan_repack(path, out, smaller)
    assert run(path, out, smaller, force=True).written == 2
    run(path, tmp_path / "fresh", smaller)
    assert contents(out) == contents(tmp_path / "fresh")


def test_folder_of_other_files_is_left_alone(tmp_path: Path) -> None:
    path = write_source(tmp_path / "source")
    before = contents(path.parent / "x")
    for force in (False, True):
        with pytest.raises(ConfigurationError, match="holds files that are not from hgld repack"):
            repack_images(path, path.parent / "x", SMALL, force=force)
    assert contents(path.parent / "x") == before


def test_full_disk_is_seen_before_the_work(path: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage(1_000))
    with pytest.raises(ConfigurationError, match="the images need about .* but the disk has only 1.0 kB left"):
        repack_images(path, out, SMALL)
    assert not list(out.glob("*.tar"))


def test_plan_estimates_what_is_left(path: Path, out: Path) -> None:
    plan = plan_repack(path, out, SMALL)
    assert not out.exists()
    assert (plan.images, plan.done, plan.shards) == (7, 0, 3)
    assert plan.source_bytes == pytest.approx(sum((path.parent / name).stat().st_size for name in NAMES))
    announced: list[RepackPlan] = []
    repack_images(path, out, SMALL, announce=announced.append)
    (announced_plan,) = announced
    assert announced_plan.n_bytes == plan.n_bytes == sum(read_manifest(out / "manifest.parquet").sizes)
    (out / "images_00001.tar").unlink()
    plan = plan_repack(path, out, SMALL)
    assert (plan.images, plan.done) == (7, 4)
    shutil.rmtree(out)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 0}, "`size` is 0; expected 1 or more"),
        ({"quality": 101}, "`quality` is 101; expected 1 to 100"),
        ({"shard_size": 0}, "`shard_size` is 0"),
        ({"workers": -1}, "`workers` is -1"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        RepackConfig(**settings)  # type: ignore[arg-type]


def test_command(path: Path, out: Path) -> None:
    (path.parent / NAMES[6]).write_bytes(b"no image")
    command = ["repack", str(path), "--size", "16", "--workers", "0", "-o", str(out)]
    assert run_hgld(*command, "--plan").stdout.startswith("7 images to 1 tar files: about ")
    assert not out.exists()
    result = run_hgld(*command)
    assert result.stdout.startswith("6 images, 3 of them as they were, in 1 tar files (")
    assert result.stdout.endswith(f"\nleft out: 1 images that cannot be read, listed in skipped.csv\n{out}\n")
    assert "processor time" in result.stderr
    assert run_hgld_without_torch(*command) == f"{out}: up to date\n"
    assert "1 verified by SHA-256" in run_hgld(*command, "--verify").stdout
    assert "0 seconds of processor time" not in run_hgld(*command, "--plan").stdout
    assert run_hgld(*command, "--part", "1/2").stdout == f"{out}: up to date\n"
    assert run_hgld(*command, "--plan", "--part", "1/2").stdout == "0 images: nothing is left to do\n"
    wrong = run_hgld("repack", path, "--size", "0", "-o", out, code=1)
    assert wrong.stderr == "error: --size is 0; expected 1 or more\n"
