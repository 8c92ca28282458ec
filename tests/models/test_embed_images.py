"""Embeddings of many images: in shards, and after a kill."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
import torch
from PIL import Image

from hgld.cli.models import format_embed_images
from hgld.cli.shared_options import parse_numbers
from hgld.datasets.manifest import LANDMARK_LEVEL, Manifest, write_manifest
from hgld.errors import BusyError, ConfigurationError, InputError
from hgld.gldv2.image_index import index_images
from hgld.gldv2.tar_images import ImageReader
from hgld.io.files import path_beside
from hgld.io.locks import exclusive_lock
from hgld.models.embedding_model import EmbeddingModel
from hgld.models.image_embedder import ImageEmbedder
from hgld.models.image_embedding import EmbedImagesSummary, embed_images
from hgld.models.model_loading import load_model
from hgld.models.settings import EmbedImagesConfig
from hgld.search.query_model import load_query_model
from hgld.tables import IMAGES, Provenance, read_table
from hgld.tables.embeddings import read_deviations, read_embeddings
from tests.commands import run_hgld
from tests.datasets.pictures import manifest_of, picture, save_pictures
from tests.gldv2.test_image_index import write_tar
from tests.models.embedding import (
    CONFIG,
    MODEL_OPTIONS,
    PATHS,
    KillAfter,
    KilledError,
    assert_same_output,
    embed,
    read_with_ids,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def test_images_in_tar_files_are_embedded_as_one_by_one(loaded: ImageEmbedder, shared: Path, tmp_path: Path) -> None:
    index = tmp_path / "images.parquet"
    index_images(shared / "wa_gldv2", index)
    table = read_table(index, IMAGES)
    train = pa_csv.read_csv(shared / "wa_gldv2" / "train.csv")
    landmark_of = dict(zip(train["id"].to_pylist(), train["landmark_id"].to_pylist(), strict=True))
    few = table.slice(0, 7).to_pydict()
    manifest = manifest_of(
        few["id"],
        {LANDMARK_LEVEL: [str(landmark_of[name]) for name in few["id"]]},
        path=few["shard"],
        offset=few["offset"],
        size=few["size"],
        splits=["train"] * 4 + ["test"] * 3,
    )
    write_manifest(tmp_path / "manifest.parquet", manifest, Provenance("test"))
    out = tmp_path / "embeddings.parquet"
    arguments = (tmp_path / "manifest.parquet", out, loaded, EmbedImagesConfig("test", batch_size=2, workers=0))
    summary = embed(*arguments, root=shared / "wa_gldv2")
    embeddings, ids = read_with_ids(out)
    assert embeddings.landmark_ids is not None
    assert ids == few["id"][4:]
    assert embeddings.landmark_ids.tolist() == [landmark_of[name] for name in few["id"][4:]]
    assert (summary.images, summary.dim, summary.skipped) == (3, 96, ())
    reader = ImageReader(index, shared / "wa_gldv2")
    with torch.no_grad():
        for name, vector in zip(ids, embeddings.vectors, strict=True):
            alone = loaded.network(loaded.preprocess(reader.open(name))[None])[0]
            torch.testing.assert_close(vector, alone, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("suffix", ["parquet", "npy", "safetensors"])
@pytest.mark.parametrize("after", [0, 7, 21])
def test_killed_run_resumes_and_writes_the_same_bytes(
    loaded: ImageEmbedder, folder: Path, tmp_path: Path, suffix: str, after: int
) -> None:
    (folder / PATHS[4]).write_bytes(b"no picture")
    undisturbed, out = tmp_path / "a" / f"e.{suffix}", tmp_path / "b" / f"e.{suffix}"
    embed_images(folder, undisturbed, loaded, CONFIG)
    with pytest.raises(KilledError):
        embed_images(folder, out, loaded, CONFIG, progress=KillAfter(after))
    assert not out.exists()
    shards = {path: path.stat().st_mtime_ns for path in out.parent.glob(".*/part_*")}
    assert len(shards) == after // 5
    progress = KillAfter(100)
    summary = embed(folder, out, loaded, CONFIG, progress=progress)
    assert progress.total == summary.embedded == 22 - 5 * len(shards)
    assert_same_output(undisturbed, out)


@pytest.mark.parametrize(
    "suffix", ["npy", *(pytest.param(suffix, marks=pytest.mark.slow) for suffix in ("parquet", "safetensors"))]
)
def test_deviations_are_resumed_and_aligned(folder: Path, tmp_path: Path, suffix: str) -> None:
    model = load_model("test_resnet", "none", size=64, resize=64)
    for name in sorted(PATHS)[:6]:  # the whole first shard, and an image of the second
        (folder / name).write_bytes(b"no picture")
    config = EmbedImagesConfig(batch_size=3, shard_size=5, workers=0, with_std=True)
    undisturbed, out = tmp_path / "a" / f"e.{suffix}", tmp_path / "b" / f"e.{suffix}"
    embed_images(folder, undisturbed, model, config)
    with pytest.raises(KilledError):
        embed_images(folder, out, model, config, progress=KillAfter(12))
    embed_images(folder, out, model, config)
    assert_same_output(undisturbed, out)
    _, ids = read_with_ids(out)
    deviations = read_deviations(out, np.array(ids))
    assert deviations.shape == (16, 96)
    assert deviations.dtype == torch.float32
    few = [ids[9], ids[2]]
    torch.testing.assert_close(read_deviations(out, few), deviations[[9, 2]])
    with torch.no_grad():
        for name, values in zip(few, deviations[[9, 2]], strict=True):
            image = model.preprocess(Image.open(folder / name))[None]
            torch.testing.assert_close(values, model.network.embed_with_deviations(image)[1][0], rtol=1e-4, atol=1e-6)
    with pytest.raises(InputError, match="1 of the 1 images are not embedded"):
        read_deviations(out, [sorted(PATHS)[0]])
    assert embed_images(folder, out, model, config) is None
    path_beside(out, "deviations").unlink()
    assert embed_images(folder, out, model, config) is not None
    embed_images(folder, out, model, CONFIG)
    assert not list(out.parent.glob("*deviations*"))
    with pytest.raises(InputError, match="again with hgld embed-images --with-std"):
        read_deviations(out)


def test_command_writes_deviations_of_real_photographs(shared: Path, tmp_path: Path) -> None:
    index_images(shared / "wa_gldv2", tmp_path / "images.parquet")
    few = read_table(tmp_path / "images.parquet", IMAGES).slice(0, 3).to_pydict()
    manifest = manifest_of(
        few["id"], {LANDMARK_LEVEL: ["1"] * 3}, path=few["shard"], offset=few["offset"], size=few["size"]
    )
    write_manifest(tmp_path / "manifest.parquet", manifest, Provenance("test"))
    out = tmp_path / "e.safetensors"
    arguments = [
        "embed-images",
        "--manifest",
        str(tmp_path / "manifest.parquet"),
        "--images",
        str(shared / "wa_gldv2"),
    ]
    options = ["--model", "test_resnet", "--pretrained", "none", "--size", "96", "--workers", "0", "--with-std"]
    run_hgld(*arguments, *options, "-o", out)
    deviations = read_deviations(out)
    assert deviations.shape == (3, 96)
    assert not torch.allclose(deviations[0], deviations[1], rtol=0.01)
    result = run_hgld(*arguments, *options, "--scales", "1,0.5", "-o", out, code=1)
    assert "error: --with-std is set and --scales is [1.0, 0.5]" in result.stderr


def test_unreadable_images_are_skipped_and_listed(loaded: ImageEmbedder, folder: Path, tmp_path: Path) -> None:
    whole = (folder / PATHS[0]).read_bytes()
    embed_images(folder, tmp_path / "all.npy", loaded, CONFIG)
    broken = sorted(PATHS)[3:7]  # the whole first batch of a shard of two, and an image of the next batch
    for path in broken:
        (folder / path).write_bytes(whole[: len(whole) // 2])
    out = tmp_path / "e.npy"
    summary = embed(folder, out, loaded, CONFIG)
    assert (summary.images, summary.skipped) == (18, tuple(broken))
    assert f"4 images could not be read; see {tmp_path / 'e.skipped.csv'}" in format_embed_images(summary)
    with (tmp_path / "e.skipped.csv").open(newline="") as stream:
        listed = list(csv.DictReader(stream))
    assert [row["id"] for row in listed] == broken
    assert not any(row["reason"].startswith(row["id"]) for row in listed)
    (left, ids), (every, every_id) = read_with_ids(out), read_with_ids(tmp_path / "all.npy")
    assert ids == [name for name in every_id if name not in broken]
    torch.testing.assert_close(left.vectors, every.vectors[~np.isin(every_id, broken)], atol=1e-6, rtol=1e-5)


def test_nothing_is_written_without_readable_images(loaded: ImageEmbedder, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"none of the 1 images can be read; .*\n  a.jpg: not an image"):
        embed_images(tmp_path, tmp_path / "e.parquet", loaded, CONFIG)
    assert not (tmp_path / "e.parquet").exists()


def test_output_is_made_again_when_something_changed(loaded: ImageEmbedder, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "e.safetensors"

    def run(config: EmbedImagesConfig = CONFIG, model: ImageEmbedder = loaded) -> EmbedImagesSummary | None:
        return embed_images(folder, out, model, config)

    assert run() is not None
    assert run() is None
    assert embed_images(folder, out, loaded, CONFIG, force=True) is not None
    assert run(EmbedImagesConfig(batch_size=3, shard_size=5, workers=0, scales=(1, 0.5))) is not None
    assert run() is not None
    torch.manual_seed(5)
    other = load_model("test_resnet", "none", size=32, resize=32)
    with torch.no_grad():
        next(other.network.parameters()).mul_(1.1)
    assert run(model=other) is not None
    (folder / PATHS[0]).write_bytes(picture("another"))
    assert run(model=other) is not None
    for name in ("e.safetensors", "e.ids.txt", "e.skipped.csv", "e.made.json"):
        (tmp_path / name).unlink()
        assert run(model=other) is not None, name
    out.write_bytes(out.read_bytes()[:-1])
    assert run(model=other) is not None


def test_shards_of_other_settings_are_refused(loaded: ImageEmbedder, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "e.npy"
    with pytest.raises(KilledError):
        embed_images(folder, out, loaded, CONFIG, progress=KillAfter(12))
    other = EmbedImagesConfig(batch_size=2, shard_size=5, workers=0)
    with pytest.raises(
        ConfigurationError,
        match=r"of other settings or images; run with those to resume, .*\n  batch_size: 3 then, 2 now$",
    ):
        embed_images(folder, out, loaded, other)
    assert embed(folder, out, loaded, other, force=True).embedded == 22


@pytest.mark.parametrize("force", [False, True])
def test_embeddings_of_other_programs_are_not_replaced(
    loaded: ImageEmbedder, folder: Path, tmp_path: Path, force: bool
) -> None:
    np.save(tmp_path / "out.npy", np.ones((2, 3)))
    before = (tmp_path / "out.npy").read_bytes()
    with pytest.raises(
        ConfigurationError, match=r"exists, and hgld did not write it \(out.made.json is not beside it"
    ):
        embed(folder, tmp_path / "out.npy", loaded, force=force)
    assert (tmp_path / "out.npy").read_bytes() == before


def test_concurrent_runs_on_the_same_output_are_refused(loaded: ImageEmbedder, folder: Path, tmp_path: Path) -> None:
    with exclusive_lock(tmp_path / "e.npy"), pytest.raises(BusyError, match="another run is writing"):
        embed_images(folder, tmp_path / "e.npy", loaded, CONFIG)


def test_scales_are_numbers_separated_by_commas() -> None:
    parse_scales = parse_numbers("scales", "1,0.7071,1.4142")
    for text, scales in (("1", (1.0,)), ("1,0.7071, 1.4142", (1.0, 0.7071, 1.4142)), ("2e0", (2.0,))):
        assert parse_scales(text) == scales
    for text in ("", "1,", "1;2", "1,x"):
        with pytest.raises(ConfigurationError, match=f'`scales` is "{text}"; expected numbers such as'):
            parse_scales(text)


def test_half_precision_changes_embeddings_less_than_scales(
    loaded: ImageEmbedder, folder: Path, tmp_path: Path
) -> None:
    def embedded(**changes: object) -> torch.Tensor:
        config = EmbedImagesConfig(batch_size=3, workers=0, **changes)  # type: ignore[arg-type]
        embed_images(folder, tmp_path / "e.npy", loaded, config)
        return read_embeddings(tmp_path / "e.npy").vectors.clone()

    plain, half, scaled = embedded(), embedded(half=True), embedded(scales=(1.0, 2.0))
    assert half.dtype == torch.float32
    assert not torch.equal(plain, half)
    assert (plain * half).sum(1).min() > 0.999
    assert (plain * scaled).sum(1).max() < 0.9999
    torch.testing.assert_close(scaled.norm(dim=1), torch.ones(22))


def test_pictures_of_unequal_shape_are_embedded_as_each_alone(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for n, size in enumerate([(60, 40), (40, 60), (33, 70)]):
        (folder / PATHS[n]).write_bytes(picture(PATHS[n], size))
    out = tmp_path / "e.parquet"
    options = ["--model", "test_resnet", "--pretrained", "none", "--size", "48", "--fit", "longest", "--workers", "0"]
    scales = ["--scales", "1,0.7071", "--interpolation", "lanczos"]
    caplog.set_level("INFO")
    run_hgld("embed-images", "--images", folder, *options, *scales, "-o", out)
    assert "images of test_resnet: longer side at most 48 pixels, aspect ratio kept, lanczos" in caplog.text
    model = load_model("test_resnet", "none", size=48, fit="longest", interpolation="lanczos")
    written, ids = read_with_ids(out)
    tensors = {name: model.preprocess(Image.open(folder / name)) for name in ids}
    assert {tensor.shape[1:] for tensor in tensors.values()} == {(32, 48), (48, 32), (48, 23), (16, 20)}
    for tensor, vector in zip(tensors.values(), written.vectors, strict=True):
        with torch.no_grad():
            alone = model.network.multi_scale(tensor[None], (1, 0.7071))
        torch.testing.assert_close(vector, alone[0], rtol=1e-4, atol=1e-6)
    query_model = load_query_model(out, model.dim)
    assert query_model.embedder.image_settings == model.image_settings
    torch.testing.assert_close(query_model.embed_path(folder)[0], written.vectors, rtol=1e-4, atol=1e-6)


def test_embeddings_that_are_not_finite_are_refused(folder: Path, tmp_path: Path) -> None:
    model = load_model("test_resnet", "none", size=32, resize=32)
    with torch.no_grad():
        next(model.network.parameters()).fill_(torch.nan)
    with pytest.raises(InputError, match="not finite; check its weights$"):
        embed_images(folder, tmp_path / "e.npy", model, CONFIG)


def test_out_of_memory_is_explained(loaded: ImageEmbedder, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(*_: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(EmbeddingModel, "forward", forward)
    with pytest.raises(
        ConfigurationError, match="3 images of 32 x 32 do not fit .* cpu; choose a smaller `batch_size`"
    ):
        embed_images(folder, folder / "e.npy", loaded, CONFIG)


def test_center_subtracts_the_mean_and_normalises(loaded: ImageEmbedder, folder: Path, tmp_path: Path) -> None:
    vectors = []
    for center in (False, True):
        embed_images(folder, tmp_path / "e.npy", loaded, EmbedImagesConfig(workers=0, shard_size=5, center=center))
        vectors.append(read_embeddings(tmp_path / "e.npy").vectors.double().numpy().copy())
    plain, centred = vectors
    expected = plain - plain.mean(0)
    np.testing.assert_allclose(centred, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-5)


def test_image_index_is_relative_to_its_folder(loaded: ImageEmbedder, tmp_path: Path) -> None:
    write_tar(tmp_path / "1.tar", {f"{n}.jpg": picture(str(n), file_format="JPEG") for n in "ab"})
    index_images(tmp_path, tmp_path / "images.parquet")
    embed_images(tmp_path / "images.parquet", tmp_path / "e.npy", loaded, CONFIG)
    assert read_with_ids(tmp_path / "e.npy")[1] == ["a", "b"]


def test_missing_images_are_explained(loaded: ImageEmbedder, tmp_path: Path) -> None:
    def run(images: Path, **changes: object) -> None:
        embed_images(images, tmp_path / "e.npy", loaded, CONFIG, **changes)  # type: ignore[arg-type]

    with pytest.raises(InputError, match="absent: no such file; expected a manifest, the table"):
        run(tmp_path / "absent")
    with pytest.raises(InputError, match=r"absent\.jpg: no such file; expected a picture$"):
        run(tmp_path / "absent.jpg")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(InputError, match=r"no images in this folder or in tar files below it .*; found 1 .txt$"):
        run(tmp_path)
    save_pictures(tmp_path / "twice", "train/a/b/c/abcd.jpg", "index/a/b/c/abcd.jpg", "index/a/b/c/x.jpg")
    with pytest.raises(InputError, match=r"1 images are there several times.*\n  abcd: index/a/b/c/abcd.jpg, train/"):
        run(tmp_path / "twice")
    pa_csv.write_csv(pa.table({"id": [1]}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"t.parquet: cannot be read as a table"):
        run(tmp_path / "t.parquet")
    write_tar(tmp_path / "1.tar", {"a.jpg": picture("a")})
    index_images(tmp_path, tmp_path / "images.parquet")
    with pytest.raises(InputError, match="1 of the manifest's 1 tar files are not in this folder"):
        run(tmp_path / "images.parquet", root=tmp_path / "twice")
    with pytest.raises(InputError, match=r'the suffix is ".txt"; embeddings are in'):
        embed_images(tmp_path, tmp_path / "e.txt", loaded)


def test_landmark_level_with_names_gives_no_landmark_ids(loaded: ImageEmbedder, folder: Path, tmp_path: Path) -> None:
    manifest: Manifest = manifest_of(PATHS[:2], {"landmark": ["1", "x"]})
    write_manifest(tmp_path / "manifest.parquet", manifest, Provenance("test"))
    embed_images(tmp_path / "manifest.parquet", tmp_path / "e.parquet", loaded, CONFIG, root=folder)
    assert read_embeddings(tmp_path / "e.parquet").landmark_ids is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scales": ()}, "expected at least one number, all above 0"),
        ({"scales": (1, 0)}, "expected at least one number, all above 0"),
        ({"batch_size": 0}, "`batch_size` is 0"),
        ({"workers": -1}, "`workers` is -1"),
    ],
)
def test_bad_settings_are_explained(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        EmbedImagesConfig(**settings)  # type: ignore[arg-type]


def test_unknown_device_is_named(loaded: ImageEmbedder, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match='the device "tpu9" cannot be used'):
        embed_images(folder, tmp_path / "e.npy", loaded, EmbedImagesConfig(device="tpu9"))


def test_summary_counts_unreadable_images_and_vectors_of_zeros(folder: Path, tmp_path: Path) -> None:
    (folder / "damaged.png").write_bytes(b"no picture")
    Image.new("RGB", (40, 40)).save(folder / "black.png")
    model = load_model("test_resnet", "none", size=32)
    model = replace(model, image_settings=model.image_settings.model_copy(update={"mean": (0.0, 0.0, 0.0)}))
    summary = embed(folder, tmp_path / "e.npy", model, EmbedImagesConfig(workers=0))
    assert (summary.images, summary.skipped, summary.zeros) == (23, ("damaged.png",), ("black.png",))
    text = format_embed_images(summary)
    assert "23 of 24 images embedded in 96 dimensions; 24 tried in this run" in text
    assert "1 image with a vector of zeros" in text
    assert "  black.png" in text


def test_command_writes_embeddings(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "e.parquet"
    arguments = ["embed-images", "--images", str(folder), "-o", str(out), *MODEL_OPTIONS, "--workers", "0"]
    assert "22 images embedded in 96 dimensions; 22 of them in this run" in run_hgld(*arguments).stdout
    assert read_embeddings(out).vectors.shape == (22, 96)
    assert f"{out}: up to date" in run_hgld(*arguments).stdout
    result = run_hgld(*arguments, "--scales", "x", code=1)
    assert 'error: --scales is "x"; expected numbers such as 1,0.7071,1.4142' in result.stderr
    result = run_hgld(*arguments, "--scales", "1,0.5")
