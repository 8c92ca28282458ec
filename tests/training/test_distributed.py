import re
from functools import partial
from pathlib import Path

import pytest
import torch

from hgld.compute.processes import Processes
from hgld.models.model_loading import read_checkpoint
from hgld.training import run
from tests.child_processes import run_in_two_processes
from tests.training import together, toy


@pytest.fixture(scope="module")
def outputs(manifest: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that two processes have written to."""
    folder = tmp_path_factory.mktemp("together")
    run_in_two_processes("-m", "tests.training.together", str(folder), str(manifest))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("counts", [(6, 6), (5, 7)])
def test_two_processes_have_the_gradients_of_one(outputs: Path, rank: int, counts: tuple[int, int]) -> None:
    gradients = torch.load(outputs / f"{rank}.pt", weights_only=True)[counts]
    alone = together.compute_gradients((12,), Processes())
    assert list(gradients) == list(alone)
    for key, values in gradients.items():
        for value, expected in zip(values, alone[key], strict=True):
            torch.testing.assert_close(value, expected, rtol=0, atol=1e-5)
            assert expected.abs().max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("memory", together.MEMORIES)
def test_two_processes_train_the_same_model_as_one(
    outputs: Path, manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: str
) -> None:
    monkeypatch.setattr(run, "build_model", partial(toy.build, dropout=0))
    together.train(manifest, tmp_path / memory)
    alone, both = (read_checkpoint(folder / memory / "last.pt") for folder in (tmp_path, outputs))
    assert both["step"] == alone["step"] == 12
    for part in ("model", "loss"):
        for name, expected in alone[part].items():
            torch.testing.assert_close(both[part][name], expected, rtol=0, atol=1e-4)
    assert "4/0.png" in (outputs / memory / "skipped.csv").read_text()
    assert both["best"] == pytest.approx(alone["best"])
    assert len(both["rng"]) == both["processes"] == 2


SECOND_DERIVATIVE = """
import torch
from hgld.compute.processes import joined_processes
from hgld.errors import ConfigurationError
from hgld.losses import gather_embeddings

with joined_processes():
    x = torch.eye(2, requires_grad=True)
    embeddings, _ = gather_embeddings(x, torch.arange(2))
    try:
        torch.autograd.grad((embeddings**3).sum(), x, create_graph=True)
    except ConfigurationError as error:
        print(error)
"""


@pytest.mark.slow
def test_gathered_embeddings_have_no_second_derivatives() -> None:
    for printed in run_in_two_processes("-c", SECOND_DERIVATIVE):
        assert "gather_embeddings have no second derivatives; leave `create_graph` out" in printed


@pytest.mark.slow
def test_loop_in_the_documents_prints_what_they_say(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "losses.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"^```python\n([^`]+ gather_embeddings.+?)^```", text, re.MULTILINE | re.DOTALL)
    steps = re.findall(r"^step (\d): ([\d.]+)$", text, re.MULTILINE)
    assert len(steps) == 5
    (tmp_path / "own_loop.py").write_text(script, encoding="utf-8")
    of_first, of_second = run_in_two_processes(str(tmp_path / "own_loop.py"))
    printed = re.findall(r"^step (\d): ([\d.]+)$", of_first, re.MULTILINE)
    assert [float(loss) for _, loss in printed] == pytest.approx([float(loss) for _, loss in steps], abs=1e-3)
    assert not of_second
