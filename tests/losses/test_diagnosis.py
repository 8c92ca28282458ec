"""Diagnosis of embeddings, and quality of steps, against plain loops."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from hgld.datasets.samplers import ClassBalancedSampler
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation import EvaluationFiles
from hgld.evaluation.decomposability import calibrated_gap_bound, gap_bound
from hgld.losses import Heaviside, Sigmoid, Step, SupRankStep, suprank_step
from hgld.losses.diagnosis import (
    ap_errors,
    diagnose,
    diagnose_files,
    operating_intervals,
    operating_shares,
    relative_decrease,
)
from hgld.losses.settings import DiagnosisConfig
from hgld.tables.embeddings import write_embeddings
from tests.commands import run_hgld
from tests.losses.batches import LABELS, class_vectors, unit_vectors

X = class_vectors(LABELS)
STEPS: list[Step] = [
    Sigmoid(0.001),
    Sigmoid(0.01),
    Sigmoid(0.3),
    suprank_step("eq4"),
    suprank_step("cfginat", tau=0.1),
    SupRankStep(rho=0),
]


def slow_average_precision(scores: torch.Tensor, positives: list[int], others: list[int], step: Step) -> float:
    """Return AP with a sigmoid for all steps, or H^- for the steps of negatives and exact ones for positives."""
    total = 0.0
    for k in positives:
        steps = {j: (scores[j] - scores[k]) for j in others if j != k}
        plus_step: Step = step if isinstance(step, Sigmoid) else Heaviside()
        plus = 1 + sum(float(plus_step.value(t)) for j, t in steps.items() if j in positives)
        minus = sum(float(step.value(t)) for j, t in steps.items() if j not in positives)
        total += plus / (plus + minus)
    return total / len(positives)


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_errors_of_ap_agree_with_loops(step: Step) -> None:
    expected = []
    for q in range(len(X)):
        others = [j for j in range(len(X)) if j != q]
        positives = [j for j in others if LABELS[j] == LABELS[q]]
        if positives:
            values = [slow_average_precision(X @ X[q], positives, others, each) for each in (step, Heaviside())]
            expected.append(abs(values[0] - values[1]))
    assert ap_errors(X, LABELS, step).tolist() == pytest.approx(expected, abs=1e-9)


def test_lower_temperatures_approximate_ap_better() -> None:
    """Brown et al., Fig. 4."""
    labels = torch.arange(20).repeat_interleave(4)
    x = unit_vectors(80, dim=16)
    errors = [float(ap_errors(x, labels, Sigmoid(tau)).mean()) for tau in (0.1, 0.01, 0.001, 0.0001)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 10 * errors[-1]


@pytest.mark.parametrize("threshold", [0.005, 2.0])
@pytest.mark.parametrize("step", STEPS, ids=str)
def test_shares_in_the_operating_region_agree_with_loops(step: Step, threshold: float) -> None:
    n = len(X)
    differences = torch.stack([s[:, None] - s[None, :] for s in X @ X.T])  # query, j, k
    steep = step.slope(differences.clone()) > threshold
    ranked = torch.zeros_like(steep)
    for q in range(n):
        for k in range(n):
            for j in range(n):
                ranked[q, j, k] = k != q and LABELS[k] == LABELS[q] and LABELS[j] != LABELS[q]
    wrong = ranked & (differences > 0)
    shares = operating_shares(X, LABELS, step, threshold=threshold)
    assert shares.pairs == pytest.approx(float(steep.double().mean()), abs=1e-12)
    assert shares.ranked_negatives == pytest.approx(float(steep[ranked].double().mean()), abs=1e-12)
    assert shares.wrong_negatives == pytest.approx(float(steep[wrong].double().mean()), abs=1e-12)


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_intervals_are_where_the_slope_exceeds_the_threshold(step: Step) -> None:
    t = torch.linspace(-2, 2, 4001, dtype=torch.float64)
    inside = torch.zeros_like(t, dtype=torch.bool)
    for low, high in operating_intervals(step, 0.005):
        inside |= (t > low) & (t < high)
    assert torch.equal(inside, step.slope(t.clone()) > 0.005)


def test_suprank_reaches_all_negatives_that_are_ranked_wrongly_and_a_sigmoid_few() -> None:
    x, labels = unit_vectors(64, dim=16), torch.arange(16).repeat_interleave(4)
    assert operating_shares(x, labels, SupRankStep()).wrong_negatives == 1
    assert operating_shares(x, labels, Sigmoid()).wrong_negatives < 0.3


def test_a_perfect_ranking_has_gradients_between_equal_scores_only() -> None:
    x = torch.eye(4, dtype=torch.float64).repeat_interleave(3, 0)
    shares = operating_shares(x, torch.arange(4).repeat_interleave(3), Sigmoid())
    assert math.isnan(shares.wrong_negatives)
    assert shares.ranked_negatives == 0
    assert shares.pairs == pytest.approx((3 * 3 + 9 * 9) / 12**2)


def test_what_has_no_region_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="`threshold` is 0; expected more than 0"):
        operating_intervals(Sigmoid(), 0)
    with pytest.raises(ConfigurationError, match="has no operating region"):
        operating_shares(X, LABELS, Heaviside())
    with pytest.raises(InputError, match="none of 8 queries has both a positive and a negative"):
        operating_shares(X, torch.arange(8), Sigmoid())
    assert operating_intervals(Sigmoid(100.0)) == []


CLASSES = np.repeat(np.arange(12), 4)
BALANCED = np.stack([CLASSES, CLASSES // 3], axis=1)
CONFIG = DiagnosisConfig(batch_size=16, per_class=2, temperatures=(0.01,), alpha=0.7, beta=0.5)


def embeddings(spread: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    noise = normalize(torch.randn(48, 16, generator=generator), dim=1)
    return 3 * normalize(torch.eye(16)[CLASSES] + spread * noise, dim=1)


def test_bounds_are_means_over_the_images_of_the_batches() -> None:
    diagnosis = diagnose(embeddings(), BALANCED, CONFIG)
    x = normalize(embeddings(), dim=1)
    batches = ClassBalancedSampler(BALANCED, 16, 2, seed=0).batches(0)
    values = []
    for query in np.concatenate(batches):
        counts = []
        for batch in batches:
            scores = x[batch] @ x[query]
            positive = (CLASSES[batch] == CLASSES[query]) & (batch != query)
            negative = CLASSES[batch] != CLASSES[query]
            low, high = (scores <= 0.7).numpy(), (scores > 0.5).numpy()
            counts.append([mask.sum() for mask in (positive, negative, positive & low, negative & high)])
        columns = [column[None] for column in np.array(counts).T]
        values.append((gap_bound(*columns[:2])[0], calibrated_gap_bound(*columns)[0]))
    expected = np.mean(values, axis=0)
    assert (diagnosis.images, diagnosis.classes, diagnosis.batches) == (48, 12, 3)
    assert (diagnosis.bound, diagnosis.calibrated_bound) == pytest.approx(tuple(expected), abs=1e-9)
    assert 0 < diagnosis.calibrated_bound < diagnosis.bound


def test_embeddings_with_calibrated_scores_have_a_smaller_gap() -> None:
    config = DiagnosisConfig(batch_size=16, per_class=4)
    worse, better = (diagnose(embeddings(spread), BALANCED, config) for spread in (2.0, 1.2))
    assert worse.gap.gap < better.gap.gap < 0
    assert relative_decrease(worse, better) == pytest.approx(1 - better.gap.gap / worse.gap.gap)
    perfect = diagnose(embeddings(0.0), BALANCED, config)
    assert (perfect.gap.gap, perfect.calibrated_bound) == (0, 0)
    assert relative_decrease(worse, perfect) == 1
    assert np.isnan(relative_decrease(perfect, worse))


def test_only_the_first_batches_are_used_on_demand() -> None:
    diagnosis = diagnose(embeddings(), BALANCED, DiagnosisConfig(16, 2, max_batches=1))
    assert (diagnosis.images, diagnosis.batches, diagnosis.gap.gap) == (16, 1, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_batches": 0}, "`max_batches` is 0"),
        ({"alpha": 2.0}, "`alpha` is 2.0 and `beta` 0.6; expected cosines"),
        ({"temperatures": (0.1, 0.0)}, "`temperatures` is 0.0; expected at least 1e-08"),
    ],
)
def test_settings_out_of_range_are_errors(options: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        DiagnosisConfig(**options)  # type: ignore[arg-type]


def test_embeddings_without_direction_are_errors() -> None:
    wrong = embeddings()
    wrong[3], wrong[5, 0] = 0, torch.nan
    with pytest.raises(InputError, match="are 0, NaN or infinite in 2 of 48 images, first in row 3"):
        diagnose(wrong, BALANCED, CONFIG)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Write embeddings of two models, and labels that begin at 100, without those of the last image."""
    ids = [f"image{n:02}" for n in range(48)]
    write_embeddings(tmp_path / "model.parquet", embeddings(0.8), ids)
    write_embeddings(tmp_path / "baseline.parquet", embeddings(2.0), ids)
    write_embeddings(tmp_path / "others.parquet", embeddings(2.0)[1:], ids[1:])
    labels = BALANCED + 100
    labels[-1] = -1
    np.save(tmp_path / "labels.npy", labels)
    return tmp_path


def test_files_are_diagnosed_like_arrays(files: Path) -> None:
    inputs = EvaluationFiles(files / "model.parquet", labels=files / "labels.npy")
    diagnosis, baseline = diagnose_files(inputs, files / "baseline.parquet", CONFIG)
    assert diagnosis == diagnose(embeddings(0.8)[:-1], BALANCED[:-1], CONFIG)
    assert baseline == diagnose(embeddings(2.0)[:-1], BALANCED[:-1], CONFIG)
    with pytest.raises(InputError, match="others.parquet has other images than .*model.parquet"):
        diagnose_files(inputs, files / "others.parquet", CONFIG)


def test_the_command_prints_tables_and_json(files: Path) -> None:
    command = ["diagnose", "--embeddings", str(files / "model.parquet"), "--manifest", str(files / "labels.npy")]
    command += ["--baseline", str(files / "baseline.parquet"), "--batch-size", "16", "--per-class", "2"]
    text = run_hgld(*command)
    document = json.loads(run_hgld(*command, "--tau", "0.02", "--json").stdout)
    assert document["config"]["temperatures"] == [0.02]
    assert list(document["steps"]) == ["sigmoid, tau 0.02", "H^- eq4", "H^- cfg144", "H^- cfginat"]
    decrease = 1 - document["gap"]["gap"] / document["baseline"]["gap"]["gap"]
    assert document["relative_decrease"] == pytest.approx(decrease)
    assert f"gap smaller than that of the baseline by {100 * decrease:.2f} %" in text.stdout
    assert f"{100 * document['calibrated_bound']:.2f}" in text.stdout
    counts = f"{document['images']} images of {document['classes']} classes in {document['batches']} batches of 16"
    assert text.stdout.startswith(f"{counts} with 2 of each class")
    recall = run_hgld(*command, "--metric", "R@1", "--max-batches", "1")
    assert "R@1 in %    whole set  batches   gap\n" in recall.stdout
    assert "with L_DG" not in recall.stdout  # bounds are those of AP
    assert "error: --tau is 0.0; expected at least 1e-08" in run_hgld(*command, "--tau", "0", code=1).stderr
