"""From a file of settings to a trained model: what ``hgld train`` runs."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from hgld.compute.machine import describe_machine
from hgld.compute.processes import Processes
from hgld.datasets.loading import evaluation_batches
from hgld.errors import ConfigurationError
from hgld.evaluation.report import rows_table
from hgld.io.locks import exclusive_lock
from hgld.io.settings import read_settings, to_dict, to_yaml
from hgld.losses.base import Loss
from hgld.losses.cross_batch_memory import CrossBatchMemory
from hgld.losses.loss_specs import LabelSpace
from hgld.losses.registry import build_loss
from hgld.models.backbones import image_settings_for
from hgld.models.checkpoint_files import read_checkpoint
from hgld.models.embedding_model import EmbeddingModel, build_model
from hgld.models.pca_projection import initialise_projection
from hgld.progress import Progress
from hgld.training.run_folder import RunFolder
from hgld.training.trainer import Trainer
from hgld.training.training_checkpoints import require_same_run
from hgld.training.training_images import TrainingImages, data_digests
from hgld.training.training_settings import TrainingSettings


@dataclass(frozen=True)
class TrainingSummary:
    """What a training came to.

    Args:
        evaluations: means of all metrics by what the model had seen, such as ``epoch 5``.
        best: the key of the best one.
        metric: which chose it.
        steps: that were taken, those before a resumption as well.
        skipped_batches: in how many of them too few images could be read.
        images: how many could not be read.
    """

    evaluations: Mapping[str, Mapping[str, float]]
    best: str
    metric: str
    steps: int
    skipped_batches: int
    images: int

    def __str__(self) -> str:
        first, last = next(iter(self.evaluations)), list(self.evaluations)[-1]
        shown = {name: self.evaluations[name] for name in dict.fromkeys((first, self.best, last))}
        lines = [rows_table({f"{name}{' (best)' * (name == self.best)}": row for name, row in shown.items()})]
        gain = self.evaluations[self.best][self.metric] - self.evaluations[first][self.metric]
        lines.append(f"{self.steps:,} steps; {self.metric} {100 * gain:+.2f} from {first} to the best, {self.best}")
        if self.images:
            lines.append(
                f"{self.images:,} images could not be read (skipped.csv); "
                f"{self.skipped_batches:,} batches had too few left"
            )
        return "\n".join(lines)


def read_training_settings(config: Path, overrides: Sequence[str] = ()) -> TrainingSettings:
    """The settings of a training; pixels are normalised as the backbone is used to, unless the file says otherwise.

    Raises:
        InputError: see :func:`~hgld.io.settings.read_settings`.
        ConfigurationError: likewise; or timm knows no such backbone.
    """
    settings = read_settings(TrainingSettings, config, overrides)
    return settings.model_copy(update={"image": image_settings_for(settings.model, settings.image)})


def plan(settings: TrainingSettings) -> str:
    """What a training would do: all settings, the images, and how many steps."""
    images = TrainingImages(settings)
    n_batches = len(images.sampler)
    steps = settings.steps or (settings.epochs or 0) * n_batches
    return f"{to_yaml(settings)}\n{images}\n{n_batches:,} batches an epoch, {steps:,} steps"


def train(
    settings: TrainingSettings,
    out: Path,
    *,
    resume: bool = False,
    force: bool = False,
    device: str = "cpu",
    processes: Processes | None = None,
    progress: Progress | None = None,
) -> TrainingSummary:
    """Train a model.

    Args:
        settings: of everything.
        out: the folder of the run, see :mod:`hgld.training.run_folder`; the first process writes to it, and
            all read its checkpoint when a run goes on.
        resume: go on with the run that is in the folder, if there is one.
        force: delete it.
        device: of this process.
        processes: that train together.
        progress: told of images.

    Raises:
        KeyboardInterrupt: someone wanted it to stop; the last step is saved.
        ConfigurationError: there is a run already, or it was begun with other settings or data; there is no such
            device; memory does not suffice, or the loss is not finite.
        InputError: the manifest or an image archive cannot be read.
        BusyError: another run is writing to the folder.
    """
    processes = processes or Processes()
    out.parent.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(out) if processes.rank == 0 else nullcontext():
        images, folder = TrainingImages(settings), RunFolder(out)
        there = processes.gather(processes.rank == 0 and folder.prepare(resume=resume, force=force))[0]
        _seed(settings.seed)  # the same model and proxies in all processes
        where = _device(device)
        model = _model(settings, images, where, processes, with_weights=not there)
        loss = training_loss(settings, images.space(model.dim), len(images.train), len(images.sampler)).to(where)
        trainer = Trainer(settings, images, model, loss, folder, processes=processes, progress=progress)
        _seed(settings.seed + processes.rank)  # dropout of each its own
        n_lines = 0
        if there:
            state = read_checkpoint(folder.last, where)
            require_same_run(folder.last, {key: state[key] for key in trainer.fingerprint()}, trainer.fingerprint())
            trainer.load(state)
            n_lines = state["history"]
        if processes.rank == 0:
            run = {
                "digests": images.digests,
                "processes": processes.count,
                "device": _device_name(where),
                "machine": describe_machine(),
            }
            folder.begin(to_yaml(settings), run, n_lines=n_lines)
        try:
            trainer.train()
        finally:
            if processes.rank == 0:
                folder.close()
        if processes.rank == 0:
            folder.finish()
        summary = _summary(trainer) if processes.rank == 0 else None
    found = processes.gather(summary)[0]
    assert found is not None
    return found


def is_finished(settings: TrainingSettings, out: Path) -> bool:
    """Whether a folder holds this training, come to its end.

    Raises:
        ConfigurationError: it holds one that was begun with other settings or data.
        InputError: the data cannot be read.
    """
    begun = RunFolder(out).recorded_run()
    if begun is None:
        return False
    then, said = begun
    now = {"settings": to_dict(settings), "digests": data_digests(settings.data)}
    require_same_run(out, {"settings": then, "digests": said["digests"]}, now)
    return bool(said["finished"])


def training_loss(settings: TrainingSettings, space: LabelSpace, n_images: int, n_batches: int) -> Loss:
    """The loss of a training, with a memory where one is set.

    Args:
        settings: of it.
        space: of embeddings and labels.
        n_images: to train on.
        n_batches: of an epoch.
    """
    loss = build_loss(settings.loss, space)
    if settings.memory is None:
        return loss
    size, start = settings.memory.size or n_images, settings.memory.start_epoch * n_batches
    return CrossBatchMemory(loss, size, space.dim, len(space.n_classes), settings.memory.weight, start)


def _summary(trainer: Trainer) -> TrainingSummary:
    folder, metric = trainer.folder, trainer.settings.evaluation.best
    evaluations = {
        f"epoch {row['epoch']}": {key: value for key, value in row.items() if key not in ("kind", "step", "epoch")}
        for row in folder.history("evaluation")
    }
    return TrainingSummary(
        evaluations=evaluations,
        best=max(evaluations, key=lambda name: evaluations[name][metric]),
        metric=metric,
        steps=trainer.step,
        skipped_batches=trainer.skipped_batches,
        images=folder.n_skipped,
    )


def _model(
    settings: TrainingSettings,
    images: TrainingImages,
    device: torch.device,
    processes: Processes,
    *,
    with_weights: bool,
) -> EmbeddingModel:
    """The model; without the weights that it begins with, if those of a checkpoint follow."""
    if not with_weights:
        return build_model(settings.model.model_copy(update={"pretrained": False})).to(device)
    model = build_model(settings.model).to(device)
    if settings.model.projection != "random":
        dataset = images.untransformed
        rows = np.arange(len(dataset))[processes.rank :: processes.count]
        batches = evaluation_batches(
            dataset, rows, batch_size=settings.evaluation.batch_size, workers=settings.workers
        )
        initialise_projection(model, (batch.images for batch in batches), processes)
    return model


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigurationError(f'there is no device "{name}"; expected cpu, cuda or cuda:N') from error
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise ConfigurationError(f'the device is "{name}", but torch sees no GPU; take cpu')
        torch.cuda.set_device(device)
    return device


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
