"""``hgld reject compare``: its plan and its errors."""

from pathlib import Path

from typer.testing import CliRunner, Result

from hgld.cli import app
from tests.benchmark.rejection.toy import write_toy


def compare(path: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["reject", "compare", str(path), "-o", str(path.parent / "out"), *options])


def test_plan_shows_sets_and_parts_to_do(tmp_path: Path) -> None:
    result = compare(write_toy(tmp_path), "--plan")
    assert result.exit_code == 0, result.output
    assert "8 scores (2 of 2 embeddings on 2 splits), 0 of them done" in result.stdout
    assert result.stdout.splitlines()[2].split() == ["split", "index", "calibration", "known", "near", "food"]


def test_missing_embeddings_are_one_line(tmp_path: Path) -> None:
    path = write_toy(tmp_path)
    (tmp_path / "sharp_food.parquet").unlink()
    (tmp_path / "blurred_food.parquet").unlink()
    result = compare(path)
    assert result.exit_code == 1
    assert "no such file" in result.stderr.splitlines()[-1]
    assert "blurred_food.parquet" in result.stderr
