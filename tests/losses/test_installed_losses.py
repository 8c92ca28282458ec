"""Losses that other packages declare are trained by their name in settings."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from hgld.errors import ConfigurationError
from hgld.losses import LabelSpace
from hgld.losses.registry import installed_losses
from tests.child_processes import run_child, single_thread_environment

MODULE = """
from hgld.losses import Loss, SupAP, pair_levels


class Squared(Loss):
    def __init__(self, *, power: float = 2.0) -> None:
        super().__init__()
        self.power = power

    def forward_batch(self, embeddings, labels, reference_embeddings=None, reference_labels=None):
        levels = pair_levels(labels, labels)
        return ((embeddings @ embeddings.T - levels / labels.shape[1]).abs() ** self.power).mean()


not_a_loss = SupAP()
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """``install(name="module:class")``: install a package with the module above and these entry points."""

    def write(**entries: str) -> Path:
        (tmp_path / "others.py").write_text(MODULE)
        metadata = tmp_path / "others-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
        lines = "".join(f"{name} = {value}\n" for name, value in entries.items())
        (metadata / "entry_points.txt").write_text(f"[hgld.losses]\n{lines}")
        monkeypatch.syspath_prepend(tmp_path)
        return tmp_path

    yield write
    sys.modules.pop("others", None)


def test_options_are_the_parameters(install: Callable[..., Path]) -> None:
    install(squared="others:Squared")
    specification = installed_losses(())["squared"]
    assert list(specification.options) == ["power"]
    loss = specification(LabelSpace(dim=2, n_classes=(2,)), power=1.0)
    # Two pairs of an item with itself are exact, two have a cosine of 0 instead of 1.
    assert loss(torch.eye(2), torch.tensor([0, 0])).item() == pytest.approx(0.5)


@pytest.mark.slow
def test_hgld_train_knows_the_loss(install: Callable[..., Path]) -> None:
    """Named in settings, its options are checked as those of any loss."""
    environment = single_thread_environment()
    environment["PYTHONPATH"] = f"{install(squared='others:Squared')}:{environment['PYTHONPATH']}"
    command = [sys.executable, "-m", "hgld", "train", "happier", "--manifest", "none.csv", "-o", "run"]
    child = run_child([*command, "--set", "loss={name: squared, powr: 3}"], exit_code=1, environment=environment)
    assert "loss.powr" in child.stderr
    assert "power" in child.stderr


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"happier": "others:Squared"}, "the loss happier (others:Squared) of others: there is another loss"),
        ({"new": "others:missing"}, "the loss new (others:missing) of others: AttributeError"),
        ({"new": "absent:Loss"}, "the loss new (absent:Loss) of others: ModuleNotFoundError"),
        ({"new": "others:not_a_loss"}, "it is no subclass of hgld.losses.Loss"),
    ],
)
def test_wrong_declarations_are_named(install: Callable[..., Path], entries: dict[str, str], message: str) -> None:
    install(**entries)
    with pytest.raises(ConfigurationError) as caught:
        installed_losses({"happier"})
    assert message in str(caught.value)
