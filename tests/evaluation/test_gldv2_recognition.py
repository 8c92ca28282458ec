"""The recognition protocol from files, against the published scorer's numbers, and its output."""

import json
from pathlib import Path

import pytest

from hgld.evaluation import EvaluationFiles, evaluate_files
from hgld.evaluation.recognition import RECOGNITION_METRICS, SOLUTION
from hgld.evaluation.results import read_per_query
from tests.commands import run_hgld

N_CASES = 12


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The example of Google's unit tests, and a Private image without a landmark."""
    (tmp_path / SOLUTION).write_text(
        "id,landmarks,Usage\na,0 12,Public\nb,100 200 300,Public\nc,1,Public\nd,,Public\ne,,Public\nf,,Private\n"
        "g,1,Ignored\n"
    )
    (tmp_path / "p.csv").write_text("id,landmarks\nb,0 0.01\nc,1 10.0\nd,150 15.0\nf,3 1\ng,1 2\n")
    return [f"--ground-truth={tmp_path / SOLUTION}", f"--predictions={tmp_path / 'p.csv'}"]


def run(*arguments: str) -> str:
    return run_hgld("evaluate", "--protocol=gldv2-recognition", *arguments).output


@pytest.mark.parametrize(
    ("group", "number"),
    [*(("recognition", number) for number in range(N_CASES)), ("reader_errors", 1), ("reader_errors", 3)],
)
def test_numbers_agree_with_the_published_scorer(shared: Path, tmp_path: Path, group: str, number: int) -> None:
    cases = json.loads((shared / "golden_beyond" / "recognition.json").read_text("utf-8"))
    assert len(cases["recognition"]) == N_CASES
    case = cases[group][number]
    (tmp_path / "solution.csv").write_text(case["solution_csv"], "utf-8")
    (tmp_path / "predictions.csv").write_text(case["predictions_csv"], "utf-8")
    given = EvaluationFiles(predictions=tmp_path / "predictions.csv", ground_truth=tmp_path / "solution.csv")
    results = evaluate_files(given, "gldv2-recognition").results
    assert [result.name for result in results] == ["recognition public", "recognition private"]
    for usage, result in zip(("Public", "Private"), results, strict=True):
        expected = case["expected"].get(usage, {"images": 0, "images_with_truth": 0, "predictions_read": 0})
        for name in RECOGNITION_METRICS:
            value = expected.get(name)
            number_expected = value if isinstance(value, float) else float("nan")  # the published code divides by 0
            assert result.means[name] == pytest.approx(number_expected, abs=1e-12, nan_ok=True)
        counts = result.counts
        assert counts["queries"] == expected["images"]
        assert counts["queries"] - counts["images_without_a_landmark"] == expected["images_with_truth"]
        assert counts["queries"] - counts["images_without_a_prediction"] == expected["predictions_read"]
        assert counts["ignored_queries"] == case["expected"]["ignored"]


def test_json_has_both_parts(files: list[str]) -> None:
    public, private = json.loads(run(*files, "--json"))["results"]
    assert public["means"] == pytest.approx({"gap": 1 / 6, "gap_ignore_non_landmark": 1 / 3, "top1": 1 / 3})
    assert 0 <= public["intervals"]["gap"][0] <= 1 / 6 <= public["intervals"]["gap"][1] <= 1
    assert private["means"] == dict.fromkeys(RECOGNITION_METRICS)
    assert private["intervals"]["top1"] == [None, None]
    assert private["counts"] == {
        "queries": 1,
        "images_without_a_landmark": 1,
        "images_without_a_prediction": 0,
        "ignored_queries": 1,
    }


def test_tables_say_what_the_numbers_are(files: list[str]) -> None:
    lines = run(*files, "--no-intervals").splitlines()
    assert lines[0].split() == ["mean", "in", "%", *RECOGNITION_METRICS]
    assert lines[2].split() == ["recognition", "public", "16.67", "33.33", "33.33"]
    assert lines[3].split() == ["recognition", "private", "–", "–", "–"]
    assert "Mean: over the images that show a landmark." in lines
    assert "recognition public: Images without a prediction: 2." in lines
    assert not any("l1" in line for line in lines)


def test_the_solution_is_found_in_its_folder_and_values_of_images_are_written(
    files: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "values.parquet"
    run(f"--ground-truth={tmp_path}", files[1], f"--per-query={out}", "--no-intervals")
    public, _ = read_per_query(out)
    assert public.means["gap"] == pytest.approx(1 / 6)
    assert list(public.per_query.index[:3]) == ["d", "c", "b"]  # by rank


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--embeddings=e.npy"], "the protocol gldv2-recognition needs --predictions and --ground-truth"),
        (["--predictions=p.csv"], "needs --ground-truth (recognition_solution_v2.1.csv, or its folder)"),
        (["--predictions=p.csv", "--ground-truth=s.csv", "--hierarchy=h.csv"], "does not use --hierarchy"),
        (["--predictions=p.csv", "--ground-truth=s.csv", "--metric=gap", "--metric=R@1"], "--metric asks for R@1"),
        (["--predictions=p.csv", "--ground-truth=s.csv"], "s.csv: no such file"),
    ],
)
def test_wrong_inputs_get_one_clear_line(arguments: list[str], message: str) -> None:
    result = run_hgld("evaluate", "--protocol=gldv2-recognition", *arguments, code=1)
    assert message in " ".join(result.output.split())
