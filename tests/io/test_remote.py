"""Files at remote addresses, on a local server of S3's protocol and one of HTTP."""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from hgld.cli import app
from hgld.datasets.repack import RepackConfig, plan_repack
from hgld.io.remote import address, folder_of, local_copy, read_bytes

pytest.importorskip("s3fs", reason="files on S3 need s3fs")
MODEL = "def embed(images):\n    return images.reshape(len(images), -1)[:, :8]\n"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as server:
        for _ in range(600):
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
        server.terminate()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images as files and in a tar file, manifests of both, and embeddings with labels and a hierarchy."""
    folder = tmp_path_factory.mktemp("data")
    rng, names, places = np.random.default_rng(0), [f"{number}.png" for number in range(6)], []
    for name in names:
        Image.fromarray(rng.integers(256, size=(8, 8, 3), dtype=np.uint8)).save(folder / name)
    with tarfile.open(folder / "images.tar", "w") as archive:
        for name in names:
            archive.add(folder / name, name)
    with tarfile.open(folder / "images.tar") as archive:
        places = [f"{member.offset_data},{member.size}" for member in archive]
    labels = [f"{number // 2},{number // 4}" for number in range(6)]
    files = [f"{name},{name},all,{label}" for name, label in zip(names, labels, strict=True)]
    tars = [
        f"{name},images.tar,{place},all,{label}" for name, place, label in zip(names, places, labels, strict=True)
    ]
    (folder / "files.csv").write_text("\n".join(["id,path,split,product,kind", *files, ""]))
    (folder / "tars.csv").write_text("\n".join(["id,path,offset,size,split,product,kind", *tars, ""]))
    landmarks = [f"{name},{number // 2}" for number, name in enumerate(names)]
    (folder / "train.csv").write_text("\n".join(["id,landmark_id", *landmarks, ""]))
    header = "landmark_id,category,supercategory,hierarchical_label,natural_or_human_made"
    rows = [
        f"{number},,lake,{'lake' if number else 'tower'},{'natural' if number else 'human-made'}"
        for number in range(3)
    ]
    (folder / "train_label_to_hierarchical.csv").write_text("\n".join([header, *rows, ""]))
    for part, rows_of_part in (("01", slice(3)), ("02", slice(3, 6))):
        (folder / "parts").mkdir(exist_ok=True)
        np.save(folder / "parts" / f"{part}.npy", rng.standard_normal((3, 8), np.float32))
        (folder / "parts" / f"{part}.ids.txt").write_text("\n".join([*names[rows_of_part], ""]))
    np.save(folder / "q.npy", np.concatenate([np.load(folder / "parts" / f"0{part}.npy") for part in (1, 2)]))
    (folder / "q.ids.txt").write_text("\n".join([*names, ""]))
    return folder


@pytest.fixture
def bucket(endpoint: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in {"AWS_ENDPOINT_URL": endpoint, "HGLD_CACHE": str(tmp_path / "cache"), **keys}.items():
        monkeypatch.setenv(name, value)
    files = fsspec.filesystem("s3", skip_instance_cache=True)
    if not files.exists("images"):
        files.mkdir("images")
        files.put(f"{folder}/", "images/set", recursive=True)
    return "s3://images/set"


def hgld(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert not result.exit_code, result.output
    return result.stdout


def embed(images: str | Path, out: Path, *further: str) -> np.ndarray:
    (out.parent / "model.py").write_text(MODEL)
    model = f"python:{out.parent / 'model.py'}:embed"
    hgld("embed-images", "--images", images, "--model", model, "--size", "8", "-o", out, "--workers", "1", *further)
    array: np.ndarray = np.load(out)
    return array


@pytest.mark.parametrize("table", ["files.csv", "tars.csv"])
def test_images_are_embedded_as_local_ones(table: str, bucket: str, folder: Path, tmp_path: Path) -> None:
    expected = embed(folder / table, tmp_path / "local.npy")
    assert len(expected) == 6
    np.testing.assert_array_equal(embed(f"{bucket}/{table}", tmp_path / "remote.npy"), expected)
    shutil.copy(folder / table, tmp_path / table)
    np.testing.assert_array_equal(embed(tmp_path / table, tmp_path / "root.npy", "--root", bucket), expected)
    np.testing.assert_array_equal(embed(bucket, tmp_path / "folder.npy"), expected)


def test_plan_of_a_repack_counts_remote_files(bucket: str, folder: Path, tmp_path: Path) -> None:
    plans = [
        plan_repack(folder / "files.csv", tmp_path / "out", RepackConfig(size=4), root=root).source_bytes
        for root in (folder, Path(bucket))
    ]
    assert plans[0] == plans[1] == sum((folder / f"{number}.png").stat().st_size for number in range(6))


def test_embeddings_labels_and_hierarchies_are_evaluated(bucket: str, folder: Path) -> None:
    def evaluate(root: str | Path, embeddings: str) -> object:
        return json.loads(
            hgld(
                "evaluate", "--json", "--embeddings", f"{root}/{embeddings}", "--labels", f"{root}/train.csv",
                "--hierarchy", f"{root}/train_label_to_hierarchical.csv",
            )
        )  # fmt: skip

    assert evaluate(bucket, "q.npy") == evaluate(bucket, "parts") == evaluate(folder, "q.npy")


def test_copies_follow_changes_and_know_their_folder(bucket: str, tmp_path: Path) -> None:
    path = Path(f"{bucket}/new/list.csv")
    files = fsspec.filesystem("s3")
    for content in (b"a", b"b"):
        files.pipe_file(address(path), content)
        copy = local_copy(path)
        assert copy.read_bytes() == content
        assert str(copy).startswith(str(tmp_path / "cache"))
        assert address(folder_of(copy)) == f"{bucket}/new"
    with pytest.raises(FileNotFoundError, match="No such file"):
        read_bytes(Path(f"{bucket}/none.png"))


def test_images_are_read_over_http(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HGLD_CACHE", str(tmp_path / "cache"))
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        vectors = embed(f"http://127.0.0.1:{server.server_port}/files.csv", tmp_path / "remote.npy")
        server.shutdown()
    np.testing.assert_array_equal(vectors, embed(folder / "files.csv", tmp_path / "local.npy"))


def test_what_cannot_be_read_is_said_in_a_line(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def error(embeddings: str, *further: str) -> str:
        result = CliRunner().invoke(app, ["evaluate", "--embeddings", embeddings, *further])
        assert result.exit_code == 1
        assert result.output.count("\n") == 1
        return result.output

    assert "s3://images/set/none.npy: no such file or bucket" in error(f"{bucket}/none.npy")
    assert "s3://nowhere/none.npy: no such file or bucket" in error("s3://nowhere/none.npy")
    assert "results are written on this machine" in error("q.npy", "--per-query", f"{bucket}/values.parquet")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    assert "credentials" in error(f"{bucket}/q.npy")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    assert "install gcsfs" in error("gs://bucket/q.npy")
