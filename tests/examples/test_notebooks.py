"""Notebooks run from their first cell to the last, and print what they show."""

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.examples.outputs import outputs_match
from tests.test_docs import CHECKOUT

NOTEBOOKS = {path.name: path for path in sorted((CHECKOUT / "docs/tutorials").glob("*.ipynb"))}
#: Trainings differ between processors, by less than so many percentage points.
TOLERANCE = 2.0


def _read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def _texts(cell: Any) -> str:
    """Return what a cell printed or returned; pictures are left out."""
    parts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.get("outputs", ())]
    return "\n".join(part for part in parts if not part.startswith("<Figure"))


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_runs(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    shown = _read(NOTEBOOKS[name])
    run = _read(NOTEBOOKS[name])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(CHECKOUT))
        patch.setenv("IPYTHONDIR", str(tmp_path))
        patch.setenv("HGLD_CACHE", os.environ["HGLD_CACHE"])
        NotebookClient(
            run, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
        ).execute()
    if request.config.getoption("--write-outputs", default=False):
        for cell in run.cells:
            cell.metadata.pop("execution", None)  # times of the run
        nbformat.write(run, NOTEBOOKS[name])  # type: ignore[no-untyped-call]
        return
    for before, after in zip(shown.cells, run.cells, strict=True):
        assert outputs_match(_texts(before), _texts(after), TOLERANCE), f"{after.source}\n{_texts(after)}"


def test_notebooks_hold_their_outputs() -> None:
    assert len(NOTEBOOKS) == 2
    for path in NOTEBOOKS.values():
        code = [cell for cell in _read(path).cells if cell.cell_type == "code"]
        assert all(cell.execution_count == number for number, cell in enumerate(code, start=1)), path.name
