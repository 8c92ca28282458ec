"""Embeddings in parts: any division into them, and killed parts."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from hgld.compute.parts import Part
from hgld.datasets.manifest import write_manifest
from hgld.errors import BusyError, ConfigurationError, InputError
from hgld.io.files import path_beside
from hgld.io.locks import exclusive_lock
from hgld.models.embedding_files import part_file
from hgld.models.image_embedder import ImageEmbedder
from hgld.models.image_embedding import embed_images, embed_part
from hgld.models.model_loading import load_model
from hgld.models.settings import EmbedImagesConfig
from hgld.progress import NoProgress
from hgld.tables import Provenance
from hgld.tables.embeddings import read_deviations, read_embeddings
from tests.assertions import not_none
from tests.commands import run_hgld
from tests.datasets.pictures import manifest_of
from tests.models.embedding import (
    CONFIG,
    MODEL_OPTIONS,
    PATHS,
    KillAfter,
    KilledError,
    assert_same_output,
    embed,
    embed_some,
)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("settings", [{"center": True}, {"with_std": True}])
def test_killed_parts_in_any_order_are_merged_to_the_same_bytes(
    folder: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    model = load_model("test_resnet", "none", size=64, resize=64)
    for name in sorted(PATHS)[4:11]:  # the second shard, and one image on either side of it
        (folder / name).write_bytes(b"no picture")
    config = EmbedImagesConfig(batch_size=3, shard_size=5, workers=0, **settings)
    undisturbed, out = tmp_path / "a" / "e.npy", tmp_path / "b" / "e.npy"
    whole = embed(folder, undisturbed, model, config)
    with pytest.raises(KilledError):
        embed_part(folder, out, model, config, part=Part(3, 3), progress=KillAfter(6))
    parts = [embed_some(folder, out, model, Part(number, 3), config) for number in (3, 1, 2)]
    assert [(part.images, part.embedded, part.skipped) for part in parts] == [(7, 2, 0), (5, 5, 1), (10, 10, 6)]
    assert not out.exists()
    joined = embed(folder, out, model, config)
    assert (joined.images, joined.dim, joined.skipped) == (whole.images, whole.dim, whole.skipped)
    assert (joined.embedded, joined.waiting_share) == (0, None)
    assert_same_output(undisturbed, out)
    assert embed_part(folder, out, model, config, part=Part(2, 3)) is None
    assert embed_images(folder, out, model, config) is None
    assert_same_output(undisturbed, out)


def test_files_of_a_folder_have_the_landmarks_of_their_own_images(
    loaded: ImageEmbedder, folder: Path, tmp_path: Path
) -> None:
    manifest = manifest_of(PATHS, {"landmark": [str(number) for number in range(len(PATHS))]})
    write_manifest(tmp_path / "manifest.parquet", manifest, Provenance("test"))
    for number in (1, 2, 3):
        part = Part(number, 3)
        embed_part(tmp_path / "manifest.parquet", tmp_path / "parts", loaded, CONFIG, part=part, root=folder)
        assert part_file(tmp_path / "parts", part).is_file()
    whole = tmp_path / "whole.parquet"
    embed(tmp_path / "manifest.parquet", whole, loaded, root=folder)
    parts, expected = read_embeddings(tmp_path / "parts"), read_embeddings(whole)
    assert not_none(parts.ids).tolist() == PATHS
    assert not_none(parts.landmark_ids).tolist() == list(range(len(PATHS)))
    assert torch.equal(parts.vectors[: len(PATHS)], expected.vectors)


@pytest.mark.parametrize(("split", "n"), [(None, 3), ("train", 2)])
def test_parts_without_a_readable_image_are_written(folder: Path, tmp_path: Path, split: str | None, n: int) -> None:
    model = load_model("test_resnet", "none", size=64, resize=64)
    for name in sorted(PATHS)[5:15]:  # an image that can be read is not in each part
        (folder / name).write_bytes(b"no picture")
    config = EmbedImagesConfig(batch_size=3, shard_size=5, workers=0, split=split)
    levels = {"landmark": [str(number // 2) for number in range(len(PATHS))]}
    splits = ["train" if number % 3 else "test" for number in range(len(PATHS))]
    images = tmp_path / "manifest.parquet"
    write_manifest(images, manifest_of(sorted(PATHS), levels, splits=splits), Provenance("test"))
    whole, out = tmp_path / "a" / "e.parquet", tmp_path / "b" / "e.parquet"
    embed(images, whole, model, config, root=folder)
    for number in range(1, n + 1):
        embed_some(images, out, model, Part(number, n), config, root=folder)
    assert embed(images, out, model, config, root=folder).embedded == 0
    assert_same_output(whole, out)


def test_deviations_of_a_folder_are_those_of_its_parts(folder: Path, tmp_path: Path) -> None:
    model, parts = load_model("test_resnet", "none", size=64, resize=64), tmp_path / "parts"
    config = EmbedImagesConfig(batch_size=3, shard_size=5, workers=0, with_std=True)
    for number in (1, 2, 3):
        embed_part(folder, parts, model, config, part=Part(number, 3))
    whole = tmp_path / "e.npy"
    embed(folder, whole, model, config)
    assert torch.equal(read_deviations(parts)[:22], read_deviations(whole))
    few = [sorted(PATHS)[row] for row in (20, 3)]
    assert torch.equal(read_deviations(parts, few), read_deviations(whole, few))
    path_beside(part_file(parts, Part(2, 3)), "deviations").unlink()
    absent = r"parts: has no .* in it for each part \(2-of-3.deviations.safetensors\); embed the images again"
    with pytest.raises(InputError, match=absent):
        read_deviations(parts)


def test_other_divisions_complete_what_one_has_left(loaded: ImageEmbedder, folder: Path, tmp_path: Path) -> None:
    undisturbed, out = tmp_path / "a" / "e.parquet", tmp_path / "b" / "e.parquet"
    embed_images(folder, undisturbed, loaded, CONFIG)
    counts = []
    for part in (Part(2, 4), Part(1, 2), Part(8, 9), Part(1, 9)):  # shards 1; 0 and 1; 3; none of five
        summary = embed_some(folder, out, loaded, part)
        counts.append((summary.images, summary.embedded))
    assert counts == [(5, 5), (10, 5), (5, 5), (0, 0)]
    assert embed(folder, out, loaded).embedded == 22 - 15
    assert_same_output(undisturbed, out)


def test_what_parts_have_left_is_embedded_once_none_is_running(
    loaded: ImageEmbedder, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "e.npy"
    embed_part(folder, out, loaded, CONFIG, part=Part(2, 5))
    shards = out.with_name(".e.npy.parts")
    with exclusive_lock(shards / "4-of-5"):
        embed_part(folder, out, loaded, CONFIG, part=Part(1, 5))
        with pytest.raises(BusyError, match=r"e.npy: part 4/5 is still running; wait for the end$"):
            embed_images(folder, out, loaded, CONFIG)
    with ExitStack() as locks:  # such as those of a division that was given up
        for name in ("10-of-12", "09-of-12"):
            locks.enter_context(exclusive_lock(shards / name))
        with pytest.raises(BusyError, match=r"parts 9/12, 10/12 are still running"):
            embed_images(folder, out, loaded, CONFIG)
    (shards / ".1-of-5.lock").touch()  # of a process that was killed
    assert embed(folder, out, loaded).embedded == 22 - 10


def test_runs_that_would_disturb_each_other_are_refused(
    loaded: ImageEmbedder, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "e.npy"

    class OtherRuns(NoProgress):
        """Progress that starts other runs while this one embeds."""

        def start(self, total: int, done: int = 0) -> None:
            with pytest.raises(BusyError, match=r"another run is writing part 1/2 of .*e.npy; wait for it to end"):
                embed_part(folder, out, loaded, CONFIG, part=Part(1, 2))
            for force in (False, True):
                with pytest.raises(BusyError, match=r"e.npy: part 1/2 is still running"):
                    embed_images(folder, out, loaded, CONFIG, force=force)
            assert embed_part(folder, out, loaded, CONFIG, part=Part(2, 2)) is not None

    assert embed_part(folder, out, loaded, CONFIG, part=Part(1, 2), progress=OtherRuns()) is not None
    monkeypatch.setattr("hgld.parted_output.OPENING_WAIT_S", 0)
    with exclusive_lock(out):
        runs: list[Callable[[], object]] = [
            lambda: embed_part(folder, out, loaded, CONFIG, part=Part(1, 2)),
            lambda: embed_images(folder, out, loaded, CONFIG),
        ]
        for run in runs:
            with pytest.raises(BusyError, match=r"another run is writing .*e.npy; wait"):
                run()
    assert embed_images(folder, out, loaded, CONFIG) is not None


def test_a_part_that_waited_while_the_output_was_completed_does_nothing(
    loaded: ImageEmbedder, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "e.npy"

    class Waiting(NoProgress):
        """Progress that lets a part wait for the lock of the output, once the run has it."""

        def start(self, total: int, done: int = 0) -> None:
            self.part = ThreadPoolExecutor().submit(embed_part, folder, out, loaded, CONFIG, part=Part(1, 2))

    progress = Waiting()
    embed_images(folder, out, loaded, CONFIG, progress=progress)
    assert progress.part.result(60) is None
    assert not out.with_name(".e.npy.parts").exists()


def test_parts_of_other_settings_are_refused(loaded: ImageEmbedder, folder: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "e.npy", EmbedImagesConfig(batch_size=2, shard_size=5, workers=0)
    embed_part(folder, out, loaded, CONFIG, part=Part(1, 2))
    runs: list[Callable[[], object]] = [
        lambda: embed_part(folder, out, loaded, other, part=Part(2, 2)),
        lambda: embed_images(folder, out, loaded, other),
    ]
    for run in runs:
        with pytest.raises(
            ConfigurationError, match=r"of other settings or images; .* remove the folder:\n  batch_size: 3"
        ):
            run()
    (tmp_path / ".e.npy.parts" / "made_of.json").unlink()  # as if a kill had interrupted the removal of the folder
    assert embed_some(folder, out, loaded, Part(1, 2), other).embedded == 10


def test_parts_are_joined_where_their_device_is_absent(
    loaded: ImageEmbedder, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, config = tmp_path / "e.npy", EmbedImagesConfig(device="xpu", workers=0)
    runs: list[Callable[[], object]] = [
        lambda: embed_images(folder, out, loaded, config),
        lambda: embed_part(folder, out, loaded, config, part=Part(1, 1)),
    ]
    for run in runs:
        with pytest.raises(ConfigurationError, match='the device "xpu" cannot be used'):
            run()
    assert not out.with_name(".e.npy.parts").exists()
    with monkeypatch.context() as patch:  # as if the part ran where the device is
        patch.setattr(ImageEmbedder, "to", lambda self, device: None)
        embed_part(folder, out, loaded, config, part=Part(1, 1))
    record = out.with_name(".e.npy.parts") / "made_of.json"
    content = record.read_bytes()
    record.unlink()  # shards without a record are discarded, and embedded again
    for run in runs:
        with pytest.raises(ConfigurationError, match='the device "xpu" cannot be used'):
            run()
    record.write_bytes(content)
    assert embed(folder, out, loaded, config).images == 22


@pytest.mark.parametrize("text", ["", '{"comm', "null", "[]", '{"a": 1}'])
def test_a_damaged_record_of_parts_is_named(loaded: ImageEmbedder, folder: Path, tmp_path: Path, text: str) -> None:
    out = tmp_path / "e.npy"
    embed_part(folder, out, loaded, CONFIG, part=Part(1, 2))
    (tmp_path / ".e.npy.parts" / "made_of.json").write_text(text)
    with pytest.raises(ConfigurationError, match="made_of.json: damaged, .*; discard these with `force`, or remove"):
        embed_images(folder, out, loaded, CONFIG)
    assert embed_images(folder, out, loaded, CONFIG, force=True) is not None


def test_a_folder_needs_parts_that_have_images(loaded: ImageEmbedder, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="6 parts of 22 images, which are 5 shards of 5; choose as many"):
        embed_part(folder, tmp_path / "parts", loaded, CONFIG, part=Part(1, 6))
    config = EmbedImagesConfig(center=True, workers=0)
    with pytest.raises(ConfigurationError, match="`center` subtracts the mean of all parts; name a file"):
        embed_part(folder, tmp_path / "parts", loaded, config, part=Part(1, 1))


def test_command_embeds_parts_and_joins_them(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "e.parquet"
    (folder / PATHS[0]).write_bytes(b"no picture")
    command = ["embed-images", "--images", folder, *MODEL_OPTIONS, "--workers", "0"]

    def run(*options: object, code: int = 0) -> str:
        return " ".join(run_hgld(*command, "-o", out, *options, code=code).output.split())

    assert "error: --force would discard what other parts have written" in run("--part", "1/1", "--force", code=1)
    message = 'error: --part is "1"; expected a part and the number of parts, such as 3/16'
    assert message in run("--part", "1", code=1)
    text = run("--part", "2/2")
    assert "part 2/2: 22 images; 22 of them in this run" in text
    assert "1 image could not be read; the list is written when the parts are joined" in text
    assert "part 1/2: 0 images" in run("--part", "1/2")
    assert "21 of 22 images embedded in 96 dimensions 1 image could not be read; see" in run()
    assert run("--part", "1/2") == f"{out}: up to date"
    parts = tmp_path / "parts"
    assert str(parts / "1-of-1.safetensors") in run_hgld(*command, "-o", parts, "--part", "1/1").stdout
    error = run_hgld(*command, "-o", parts, code=1).stderr
    assert "a folder is written in parts; add --part or --ray, or name a file" in error
