"""Start or resume a training run, from its settings to the trained model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch

from hgld.compute.machine import describe_machine, return_memory
from hgld.compute.processes import Processes
from hgld.compute.scoring import checked_device
from hgld.datasets.loading import evaluation_batches
from hgld.errors import ConfigurationError
from hgld.io.locks import exclusive_lock
from hgld.io.presets import training_file
from hgld.io.settings import read_settings, to_dict, to_yaml
from hgld.losses.base import Loss
from hgld.losses.cross_batch_memory import CrossBatchMemory
from hgld.losses.registry import LabelSpace, build_loss
from hgld.models.backbones import image_settings_for
from hgld.models.embedding_model import EmbeddingModel, build_model
from hgld.models.model_loading import read_checkpoint
from hgld.models.model_settings import ModelSettings
from hgld.models.pca_projection import initialise_projection
from hgld.progress import Progress
from hgld.training.loggers import require_loggers
from hgld.training.run_folder import RunFolder, TrainingSummary, require_same_run
from hgld.training.trainer import Trainer, seed_generators
from hgld.training.training_images import TrainingImages, data_digests
from hgld.training.training_settings import TrainingSettings


def read_training_settings(config: str | Path, overrides: Sequence[str] = ()) -> TrainingSettings:
    """Read the settings of a training; by default, images are normalised as the backbone expects.

    Args:
        config: The YAML file, or the name of a preset (:mod:`hgld.io.presets`).
        overrides: Values such as ``loss.lambda=0.3``.
    """
    settings = read_settings(TrainingSettings, training_file(config), overrides)
    return settings.model_copy(update={"image": image_settings_for(settings.model, settings.image)})


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
        settings: Settings of the training, see :func:`read_training_settings`.
        out: Folder of the run, see :mod:`hgld.training.run_folder`. The process of rank 0 writes to it, and all
            processes read the checkpoint of a resumed run.
        resume: Whether to continue the run in the folder, if it has a checkpoint.
        force: Whether to delete the run in the folder.
        device: Device to train on, such as ``cuda:0``.
        processes: Processes that train together. Default: this process alone.
        progress: Progress of the training. Default: it is not shown.

    Returns:
        The result of the run, the same in every process.

    Raises:
        KeyboardInterrupt: A stop was requested; a checkpoint of the last step is saved.
        ConfigurationError: There is a run already, or it was started with other settings or data; the device does
            not exist; a logger cannot start; memory does not suffice, or the loss is not finite.
    """
    processes = processes or Processes()
    is_first = processes.rank == 0
    require_loggers(settings.loggers)
    out.parent.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(out) if is_first else nullcontext():
        folder, images = RunFolder(out), TrainingImages(settings)
        torch_device = usable_device(device)
        images.require_readable()
        # The first process prepares the folder, and tells the others whether there is a run to resume.
        has_checkpoint = False
        if is_first:
            has_checkpoint = folder.prepare(resume=resume, force=force)
        has_checkpoint = processes.broadcast(has_checkpoint)
        trainer = _build_trainer(
            images, folder, torch_device, processes, progress, initialise=not has_checkpoint
        )
        return_memory()
        n_history_lines = 0
        if has_checkpoint:
            state = read_checkpoint(folder.last, trainer.device)
            fingerprint = trainer.fingerprint()
            require_same_run(folder.last, {key: state[key] for key in fingerprint}, fingerprint)
            trainer.load_state_dict(state)
            n_history_lines = state["history"]  # at the time of the checkpoint
        if is_first:
            device_name = device
            if torch_device.type == "cuda":
                device_name = torch.cuda.get_device_name(torch_device)
            record = {
                "digests": images.digests,
                "processes": processes.count,
                "device": device_name,
                "machine": describe_machine(),
            }
            folder.open_run(
                to_yaml(settings), record, n_history_lines=n_history_lines, loggers=settings.loggers
            )
        finished = False
        try:
            trainer.train()
            finished = True
        finally:
            if is_first:
                folder.close(finished=finished)
        summary = None
        if is_first:
            folder.mark_finished()
            summary = folder.summary(settings.evaluation.best)
        summary = processes.broadcast(summary)
    assert summary is not None
    return summary


def is_finished(settings: TrainingSettings, out: Path) -> bool:
    """Return whether the run in a folder is complete.

    Raises:
        ConfigurationError: There is a run with other settings or data in it.
    """
    recorded = RunFolder(out).recorded_run()
    if recorded is None:
        return False
    recorded_settings, record = recorded
    now = {"settings": to_dict(settings), "digests": data_digests(settings.data)}
    require_same_run(out, {"settings": recorded_settings, "digests": record["digests"]}, now)
    return bool(record["finished"])


def training_loss(
    settings: TrainingSettings, space: LabelSpace, n_images: int, memory_start: int
) -> Loss:
    """Build the loss of a training, with a cross-batch memory where the settings have one.

    Args:
        memory_start: Number of steps before the memory is used.
    """
    loss = build_loss(settings.loss, space)
    if space.labels_per_image is not None:
        loss.require_label_sets()
    if settings.memory is None:
        return loss
    memory = settings.memory
    return CrossBatchMemory(
        loss,
        memory.size or n_images,
        space.dim,
        len(space.n_classes),
        memory_weight=memory.weight,
        reduction=memory.reduction,
        start_step=memory_start,
        unique=memory.unique,
        labels_per_image=space.labels_per_image,
        dtype=memory.dtype,
    )


def _build_trainer(
    images: TrainingImages,
    folder: RunFolder,
    device: torch.device,
    processes: Processes,
    progress: Progress | None,
    *,
    initialise: bool,
) -> Trainer:
    settings = images.settings
    seed_generators(settings.seed)  # the same model and proxies in all processes
    if initialise:
        model = _initial_model(images, device, processes)
    else:
        model = model_for_checkpoint(settings).to(device)
    memory_start = 0
    if settings.memory is not None:
        memory_start = images.first_step(settings.memory.start_epoch - 1)
    space = images.space(model.dim)
    loss = training_loss(settings, space, len(images.train), memory_start).to(device)
    _require_distance(loss, settings.model)
    trainer = Trainer(settings, images, model, loss, folder, processes=processes, progress=progress)
    seed_generators(settings.seed + processes.rank)  # different dropout in each process
    return trainer


def _initial_model(
    images: TrainingImages, device: torch.device, processes: Processes
) -> EmbeddingModel:
    """Build the model with its initial weights and projection."""
    settings = images.settings
    model = _build(settings, settings.model).to(device)
    if settings.model.projection != "random":
        dataset = images.untransformed
        rows = np.arange(len(dataset))[processes.rank :: processes.count]
        batches = evaluation_batches(
            dataset, rows, batch_size=settings.evaluation.batch_size, workers=settings.workers
        )
        initialise_projection(model, (batch.images_on(device) for batch in batches), processes)
    return model


def model_for_checkpoint(settings: TrainingSettings) -> EmbeddingModel:
    """Build the model of a training without pretrained weights, to load the weights of a checkpoint into it."""
    return _build(settings, settings.model.model_copy(update={"pretrained": False}))


def _build(settings: TrainingSettings, model_settings: ModelSettings) -> EmbeddingModel:
    model = build_model(model_settings)
    if settings.lora is not None:
        model.add_lora(settings.lora.rank, settings.lora.alpha)
    return model


def _require_distance(loss: Loss, model: ModelSettings) -> None:
    """Raise a ConfigurationError if the loss compares embeddings by another distance than the model."""
    for part in loss.modules():
        if not isinstance(part, Loss) or model.distance == "cosine":
            continue
        if not part.takes_any_length:
            raise ConfigurationError(
                f"model.distance is {model.distance}, but {type(part).__name__} compares cosines; choose a loss in "
                "hyperbolic space, or leave out model.distance"
            )
        ball = getattr(part, "ball", None)
        if ball is not None and (ball.curvature, ball.clip) != (model.curvature, model.clip):
            raise ConfigurationError(
                f"the loss has the curvature {ball.curvature} and clip {ball.clip}, but the model {model.curvature} "
                f"and {model.clip}; set model.curvature and model.clip to those of the loss"
            )


def usable_device(name: str) -> torch.device:
    """Return a device, which becomes the current one if it is a GPU.

    Raises:
        ConfigurationError: There is no such device.
    """
    device = checked_device(name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device
