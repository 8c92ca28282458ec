from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import nn

from hgld.retrieval.models.embedding import EmbeddingModel
from hgld.retrieval.models.settings import ModelSettings
from hgld.retrieval.training.backpropagation import backpropagate
from tests.retrieval.training.toy import Backbone

LABELS = torch.arange(12) // 3


def made(dropout: float) -> EmbeddingModel:
    torch.manual_seed(0)
    settings = ModelSettings(backbone="toy", pretrained=False, pooling="average", dim=6)
    return EmbeddingModel(Backbone(dropout), 12, settings)


def loss_of(embeddings: torch.Tensor) -> torch.Tensor:
    """No sum over images: a softmax over all pairs."""
    same = (LABELS[:, None] == LABELS).float()
    return -((embeddings @ embeddings.T * 5).log_softmax(1) * same).sum()


def gradients(module: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in module.parameters() if parameter.grad is not None])


@pytest.mark.parametrize("chunk_size", [1, 5, 6, 12, 40])
def test_chunks_give_the_gradient_of_one_pass(chunk_size: int) -> None:
    images = torch.randn(12, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    model = made(dropout=0.0)
    one = backpropagate(model, images, loss_of)
    expected = gradients(model)
    model.zero_grad()
    loss = backpropagate(model, images, loss_of, chunk_size=chunk_size, scale=lambda loss: 2 * loss)
    torch.testing.assert_close(loss, one)
    torch.testing.assert_close(gradients(model), 2 * expected, rtol=1e-5, atol=1e-5)


def test_dropout_drops_the_same_in_both_passes() -> None:
    images = torch.randn(12, 3, 16, 16)
    model = made(dropout=0.5)
    torch.manual_seed(7)
    loss = loss_of(torch.cat([model(chunk) for chunk in images.split(5)]))
    loss.backward()
    expected, after = gradients(model), torch.rand(3)
    model.zero_grad()
    torch.manual_seed(7)
    torch.testing.assert_close(backpropagate(model, images, loss_of, chunk_size=5), loss.detach())
    torch.testing.assert_close(gradients(model), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(torch.rand(3), after, rtol=0, atol=0)  # as if there had been one pass


def test_a_frozen_model_lets_the_loss_learn() -> None:
    images, proxies = torch.randn(12, 3, 16, 16), nn.Parameter(torch.randn(4, 6))

    def proxy_loss(embeddings: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(embeddings @ proxies.T, LABELS)

    model = made(dropout=0.0).requires_grad_(False)
    backpropagate(model, images, proxy_loss)
    assert proxies.grad is not None
    expected, proxies.grad = proxies.grad, None
    backpropagate(model, images, proxy_loss, chunk_size=5)
    torch.testing.assert_close(proxies.grad, expected)


SCRIPT = """
import sys

import torch
from torch.nn.parallel import DistributedDataParallel

from hgld.retrieval.losses.named import LOSSES, Space
from hgld.retrieval.processes import joined_processes
from hgld.retrieval.training.backpropagation import backpropagate, gather_embeddings
from hgld.retrieval.training.trainer import average_gradients
from tests.retrieval.training.test_backpropagation import gradients, made

labels = torch.stack([torch.arange(12) // 3, torch.arange(12) // 6], 1)
images = torch.randn(12, 3, 16, 16, generator=torch.Generator().manual_seed(1))

with joined_processes() as processes:
    found = {}
    for counts in ((6, 6), (5, 7)) if processes.count == 2 else ((12,),):
        for chunk_size in (None, 2):
            for frozen in (False, True):
                model = made(dropout=0.0)
                loss = LOSSES["happier"](Space(6, (4, 2)))  # it has proxies; seeded by the line before
                model.freeze_backbone(frozen)
                wrapped = DistributedDataParallel(model) if processes.count > 1 else model
                own = images.split(counts)[processes.rank]
                value = backpropagate(
                    wrapped, own, lambda e: loss(gather_embeddings(e, counts), labels), chunk_size=chunk_size
                )
                average_gradients(loss.parameters(), processes)
                found[len(counts) * (counts[0] - 12), chunk_size or 0, frozen] = [
                    value, gradients(model), gradients(loss)
                ]
    torch.save(found, f"{sys.argv[1]}/{processes.count}_{processes.rank}.pt")
"""


@pytest.fixture(scope="module")
def found(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], dict[tuple[int, int, bool], list[torch.Tensor]]]:
    """The loss and the gradients of the model and of the proxies, by process."""
    folder = tmp_path_factory.mktemp("processes")
    (folder / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    script = [str(folder / "script.py"), str(folder)]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    running = [
        subprocess.Popen([sys.executable, *start, *script], env=environment, stderr=subprocess.PIPE)
        for start in ([], torchrun)
    ]
    for process in running:
        errors = process.communicate(timeout=120)[1].decode()
        assert process.returncode == 0, errors
    return lambda name: torch.load(folder / f"{name}.pt", weights_only=True)


def test_two_processes_have_the_gradients_of_one_with_the_whole_batch(found: Callable[[str], dict]) -> None:
    (alone,) = [found("1_0")]
    assert len(alone) == 4
    for rank in ("2_0", "2_1"):
        together = found(rank)
        assert len(together) == 8  # pieces of equal size and of different ones
        for (_, chunk_size, frozen), values in together.items():
            for value, expected in zip(values, alone[0, chunk_size, frozen], strict=True):
                torch.testing.assert_close(value, expected, rtol=0, atol=1e-5)
                assert expected.abs().max() > 1e-3
