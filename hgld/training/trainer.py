"""The loop: plain PyTorch, for one process or several, that can be stopped at any step and taken up again."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import islice
from typing import Any

import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hgld.compute.processes import Processes
from hgld.compute.stop_signals import StopRequest, catch_stop_signals
from hgld.datasets.batch import Batch, ExampleDataset, SkippedImage
from hgld.datasets.loading import training_batches
from hgld.datasets.samplers import epoch_generator
from hgld.errors import ConfigurationError
from hgld.io.settings import to_dict
from hgld.losses.base import Loss
from hgld.models.checkpoint_files import save_checkpoint
from hgld.models.embedding_model import EmbeddingModel
from hgld.progress import NoProgress, Progress
from hgld.training.backpropagation import backpropagate, gather_embeddings
from hgld.training.optimisation import Optimisers
from hgld.training.run_folder import RunFolder
from hgld.training.training_checkpoints import random_state, set_random_state
from hgld.training.training_images import TrainingImages
from hgld.training.training_settings import TrainingSettings
from hgld.training.validation import evaluate_model

log = logging.getLogger(__name__)

_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Trainer:
    """A training, at some step of it.

    Args:
        settings: of everything.
        images: to train on and to evaluate with.
        model: on its device.
        loss: on the same.
        folder: where checkpoints and the history go; that of the first process is written to.
        processes: that train together.
        progress: told of images.

    Raises:
        ConfigurationError: there is nothing to train.
    """

    def __init__(
        self,
        settings: TrainingSettings,
        images: TrainingImages,
        model: EmbeddingModel,
        loss: Loss,
        folder: RunFolder,
        *,
        processes: Processes | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.settings, self.images, self.model, self.loss, self.folder = settings, images, model, loss, folder
        self.processes, self.progress = processes or Processes(), progress or NoProgress()
        self.device = model.device
        self.n_steps = settings.steps or (settings.epochs or 0) * len(images.sampler)
        groups = {**model.groups(), "proxies": list(loss.parameters())}
        _check_frozen(model, groups, settings)
        self.optimisers = Optimisers(groups, dict(settings.optimiser), self.n_steps)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=settings.mixed_precision == "fp16")
        self.epoch = self.batch = self.step = 0
        self.skipped_batches = 0
        self.best: float | None = None

    def train(self) -> None:
        """Train to the end, from where it is.

        Raises:
            KeyboardInterrupt: someone wanted it to stop; the last step is saved.
            ConfigurationError: the loss is not finite, or memory does not suffice.
            InputError: an image archive cannot be read.
        """
        with catch_stop_signals() as wish:
            if self.step == 0:
                self.evaluate()
            if self.n_steps == 0:
                self.save()
            self.progress.start(self.n_steps * self.settings.batch_size, self.step * self.settings.batch_size)
            while self.step < self.n_steps or self.batch > 0:  # a checkpoint may be of an epoch's last step
                self.train_epoch(wish)
                self.epoch, self.batch = self.epoch + 1, 0
                if self.epoch % self.settings.evaluation.every == 0 or self.step == self.n_steps:
                    self.evaluate()
                self.save()

    def train_epoch(self, wish: StopRequest) -> None:
        """Train for what is left of an epoch."""
        self.model.train()
        self.loss.train()
        freeze(self.model, self.settings, self.epoch)
        model = self.distributed()
        began = time.perf_counter()
        for batch in self.batches():
            rates = self.optimisers.set_learning_rates(self.step)
            loss = self.train_step(model, batch)
            self.batch, self.step = self.batch + 1, self.step + 1
            began, seconds = time.perf_counter(), time.perf_counter() - began
            self.tell(batch, loss, rates, seconds)
            stop = any(self.processes.gather(wish.requested))
            if stop or self.step % self.settings.checkpoint_steps == 0:
                self.save()
            if stop:
                raise KeyboardInterrupt

    def train_step(self, model: nn.Module, batch: Batch) -> float | None:
        """One step; the loss, or None if too many images could not be read for there to be one."""
        everyone = self.processes.gather((batch.labels, len(batch.skipped)))
        labels = torch.cat([labels for labels, _ in everyone]).to(self.device)
        if any(n_skipped for _, n_skipped in everyone) and len(set(labels[:, 0].tolist())) == len(labels):
            return None  # no class has two images left

        def loss_of(embeddings: torch.Tensor) -> torch.Tensor:
            gathered = gather_embeddings(embeddings, [len(own) for own, _ in everyone])
            with self.drawing_alike():
                loss: torch.Tensor = self.loss(gathered, labels)
            if not loss.isfinite():
                raise ConfigurationError(_not_finite(self.step, float(loss.detach()), self.loss.parts))
            return loss

        self.optimisers.zero_grad()
        try:
            loss = backpropagate(
                model,
                self.model.to_device(batch.images),
                loss_of,
                chunk_size=self.settings.chunk_size,
                autocast=partial(autocast, self.settings, self.device),
                scale=self.scaler.scale,
            )
        except torch.cuda.OutOfMemoryError as error:
            raise ConfigurationError(out_of_memory_message(self.settings, self.processes.count)) from error
        average_gradients(self.loss.parameters(), self.processes)
        self.optimisers.step(self.scaler, self.settings.clip_norm)
        return float(loss)

    def batches(self) -> Iterator[Batch]:
        """The batches that are left of the epoch, and of the training."""
        batches = training_batches(
            self.images.train,
            self.images.sampler,
            self.epoch,
            start=self.batch,
            processes=self.processes,
            seed=self.settings.seed,
            workers=self.settings.workers,
        )
        return islice(batches, self.n_steps - self.step)

    def distributed(self) -> nn.Module:
        """The model, exchanging the gradients of what is to be trained now, if there are several processes."""
        trained = any(parameter.requires_grad for parameter in self.model.parameters())
        if self.processes.count == 1 or not trained:
            return self.model
        return DistributedDataParallel(self.model, [self.device] if self.device.type == "cuda" else None)

    @contextmanager
    def drawing_alike(self) -> Iterator[None]:
        """Draw the same in all processes: each takes the loss of the whole batch, which may mix or disturb it."""
        gpus = [torch.cuda.current_device()] if self.device.type == "cuda" else []
        with torch.random.fork_rng(gpus):
            torch.manual_seed(int(epoch_generator(self.settings.seed, self.epoch, self.batch, 1).integers(2**63)))
            yield

    def evaluate(self) -> None:
        """Evaluate, write down the result, and keep the model if it is the best."""
        if self.processes.rank == 0:
            log.info("evaluating with %d images", len(self.images.test))
        found = evaluate_model(
            self.model,
            self.images,
            metrics=self.settings.evaluation.metrics,
            batch_size=self.settings.evaluation.batch_size,
            workers=self.settings.workers,
            processes=self.processes,
        )
        means, best = found.result.means, self.settings.evaluation.best
        if best not in means:
            raise ConfigurationError(f'evaluation.best is "{best}"; expected one of {", ".join(means)}')
        better = self.best is None or means[best] > self.best
        self.best = means[best] if better else self.best
        if self.processes.rank == 0:
            said = ", ".join(f"{name} {100 * mean:.2f}" for name, mean in means.items())
            log.info("after %d epochs, %d steps: %s", self.epoch, self.step, said)
            self.folder.tell("evaluation", self.step, {"epoch": self.epoch, **means})
            self.log_skipped(self.images.test, found.skipped)
        if better:
            self.save(best=True)

    def save(self, *, best: bool = False) -> None:
        """Write a checkpoint, the last or the best."""
        state = self.state()
        if self.processes.rank == 0:
            save_checkpoint(self.folder.best if best else self.folder.last, state)

    def state(self) -> dict[str, Any]:
        """Everything that a checkpoint holds; all processes have to ask together."""
        return {
            **self.fingerprint(),
            "model": self.model.state_dict(),
            "loss": self.loss.state_dict(),
            "optimiser": self.optimisers.state_dict(),
            "scaler": self.scaler.state_dict(),
            "rng": self.processes.gather(random_state(self.device)),
            "epoch": self.epoch,
            "batch": self.batch,
            "step": self.step,
            "best": self.best,
            "skipped_batches": self.skipped_batches,
            "history": self.folder.n_lines,
        }

    def fingerprint(self) -> dict[str, Any]:
        """What has to be the same when a training goes on."""
        return {
            "settings": to_dict(self.settings),
            "digests": self.images.digests,
            "processes": self.processes.count,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go back to a checkpoint."""
        self.model.load_state_dict(state["model"])
        self.loss.load_state_dict(state["loss"])
        self.optimisers.load_state_dict(state["optimiser"])
        self.scaler.load_state_dict(state["scaler"])
        self.epoch, self.batch, self.step = state["epoch"], state["batch"], state["step"]
        self.best, self.skipped_batches = state["best"], state["skipped_batches"]
        set_random_state(state["rng"][self.processes.rank], self.device)

    def tell(self, batch: Batch, loss: float | None, rates: Mapping[str, float], seconds: float) -> None:
        """Write down a step."""
        self.skipped_batches += loss is None
        skipped = [one for skipped in self.processes.gather(batch.skipped) for one in skipped]
        if self.processes.rank:
            return
        n_images = self.settings.batch_size
        values: dict[str, Any] = {"epoch": self.epoch, "lr": rates, "images_per_s": n_images / seconds}
        if loss is not None:
            values |= {"loss": loss, "parts": {name: float(part) for name, part in self.loss.parts.items()}}
        if self.skipped_batches:
            values["skipped_batches"] = self.skipped_batches
        self.folder.tell("step", self.step, values)
        self.log_skipped(self.images.train, skipped)
        details = {} if loss is None else {"loss": loss, **values["parts"]}
        self.progress.advance(n_images, **details)

    def log_skipped(self, dataset: ExampleDataset, skipped: Iterable[SkippedImage]) -> None:
        """Write down which images could not be read."""
        self.folder.log_skipped({dataset.manifest.ids[one.row]: one.reason for one in skipped})


def freeze(model: EmbeddingModel, settings: TrainingSettings, epoch: int) -> None:
    """Keep the backbone as it is in the warm-up, and what is to stay so ever."""
    model.freeze_backbone(epoch < settings.warm_up_epochs)
    for name, parameter in model.named_parameters():
        if name.startswith(settings.frozen):
            parameter.requires_grad_(False)


def autocast(settings: TrainingSettings, device: torch.device) -> AbstractContextManager[object]:
    """The precision of the model."""
    half = _HALF.get(settings.mixed_precision)
    return torch.autocast(device.type, half, enabled=half is not None)


def average_gradients(parameters: Iterable[nn.Parameter], processes: Processes) -> None:
    """Make the gradients of the loss's parameters the same in all processes; each has that of the whole batch."""
    if processes.count == 1:
        return
    for parameter in parameters:
        if parameter.grad is not None:
            torch.distributed.all_reduce(parameter.grad)
            parameter.grad /= processes.count


def _check_frozen(model: nn.Module, groups: Mapping[str, list[nn.Parameter]], settings: TrainingSettings) -> None:
    names = [name for name, _ in model.named_parameters()]
    for beginning in settings.frozen:
        if not any(name.startswith(beginning) for name in names):
            raise ConfigurationError(
                f'frozen: no parameter of the model has a name that begins with "{beginning}"; there are '
                f"{', '.join(dict.fromkeys('.'.join(name.split('.')[:2]) for name in names))}"
            )
    if settings.warm_up_epochs and not groups["head"] and not groups["proxies"]:
        raise ConfigurationError(
            "there is nothing to train in the warm-up: the backbone is frozen, the model has no head and the loss no "
            "parameters; set warm_up_epochs to 0 or model.dim"
        )


def _not_finite(step: int, loss: float, parts: Mapping[str, torch.Tensor]) -> str:
    said = ", ".join(f"{name} {float(part):.4g}" for name, part in parts.items())
    return (
        f"the loss is {loss} at step {step}{f' ({said})' if said else ''}; lower the learning rates, set "
        "clip_norm, or try another mixed_precision. The checkpoint before it is whole"
    )


def out_of_memory_message(settings: TrainingSettings, n_processes: int) -> str:
    """What to do where a batch does not fit into a GPU."""
    return (
        f"the GPU's memory does not suffice: batch_size {settings.batch_size} in {n_processes} processes, chunk_size "
        f"{settings.chunk_size or 'not set'}, mixed_precision {settings.mixed_precision}. Set chunk_size (the same "
        "gradients from less memory), mixed_precision: bf16, or a smaller batch_size"
    )
