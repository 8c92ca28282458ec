"""Gradients and a training, computed by two processes and by a test alone, to compare them."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from hgld.compute.processes import Processes, joined_processes
from hgld.losses import LOSSES, LabelSpace, gather_embeddings
from hgld.losses.base import Loss
from hgld.models.model_settings import ModelSettings
from hgld.training import run
from hgld.training.optimisation import average_gradients, backpropagate
from tests.training import toy

LABELS = torch.stack([torch.arange(12) // 3, torch.arange(12) // 6], 1)
SGD: dict[str, Any] = {"name": "sgd", "lr": 0.1, "momentum": 0.9}

#: The loss, and the gradients of the model and of the proxies, by chunk size and whether the backbone is frozen.
Gradients = dict[tuple[int, bool], list[torch.Tensor]]


def batch_loss(loss: Loss, labels: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
    value: torch.Tensor = loss(*gather_embeddings(embeddings, labels))
    return value


def compute_gradients(counts: tuple[int, ...], processes: Processes) -> Gradients:
    """Return the gradients of HAPPIER for a batch of which each process has a part of these sizes."""
    images = torch.randn(12, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    gradients: Gradients = {}
    for chunk_size in (0, 2):
        for frozen in (False, True):
            torch.manual_seed(0)
            model = toy.build(ModelSettings(backbone="toy", pretrained=False, pooling="average", dim=6), dropout=0)
            loss = LOSSES["happier"](LabelSpace.from_labels(6, LABELS.numpy()))
            model.freeze_backbone(frozen)
            value = backpropagate(
                DistributedDataParallel(model) if processes.count > 1 else model,
                torch.split(images, list(counts))[processes.rank],
                partial(batch_loss, loss, torch.split(LABELS, list(counts))[processes.rank]),
                chunk_size=chunk_size or None,
            )
            average_gradients(loss.parameters(), processes)
            gradients[chunk_size, frozen] = [value, toy.gradients(model), toy.gradients(loss)]
    return gradients


#: Memories to train with, by the folder of the run. With the first size no two scores of a query are so close that
#: rounding decides their order: at 20, the loss jumped where two of them were equal in float32.
MEMORIES: dict[str, dict[str, Any]] = {
    "run": {"size": 22, "start_epoch": 2},
    "unique": {"unique": True, "start_epoch": 2},
}


def train(manifest: Path, out: Path, processes: Processes | None = None) -> None:
    """Run a training that hardly depends on rounding, with an image that one of the processes cannot read."""
    (manifest.parent / "4" / "0.png").unlink(missing_ok=True)
    optimiser = {"backbone": SGD, "head": SGD, "proxies": {**SGD, "lr": 1}}
    settings = toy.settings(
        manifest, optimiser=optimiser, memory=MEMORIES[out.name], warm_up_epochs=1, clip_norm=1, epochs=3
    )
    run.train(settings, out, processes=processes)


if __name__ == "__main__":
    toy.use_toy_model(dropout=0)
    folder, manifest = map(Path, sys.argv[1:])
    with joined_processes() as processes:
        gradients = {counts: compute_gradients(counts, processes) for counts in ((6, 6), (5, 7))}
        torch.save(gradients, folder / f"{processes.rank}.pt")
        for name in MEMORIES:
            train(manifest, folder / name, processes)
