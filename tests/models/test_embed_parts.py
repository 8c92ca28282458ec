"""Embeddings in parts: any division into them, killed parts, merging, and a job array on a cluster."""

import shlex
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from hgld.cli import app
from hgld.compute.executors import Part
from hgld.datasets import image_dataset, manifest
from hgld.datasets.image_dataset import read_images
from hgld.datasets.manifest import write_manifest
from hgld.errors import BusyError, ConfigurationError, InputError
from hgld.gldv2.tar_images import index_images
from hgld.io.files import exclusive_lock
from hgld.models.image_embedder import ImageEmbedder
from hgld.models.image_embedding import (
    EmbedImagesConfig,
    EmbedImagesSummary,
    embed_images,
    embed_part,
    merge_parts,
    part_file,
    parts_are_written,
)
from hgld.models.model_loading import load_model
from hgld.progress import NoProgress
from hgld.tables import Provenance
from hgld.tables.embeddings import path_beside, read_deviations, read_embeddings
from tests.assertions import not_none
from tests.child_processes import single_thread_environment
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
from tests.slurm_cluster import SlurmCluster

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
        embed_part(folder, out, model, Part(3, 3), config, progress=KillAfter(6))
    parts = [embed_some(folder, out, model, Part(number, 3), config) for number in (3, 1, 2)]
    assert [(part.images, part.embedded, part.skipped) for part in parts] == [(7, 2, 0), (5, 5, 1), (10, 10, 6)]
    assert not out.exists()
    merged = not_none(merge_parts(folder, out, model, config))
    assert (merged.images, merged.dim, merged.skipped) == (whole.images, whole.dim, whole.skipped)
    assert_same_output(undisturbed, out)
    assert embed_part(folder, out, model, Part(2, 3), config) is None
    assert merge_parts(folder, out, model, config) is None
    assert_same_output(undisturbed, out)


def test_files_of_a_folder_have_the_landmarks_of_their_own_images(
    loaded: ImageEmbedder, folder: Path, tmp_path: Path
) -> None:
    manifest = manifest_of(PATHS, {"landmark": [str(number) for number in range(len(PATHS))]})
    write_manifest(tmp_path / "manifest.parquet", manifest, Provenance("test"))
    for number in (1, 2, 3):
        part = Part(number, 3)
        out = part_file(tmp_path / "parts", part)
        embed(tmp_path / "manifest.parquet", out, loaded, root=folder, part=part)
    whole = tmp_path / "whole.parquet"
    embed(tmp_path / "manifest.parquet", whole, loaded, root=folder)
    parts, expected = read_embeddings(tmp_path / "parts"), read_embeddings(whole)
    assert not_none(parts.ids).tolist() == PATHS
    assert not_none(parts.landmark_ids).tolist() == list(range(len(PATHS)))
    assert torch.equal(parts.vectors[: len(PATHS)], expected.vectors)


@pytest.mark.parametrize(
    ("split", "groups"), [(None, [range(0, 2), range(1, 5), range(5, 8)]), ("train", [range(0, 3), range(2, 7)])]
)
def test_parts_read_their_row_groups_alone(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: str | None, groups: list[range]
) -> None:
    model, n = load_model("test_resnet", "none", size=64, resize=64), len(groups)
    for name in sorted(PATHS)[5:15]:  # an image that can be read is not in each part
        (folder / name).write_bytes(b"no picture")
    config = EmbedImagesConfig(batch_size=3, shard_size=5, workers=0, split=split)
    levels = {"landmark": [str(number // 2) for number in range(len(PATHS))]}
    splits = ["train" if number % 3 else "test" for number in range(len(PATHS))]
    images = tmp_path / "manifest.parquet"
    monkeypatch.setattr(manifest, "_BATCH", 3)
    write_manifest(images, manifest_of(sorted(PATHS), levels, splits=splits), Provenance("test"))
    whole = tmp_path / "a" / "e.parquet"
    embed(images, whole, model, config, root=folder)
    read, out = [], tmp_path / "b" / "e.parquet"

    def spy(*arguments: Any, row_groups: Any = None) -> Any:
        read.append(row_groups)
        return read_images(*arguments, row_groups=row_groups)

    monkeypatch.setattr(image_dataset, "read_images", spy)
    for number in range(1, n + 1):
        embed_some(images, out, model, Part(number, n), config, root=folder)
    assert [each for each in read if each is not None] == groups
    is_written = parts_are_written(images, out, model, config, root=folder)
    assert all(is_written(Part(number, n)) for number in range(1, n + 1))
    assert read[-1] == range(1)
    assert merge_parts(images, out, model, config, root=folder) is not None
    assert_same_output(whole, out)


def test_deviations_of_a_folder_are_those_of_its_parts(folder: Path, tmp_path: Path) -> None:
    model, parts = load_model("test_resnet", "none", size=64, resize=64), tmp_path / "parts"
    config = EmbedImagesConfig(batch_size=3, shard_size=5, workers=0, with_std=True)
    for number in (1, 2, 3):
        embed(folder, part_file(parts, Part(number, 3)), model, config, part=Part(number, 3))
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


def test_merging_names_the_parts_to_run_again(loaded: ImageEmbedder, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "e.npy"
    with pytest.raises(
        InputError, match=r"e.npy: no part of it has been run; run all of them \(`part`\), then merge"
    ):
        merge_parts(folder, out, loaded, CONFIG)
    embed_part(folder, out, loaded, Part(2, 5), CONFIG)
    shards = out.with_name(".e.npy.parts")
    with pytest.raises(
        InputError, match=r"e.npy: 4 of 5 shards are missing; run `part` N/5 again for N = 1,3-5, then merge$"
    ):
        merge_parts(folder, out, loaded, CONFIG)
    with exclusive_lock(shards / "4_of_5"):
        with pytest.raises(InputError, match=r"N = 1,3,5, then merge \(part 4/5 is still running\)$"):
            merge_parts(folder, out, loaded, CONFIG)
        for number in (1, 3, 5):
            embed_part(folder, out, loaded, Part(number, 5), CONFIG)
        with pytest.raises(BusyError, match=r"e.npy: part 4/5 is still running; wait for the end$"):
            merge_parts(folder, out, loaded, CONFIG)
    embed_part(folder, out, loaded, Part(4, 5), CONFIG)
    with ExitStack() as locks:  # such as those of a division that was given up
        for name in ("10_of_12", "9_of_12"):
            locks.enter_context(exclusive_lock(shards / name))
        with pytest.raises(BusyError, match=r"parts 9/12, 10/12 are still running"):
            merge_parts(folder, out, loaded, CONFIG)
    (shards / ".1_of_5.lock").touch()  # of a process that was killed
    assert merge_parts(folder, out, loaded, CONFIG) is not None


def test_runs_that_would_disturb_each_other_are_refused(
    loaded: ImageEmbedder, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "e.npy"

    class OtherRuns(NoProgress):
        """Progress that starts other runs while this one embeds."""

        def start(self, total: int, done: int = 0) -> None:
            with pytest.raises(BusyError, match=r"another run is writing part 1/2 of .*e.npy; wait for it to end"):
                embed_part(folder, out, loaded, Part(1, 2), CONFIG)
            for force in (False, True):
                with pytest.raises(BusyError, match=r"e.npy: part 1/2 is still running"):
                    embed_images(folder, out, loaded, CONFIG, force=force)
            assert embed_part(folder, out, loaded, Part(2, 2), CONFIG) is not None

    assert embed_part(folder, out, loaded, Part(1, 2), CONFIG, progress=OtherRuns()) is not None
    monkeypatch.setattr("hgld.models.image_embedding.OPENING_WAIT_S", 0)
    with exclusive_lock(out):
        for run in (
            lambda: embed_part(folder, out, loaded, Part(1, 2), CONFIG),
            lambda: merge_parts(folder, out, loaded, CONFIG),
        ):
            with pytest.raises(BusyError, match=r"another run is writing .*e.npy; wait"):
                run()
    assert merge_parts(folder, out, loaded, CONFIG) is not None


def test_parts_of_other_settings_are_refused(loaded: ImageEmbedder, folder: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "e.npy", EmbedImagesConfig(batch_size=2, shard_size=5, workers=0)
    embed_part(folder, out, loaded, Part(1, 2), CONFIG)
    for run in (
        lambda: embed_part(folder, out, loaded, Part(2, 2), other),
        lambda: merge_parts(folder, out, loaded, other),
    ):
        with pytest.raises(ConfigurationError, match=r"other settings; .* remove the folder:\n  batch_size: 3"):
            run()
    (tmp_path / ".e.npy.parts" / "made_of.json").unlink()  # as if a kill had interrupted the removal of the folder
    assert embed_some(folder, out, loaded, Part(1, 2), other).embedded == 10


def test_parts_are_merged_where_their_device_is_absent(loaded: ImageEmbedder, folder: Path, tmp_path: Path) -> None:
    config = EmbedImagesConfig(device="xpu", workers=0)
    for run in (
        lambda: embed_images(folder, tmp_path / "e.npy", loaded, config),
        lambda: embed_part(folder, tmp_path / "e.npy", loaded, Part(1, 2), config),
    ):
        with pytest.raises(ConfigurationError, match='the device "xpu" cannot be used'):
            run()
    with pytest.raises(InputError, match="no part of it has been run"):
        merge_parts(folder, tmp_path / "e.npy", loaded, config)


def test_command_embeds_parts_and_merges_them(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "e.parquet"
    (folder / PATHS[0]).write_bytes(b"no picture")

    def run(*options: str) -> tuple[int, str]:
        arguments = ["embed-images", "--images", str(folder), "-o", str(out), *MODEL_OPTIONS, "--workers", "0"]
        result = CliRunner().invoke(app, [*arguments, *options])
        return result.exit_code, " ".join(result.output.split())

    assert run("--part", "1/1", "--merge")[0] == 1
    assert "error: choose one of --part, --merge and --force" in run("--part", "1/1", "--force")[1]
    assert 'error: --part is "1"; expected a part and the number of parts, such as 3/16' in run("--part", "1")[1]
    assert "run all of them (--part), then merge" in run("--merge")[1]
    code, text = run("--part", "2/2")
    assert code == 0, text
    assert "part 2/2: 22 images; 22 of them in this run" in text
    assert "1 image could not be read; the list is written when the parts are merged" in text
    code, text = run("--part", "1/2")
    assert code == 0, text
    assert "part 1/2: 0 images" in text
    code, text = run("--merge")
    assert code == 0, text
    assert "21 of 22 images embedded in 96 dimensions 1 image could not be read; see" in text
    assert run("--part", "1/2") == (0, f"{out}: up to date")


@pytest.mark.slow
def test_array_with_tasks_killed_and_requeued_gives_the_bytes_of_one_run(
    loaded: ImageEmbedder, cluster: SlurmCluster, shared: Path, tmp_path: Path
) -> None:
    images, undisturbed, out = tmp_path / "images.parquet", tmp_path / "a" / "e.npy", tmp_path / "b" / "e.npy"
    index_images(shared / "wa_gldv2", images)
    sources = ["--images", str(images), "--root", str(shared / "wa_gldv2"), "--workers", "0"]
    command = [sys.executable, "-m", "hgld", "embed-images", *MODEL_OPTIONS, *sources, "-o"]
    config = EmbedImagesConfig(workers=0)
    embed_images(images, undisturbed, loaded, config, root=shared / "wa_gldv2")

    def merge() -> EmbedImagesSummary | None:
        return merge_parts(images, out, loaded, config, root=shared / "wa_gldv2")

    def submit(tasks: str) -> str:
        script = f'exec {shlex.join([*command, str(out)])} --part "$SLURM_ARRAY_TASK_ID/3"'
        log = f"--output={tmp_path}/%a.log"
        return cluster.submit(script, f"--array={tasks}", "--requeue", log, environment=single_thread_environment())

    def wait_for_shard(number: int) -> None:
        deadline = time.monotonic() + 120
        while not (out.parent / ".e.npy.parts" / f"part_{number:06}.safetensors").is_file():
            assert time.monotonic() < deadline, [log.read_text() for log in tmp_path.glob("*.log")]
            time.sleep(0.05)

    job = submit("1-3")  # parts of five shards: 0; 1 and 2; 3 and 4
    wait_for_shard(1)
    cluster.requeue(f"{job}_2")
    wait_for_shard(3)
    cluster.run("scancel", "--signal=KILL", f"{job}_3")
    states = [cluster.wait_for(f"{job}_{task}")["JobState"] for task in (1, 2, 3)]
    assert states == ["COMPLETED", "COMPLETED", "CANCELLED"]
    assert "part 2/3: 2,048 images; 1,024 of them in this run" in (tmp_path / "2.log").read_text()
    with pytest.raises(InputError, match=r"1 of 5 shards are missing; run `part` N/3 again for N = 3, then merge"):
        merge()
    job = submit("3")
    assert cluster.wait_for(f"{job}_3")["JobState"] == "COMPLETED"
    assert merge() is not None
    assert_same_output(undisturbed, out)
