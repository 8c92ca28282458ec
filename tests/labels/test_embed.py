from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from hgld import tables
from hgld.errors import ConfigurationError, InputError
from hgld.labels.embed import EmbedSummary, embed_file, embed_labels, embedding_matrix
from hgld.labels.settings import EmbedConfig


class Letters:
    """Counts letters: an encoder whose vectors can be computed by hand."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.calls.append(list(texts))
        return np.array([[text.count("a"), text.count("e"), 1] for text in texts], np.float32)


@pytest.fixture
def letters() -> Letters:
    return Letters()


Run = Callable[..., EmbedSummary]
MINILM = EmbedConfig(encoder="minilm", templates=["{}"])


@pytest.fixture
def run(write_clean: Callable[..., Path], letters: Letters, tmp_path: Path) -> Callable[..., EmbedSummary | None]:
    """Embed the labels of landmarks with the letter counter, always into the same file."""

    def run(landmarks: Sequence[Any], config: EmbedConfig = MINILM, *, force: bool = False) -> EmbedSummary | None:
        clean, out = write_clean(landmarks), tmp_path / "e.parquet"
        return embed_file(clean, out, config, force=force, load=lambda *_: letters)

    return run


def read(tmp_path: Path) -> pa.Table:
    return tables.read_table(tmp_path / "e.parquet", tables.LABEL_EMBEDDINGS)


LANDMARKS = [("train", "lake", "Q2"), ("index", "lake", "Q2"), ("train", "lake", "Q2"), ("train", "bay", None)]


def test_unique_labels_have_counts_and_unit_vectors(run: Run, tmp_path: Path) -> None:
    assert run(LANDMARKS).labels == 2
    table = read(tmp_path)
    lake, bay = table.to_pylist()
    assert (lake["label_id"], lake["label"]) == ("Q2", "lake")
    assert (lake["landmarks_train"], lake["landmarks_index"]) == (2, 1)
    assert bay["label_id"].startswith("label-")
    np.testing.assert_allclose(lake["embedding"], np.array([1, 1, 1]) / np.sqrt(3), rtol=1e-6)
    np.testing.assert_allclose(bay["embedding"], np.array([1, 0, 1]) / np.sqrt(2), rtol=1e-6)
    assert embedding_matrix(table).dtype == np.float32
    made = tables.read_provenance(tmp_path / "e.parquet")
    assert made.parameters == {"encoder": "minilm", "templates": ["{}"]}


def test_templates_are_averaged_before_normalising(letters: Letters) -> None:
    vectors = embed_labels(["lake"], letters, ["{}", "area {}"])
    mean = np.array([(1 + 3) / 2, (1 + 2) / 2, 1])
    np.testing.assert_allclose(vectors, [mean / np.linalg.norm(mean)], rtol=1e-6)


def test_batch_size_is_respected_and_does_not_change_vectors(letters: Letters) -> None:
    labels = [f"label {n} " + "a" * n for n in range(7)]
    whole = embed_labels(labels, letters, batch_size=100)
    letters.calls.clear()
    np.testing.assert_array_equal(embed_labels(labels, letters, batch_size=3), whole)
    assert [len(texts) for texts in letters.calls] == [3, 3, 1]
    assert letters.calls[0][0] == "A picture of a label 0 "


def test_existing_vectors_are_reused(run: Run, letters: Letters, tmp_path: Path) -> None:
    run(LANDMARKS)
    assert run(LANDMARKS) is None
    letters.calls.clear()

    grown = [*LANDMARKS, ("index", "cape", None), ("index", "lake", "Q7")]
    assert run(grown).encoded == 1
    assert letters.calls == [["cape"]], "the lake of another item is the same text"
    assert sorted(read(tmp_path)["label"].to_pylist()) == ["bay", "cape", "lake", "lake"]

    letters.calls.clear()
    assert run(LANDMARKS[:1]).encoded == 0
    assert letters.calls == []
    assert len(read(tmp_path)) == 1


def test_other_encoder_template_or_checkpoint_encodes_again(run: Run, letters: Letters, tmp_path: Path) -> None:
    weights = tmp_path / "weights.pt"
    weights.write_bytes(b"one")
    run(LANDMARKS)
    for config in (
        EmbedConfig(encoder="minilm", templates=["a {}"]),
        EmbedConfig(encoder="open_clip:ViT-B-32/openai", templates=["a {}"]),
        EmbedConfig(encoder=f"open_clip:ViT-B-32/{weights}", templates=["a {}"]),
    ):
        assert run(LANDMARKS, config).encoded == 2
        assert run(LANDMARKS, config) is None
    weights.write_bytes(b"other")
    assert run(LANDMARKS, config).encoded == 2, "the file's content counts, not its name"
    assert run(LANDMARKS, config, force=True).encoded == 2


def test_device_and_batch_size_do_not_encode_again(run: Run) -> None:
    run(LANDMARKS)
    assert run(LANDMARKS, EmbedConfig(encoder="minilm", templates=["{}"], batch_size=1, device="cpu")) is None


@pytest.mark.parametrize("template", ["A picture", "{} and {}", "{0}"])
def test_template_needs_exactly_one_placeholder(template: str) -> None:
    with pytest.raises(ConfigurationError, match="exactly one"):
        EmbedConfig(templates=[template])


def test_braces_in_labels_are_literal(letters: Letters) -> None:
    embed_labels(["{0} {}"], letters, ["{x} {}"])
    assert letters.calls == [["{x} {0} {}"]]


def test_invalid_settings_and_inputs_are_reported(run: Run) -> None:
    with pytest.raises(ConfigurationError, match="`templates` is empty"):
        EmbedConfig(templates=[])
    with pytest.raises(ConfigurationError, match="`batch_size` is 0"):
        EmbedConfig(batch_size=0)
    with pytest.raises(ConfigurationError, match='no encoder is called "bert"'):
        run(LANDMARKS, EmbedConfig(encoder="bert"))
    with pytest.raises(InputError, match="no landmarks"):
        run([])


def test_zero_vectors_are_rejected() -> None:
    class Nothing:
        def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
            return np.zeros((len(texts), 3), np.float32)

    with pytest.raises(ConfigurationError, match='no usable vector for 2 labels, first "lake"'):
        embed_labels(["lake", "bay"], Nothing())


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_a_single_unusable_vector_is_rejected(value: float) -> None:
    class WithoutBays:
        def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
            return np.array([[1, 2, 3] if "bay" not in text else [value] * 3 for text in texts], np.float32)

    with pytest.raises(ConfigurationError, match='no usable vector for 1 labels, first "bay"'):
        embed_labels(["lake", "a longer label", "bay", "fjord"], WithoutBays(), batch_size=2)
