import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import accuracy_score, cohen_kappa_score

from hgld.arrays import Floats
from hgld.cli.review import format_agreement
from hgld.errors import ConfigurationError, InputError
from hgld.figures.groups import Confusion, draw_confusion
from hgld.review.agreement import (
    MISSING,
    Agreement,
    Codes,
    agreement_files,
    cohen_kappa,
    confusion,
    krippendorff_alpha,
    measure_agreement,
    raw_agreement,
)
from hgld.review.decision_files import Opinions
from hgld.review.settings import AgreementConfig
from hgld.taxonomy.decisions import Category, write_decisions
from tests.assertions import not_none
from tests.commands import run_hgld
from tests.review.conftest import Label, decide

CONFIG = AgreementConfig()
DROP, UNSURE = "(drop)", "(unsure)"
#: Labels 0 to 9 with 1, 2, 4, ... landmarks.
LANDMARKS = {f"Q{n}": 2**n for n in range(10)}
ADA = decide("ada", "lake lake lake river drop drop unsure church tower -")
BEN = decide("ben", "lake lake river river drop lake unsure lake - church")


def measured(
    *opinions: Opinions, landmarks: Mapping[str, int] | None = LANDMARKS, config: AgreementConfig = CONFIG
) -> Agreement:
    return measure_agreement(opinions, landmarks, config)


def categories(*groups: str) -> list[Category]:
    """The categories of decisions for some groups, of dropped labels and of unsure ones."""
    return [*(Category("group", group) for group in groups), Category("drop"), Category("unsure")]


def test_counts_and_raw_agreement() -> None:
    result = measured(ADA, BEN)
    assert (result.annotators, result.labels, result.single) == (("ada", "ben"), 8, 2)
    (pair,) = result.by_label.pairs
    assert (pair.first, pair.second, pair.labels) == ("ada", "ben", 8)
    assert pair.raw.value == pytest.approx(5 / 8)
    assert result.by_landmark is not None
    (pair,) = result.by_landmark.pairs
    assert pair.raw.value == pytest.approx((1 + 2 + 8 + 16 + 64) / 255)


def test_agreement_by_group() -> None:
    groups = {group.category: group for group in measured(ADA, BEN).groups}
    assert {name: (group.both, group.only_one, group.specific) for name, group in groups.items()} == {
        "church": (0, 1, 0.0),
        "lake": (2, 3, 4 / 7),
        "river": (1, 1, 2 / 3),
        DROP: (1, 1, 2 / 3),
        UNSURE: (1, 0, 1.0),
    }
    # Both: landmarks 1 and 2; one only: 4, 32 and 128.
    assert groups["lake"].specific_by_landmark == pytest.approx(6 / (6 + 164))
    assert [group.category for group in measured(ADA, BEN).groups] == ["church", "lake", DROP, "river", UNSURE]


def test_disagreements_are_sorted_by_landmarks() -> None:
    result = measured(ADA, BEN)
    assert [(row.label_id, row.landmarks, dict(row.opinions)) for row in result.disagreements] == [
        ("Q7", 128, {"ada": "church", "ben": "lake"}),
        ("Q5", 32, {"ada": DROP, "ben": "lake"}),
        ("Q2", 4, {"ada": "lake", "ben": "river"}),
    ]
    assert [row.label_id for row in measured(ADA, BEN, landmarks=None).disagreements] == ["Q2", "Q5", "Q7"]
    text = format_agreement(result)
    assert "    128  label 7 (Q7)  ada: church, ben: lake; ada says: ada on 7; ben says: ben on 7" in text
    assert text.startswith("8 labels decided by two or more annotators, 2 by one only\n")


def test_guesses_are_ignored() -> None:
    result = measured(decide("ada", "unsure:lake lake"), decide("ben", "unsure lake"))
    assert not result.disagreements
    assert format_agreement(result).endswith("no disagreements")


def test_groups_may_be_called_like_decisions() -> None:
    """A label in a group called "(drop)" is not dropped, in numbers and in texts."""
    first, second = decide("ada", "(drop) (unsure) lake drop"), decide("ben", "drop unsure lake drop")
    result = measured(first, second)
    assert result.by_label.pairs[0].raw.value == 0.5
    assert {group.category: (group.both, group.only_one) for group in result.groups} == {
        "lake": (1, 0),
        DROP: (1, 1),
        UNSURE: (0, 1),
        'group "(drop)"': (0, 1),
        'group "(unsure)"': (0, 1),
    }
    assert [dict(row.opinions) for row in result.disagreements] == [
        {"ada": 'group "(unsure)"', "ben": UNSURE},
        {"ada": 'group "(drop)"', "ben": DROP},
    ]
    confused = confusion(first, second, categories("(drop)", "(unsure)"), None)
    assert confused.names == ['group "(drop)"', 'group "(unsure)"', DROP, UNSURE]
    assert confused.counts.tolist() == [[0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 1, 0], [0, 0, 0, 0]]


def test_intervals_match_a_naive_bootstrap() -> None:
    """Draw and measure samples one by one; their percentiles differ little with so many of them."""
    rng = np.random.default_rng(1)
    names = np.array(["lake", "river", "church"])
    first = rng.integers(0, 3, 60)
    second = np.where(rng.random(60) < 0.7, first, rng.integers(0, 3, 60))
    ada, ben = decide("ada", " ".join(names[first])), decide("ben", " ".join(names[second]))
    slow = [(first == second)[rng.integers(0, 60, 60)].mean() for _ in range(4000)]
    config = AgreementConfig(n_resamples=4000)
    result = measured(ada, ben, landmarks=None, config=config)
    raw = result.by_label.pairs[0].raw
    assert (raw.low, raw.high) == pytest.approx(tuple(np.quantile(slow, [0.025, 0.975])), abs=0.01)
    assert result == measured(ada, ben, landmarks=None, config=config), "the seed determines the samples"
    narrow = measured(ada, ben, landmarks=None, config=AgreementConfig(confidence=0.5)).by_label
    assert raw.low < narrow.pairs[0].raw.low < raw.value < narrow.pairs[0].raw.high < raw.high


def test_coefficients_by_landmark_have_no_intervals() -> None:
    result = measured(ADA, BEN)
    pair = not_none(result.by_landmark).pairs[0]
    assert np.isnan([pair.raw.low, pair.raw.high, pair.kappa.low, pair.kappa.high]).all()
    assert f" {pair.raw.value:.3f}\n" in format_agreement(result)


def test_intervals_of_groups_match_a_naive_bootstrap() -> None:
    rng = np.random.default_rng(1)
    lakes = rng.random((60, 2)) < 0.5
    lakes[:, 1] ^= rng.random(60) < 0.2 * lakes[:, 0]
    ada, ben = (
        decide(name, " ".join(np.where(column, "lake", "church"))) for name, column in zip("ab", lakes.T, strict=True)
    )
    slow = []
    for _ in range(4000):
        first, second = lakes[rng.integers(0, 60, 60)].T
        slow.append(2 * (first & second).sum() / (first.sum() + second.sum()))
    groups = {group.category: group for group in measured(ada, ben, landmarks=None).groups}
    assert groups["lake"].specific == pytest.approx(2 * lakes.all(axis=1).sum() / lakes.sum())
    assert groups["lake"].interval == pytest.approx(tuple(np.quantile(slow, [0.025, 0.975])), abs=0.02)


def test_a_single_category_is_undefined() -> None:
    result = measured(decide("ada", "lake lake"), decide("ben", "lake lake"))
    text = format_agreement(result)
    assert text.count("undefined (both used one category)") == 2
    assert text.count("undefined (all used one category)") == 2
    assert "1.000 [1.000, 1.000]" in text
    assert json.loads(json.dumps(result.to_json()))["by_label"]["alpha"]["value"] is None


def test_more_than_two_annotators() -> None:
    cyd = decide("cyd", "lake lake lake - drop - - - tower church")
    result = measured(ADA, BEN, cyd)
    assert [(pair.first, pair.second, pair.labels) for pair in result.by_label.pairs] == [
        ("ada", "ben", 8),
        ("ada", "cyd", 5),
        ("ben", "cyd", 5),
    ]
    assert (result.labels, result.single) == (10, 0)
    assert result.disagreements[-1].opinions == {"ada": "lake", "ben": "river", "cyd": "lake"}
    groups = {group.category: group for group in result.groups}
    assert (groups["tower"].both, groups["tower"].only_one) == (1, 0)
    # ada and ben differ on Q2, and so do ben and cyd; the other pairs on Q0 to Q2 agree.
    assert (groups["lake"].both, groups["lake"].only_one) == (7, 4)


def test_annotators_without_common_labels_are_refused() -> None:
    with pytest.raises(InputError, match="ben and cyd decided no label in common"):
        measured(decide("ada", "lake lake"), decide("ben", "lake -"), decide("cyd", "- lake"))


def test_labels_without_landmark_counts_are_refused() -> None:
    with pytest.raises(InputError, match=r'the table of clusters lacks 2 labels.*\n  Q3 \("label 3"\)'):
        measured(ADA, BEN, landmarks={key: n for key, n in LANDMARKS.items() if key not in ("Q3", "Q4", "Q9")})


@pytest.mark.parametrize(
    "settings", [{"n_resamples": 0}, {"confidence": 1.0}, {"confidence": 0.0}, {"confidence": 95.0}]
)
def test_invalid_settings_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match="expected 0 < confidence < 1, and 1 or more resamples"):
        AgreementConfig(**settings)  # type: ignore[arg-type]


def test_agreement_command_and_its_files(tables: Callable[..., Path], tmp_path: Path) -> None:
    clusters = tables([Label(f"Q{n}", f"label {n}", train=n) for n in range(10)])
    paths = [tmp_path / "ada.csv", tmp_path / "ben.csv"]
    for path, opinions in zip(paths, (ADA, BEN), strict=True):
        write_decisions(path, opinions.decisions.values())
    out, figure = tmp_path / "agreement.json", tmp_path / "agreement.png"
    command = ["agreement", *map(str, paths), "--clusters", str(clusters), "-o", str(out), "--figure", str(figure)]
    result = run_hgld(*command)
    assert "Cohen's kappa (ada, ben)" in result.stdout
    assert result.stdout.endswith(f"{out}\n{figure}\n")
    report = json.loads(out.read_text())
    assert report["by_landmark"]["pairs"][0]["raw"]["value"] == pytest.approx((0 + 1 + 3 + 4 + 6) / 28)
    assert report["provenance"]["inputs"].keys() == {"decisions.0", "decisions.1", "clusters", "taxonomy"}
    assert figure.read_bytes().startswith(b"\x89PNG")
    before = out.read_bytes(), figure.read_bytes()
    run_hgld(*command)
    assert (out.read_bytes(), figure.read_bytes()) == before
    for other in ('{"annotators": ["ada"]}', "[1]", "notes"):
        out.write_text(other)
        assert "agreement.json: exists, and hgld did not write it" in run_hgld(*command, code=1).stderr
        assert out.read_text() == other

    with pytest.raises(ConfigurationError, match="give two or more"):
        agreement_files(paths[:1])
    (tmp_path / "other").mkdir()
    shutil.copy(paths[0], tmp_path / "other/ada.csv")
    with pytest.raises(ConfigurationError, match='two files are called "ada"'):
        agreement_files([paths[0], tmp_path / "other/ada.csv"])
    shutil.copy(paths[0], tmp_path / "cyd.csv")
    with pytest.raises(ConfigurationError, match="`figure` compares two annotators"):
        agreement_files([*paths, tmp_path / "cyd.csv"], figure=figure)


def test_confusion_has_only_confused_groups() -> None:
    result = confusion(ADA, BEN, categories("river", "tower", "lake", "church"), LANDMARKS, "landmarks")
    assert result.names == ["river", "lake", "church", DROP]
    assert result.counts.tolist() == [[8, 0, 0, 0], [4, 3, 0, 0], [0, 128, 0, 0], [0, 32, 0, 16]]
    assert (result.elsewhere, result.unit) == (64, "landmarks")
    assert confusion(ADA, BEN, categories("lake", "river", "church"), None).counts.sum() == 7


@pytest.mark.parametrize("n", [0, 1, 9])
def test_confusion_figure_of_any_size(tmp_path: Path, n: int) -> None:
    names = [f"group {number}" for number in range(n)]
    draw_confusion(tmp_path / "x.png", Confusion("ada", "ben", names, np.eye(n, dtype=np.int64), 5, "labels"))
    assert (tmp_path / "x.png").stat().st_size > 1000


def blind_on(opinions: Opinions, numbers: range) -> Opinions:
    """Return the decisions, those on the labels with these numbers as blind."""
    blind = {f"Q{number}" for number in numbers}
    rows = {key: replace(row, blind=key in blind) for key, row in opinions.decisions.items()}
    return Opinions(opinions.annotator, rows)


def test_blind_decisions_are_measured_apart() -> None:
    """Labels 2 to 5 are blind for both; the measures on them are those of files with only these labels."""
    ada, ben = blind_on(ADA, range(6)), blind_on(BEN, range(2, 9))
    result = measured(ada, ben)
    both_blind = [f"Q{number}" for number in range(2, 6)]

    def only(opinions: Opinions, *, blind: bool) -> Opinions:
        rows = {key: row for key, row in opinions.decisions.items() if (key in both_blind) == blind}
        return Opinions(opinions.annotator, rows)

    for subset, is_blind in ((result.blind, True), (result.not_blind, False)):
        alone = measured(only(ada, blind=is_blind), only(ben, blind=is_blind))
        assert subset is not None
        assert (subset.labels, subset.by_label) == (4, alone.by_label)
        assert str(subset.by_landmark) == str(alone.by_landmark), "as texts, since NaN differs from itself"
    assert (result.by_label, result.groups) == (measured(ADA, BEN).by_label, measured(ADA, BEN).groups)
    text = format_agreement(result)
    assert "4 labels decided blind, without suggestions\n" in text
    assert "the other 4 labels\n" in text
    assert result.to_json()["blind"]["labels"] == 4
    assert result.to_json()["mixed"] == 4
    assert "warning: 4 labels decided blind by one annotator and with suggestions by another" in text


def test_warning_if_only_one_annotator_was_blind() -> None:
    result = measured(blind_on(ADA, range(10)), blind_on(BEN, range(0)))
    assert (result.labels, result.mixed, result.blind) == (8, 8, None)
    warning = "warning: 8 labels decided blind by one annotator and with suggestions by another"
    assert warning in format_agreement(result)


def test_unknown_conditions_count_as_not_blind() -> None:
    assert measured(ADA, BEN).blind is None
    assert measured(ADA, blind_on(BEN, range(10))).blind is None
    assert "blind" not in format_agreement(measured(ADA, BEN))
    everything = measured(blind_on(ADA, range(10)), blind_on(BEN, range(10)))
    assert everything.not_blind is None
    assert everything.blind is not None
    assert everything.blind.by_label == everything.by_label
    assert "all labels were decided blind, without suggestions" in format_agreement(everything)


def test_annotators_without_a_blind_label_in_common_are_undefined() -> None:
    cyd = blind_on(decide("cyd", "lake lake lake - drop - - - tower church"), range(3))
    result = measured(blind_on(ADA, range(1)), blind_on(BEN, range(1, 3)), cyd)
    assert result.blind is None, "every blind label was decided by somebody who saw suggestions"
    ada, ben = decide("ada", "lake lake river -"), decide("ben", "lake - - river")
    cyd = decide("cyd", "lake lake - lake")
    result = measured(blind_on(ada, range(1, 4)), blind_on(ben, range(1, 4)), blind_on(cyd, range(1, 4)))
    assert result.blind is not None
    assert [pair.labels for pair in result.blind.by_label.pairs] == [0, 1, 1]
    assert "undefined (no label in common)" in format_agreement(result)


def codes(annotators: st.SearchStrategy[int], *, missing: int = 0) -> st.SearchStrategy[Codes]:
    """Draw decisions on up to 12 units; the lowest code is ``MISSING`` if decisions may be missing."""
    shape = st.tuples(st.integers(1, 12), annotators)
    return shape.flatmap(lambda shape: hnp.arrays(np.int64, shape, elements=st.integers(-missing, 3)))


pairs = codes(st.just(2))
gaps = codes(st.integers(2, 4), missing=1)


def ones(units: Codes) -> Floats:
    return np.ones(len(units))


def naive_alpha(units: Codes) -> float:
    """Alpha from the coincidence matrix, pair by pair, as in section C of Krippendorff (2011)."""
    coincidences = np.zeros((10, 10))
    for unit in units:
        values = [value for value in unit if value != MISSING]
        for first, second in permutations(range(len(values)), 2):
            coincidences[values[first], values[second]] += 1 / (len(values) - 1)
    totals = coincidences.sum(axis=1)
    n = totals.sum()
    agreement = sum(coincidences[c, c] for c in range(10))
    chance = sum(total * (total - 1) for total in totals)
    return float(((n - 1) * agreement - chance) / (n * (n - 1) - chance))


def units_from(*rows: str) -> Codes:
    """Return codes of units from one string per annotator, in which a dot is a missing decision."""
    codes: Codes = np.array([[MISSING if code == "." else int(code) for code in row] for row in rows]).T
    return codes


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # Krippendorff 2011: two observers with binary data, with nominal data, four with missing data.
        (("0100000010", "1110010000"), 0.095),
        (("112243335441", "212223335444"), 0.692),
        (("123321412...", "1233224125.3", ".3332342251.", "12332441251."), 0.743),
    ],
)
def test_alpha_of_published_examples(rows: tuple[str, ...], expected: float) -> None:
    units = units_from(*rows)
    result = krippendorff_alpha(units, ones(units))
    assert result == pytest.approx(naive_alpha(units))
    assert round(float(result), 3) == expected


def test_kappa_of_a_published_example() -> None:
    """Two readers of fifty applications: both accept 20 and refuse 15, only one of them accepts 5 and 10."""
    first = np.repeat([0, 0, 1, 1], [20, 5, 10, 15])
    second = np.repeat([0, 1, 0, 1], [20, 5, 10, 15])
    assert cohen_kappa(first, second, np.ones(50)) == pytest.approx(0.4)


@given(pairs, st.data())
def test_two_annotators_match_scikit_learn(units: Codes, data: st.DataObject) -> None:
    first, second = units.T
    weights = data.draw(hnp.arrays(np.float64, len(units), elements=st.integers(1, 50).map(float)))
    assert raw_agreement(first, second, weights) == pytest.approx(
        accuracy_score(first, second, sample_weight=weights)
    )
    result = cohen_kappa(first, second, weights)
    if len({*first, *second}) == 1:
        assert np.isnan(result)
    else:
        assert result == pytest.approx(cohen_kappa_score(first, second, sample_weight=weights))


@given(gaps)
def test_alpha_matches_the_coincidence_matrix(units: Codes) -> None:
    result = krippendorff_alpha(units, ones(units))
    pairable = units[(units != MISSING).sum(axis=1) >= 2]
    if len({*pairable.ravel()} - {MISSING}) <= 1:
        assert np.isnan(result)
    else:
        assert result == pytest.approx(naive_alpha(units))


@given(gaps, st.data())
def test_integer_weights_match_repeated_units(units: Codes, data: st.DataObject) -> None:
    weights = data.draw(hnp.arrays(np.int64, (3, len(units)), elements=st.integers(0, 4)))
    first, second = units[:, 0], units[:, 1]
    measures: list[tuple[Callable[..., Floats], tuple[Codes, ...]]] = [
        (raw_agreement, (first, second)),
        (cohen_kappa, (first, second)),
        (krippendorff_alpha, (units,)),
    ]
    for measure, arguments in measures:
        weighted = measure(*arguments, weights.astype(np.float64))
        for row, result in zip(weights, weighted, strict=True):
            repeated = [np.repeat(argument, row, axis=0) for argument in arguments]
            expected = measure(*repeated, np.ones(row.sum()))
            np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12, equal_nan=True)


def test_units_with_one_decision_are_ignored() -> None:
    units = units_from("0011", "0101")
    first, second = units.T
    more = np.vstack([units, [[5, MISSING], [MISSING, 6]]])
    for weights in (ones(more), np.array([3.0, 1, 1, 1, 100, 100])):
        for result, expected in (
            (raw_agreement(more[:, 0], more[:, 1], weights), raw_agreement(first, second, weights[:4])),
            (cohen_kappa(more[:, 0], more[:, 1], weights), cohen_kappa(first, second, weights[:4])),
            (krippendorff_alpha(more, weights), krippendorff_alpha(units, weights[:4])),
        ):
            assert result == pytest.approx(expected)


def test_no_common_units_is_undefined() -> None:
    units = units_from("01..", "..01")
    first, second = units.T
    assert np.isnan(raw_agreement(first, second, ones(units)))
    assert np.isnan(cohen_kappa(first, second, ones(units)))
    assert np.isnan(krippendorff_alpha(units, ones(units)))
