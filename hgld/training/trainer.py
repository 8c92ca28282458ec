"""The training loop: plain PyTorch, for one process or several, resumable bit-identically at any step."""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from hgld.arrays import Booleans
from hgld.compute.machine import StopRequest, catch_stop_signals
from hgld.compute.processes import Processes
from hgld.datasets.encoded_images import SkippedImage
from hgld.datasets.loading import Batch, BatchReader, ExampleDataset
from hgld.datasets.samplers import epoch_generator
from hgld.errors import ConfigurationError
from hgld.evaluation.metric_units import goodness, shown_value
from hgld.evaluation.ranking import RankingConfig
from hgld.io.settings import to_dict
from hgld.losses.base import Loss
from hgld.losses.cross_batch_memory import CrossBatchMemory
from hgld.losses.kernels.batches import EmbeddingsError, gather_embeddings
from hgld.models.embedding_model import EmbeddingModel
from hgld.models.model_loading import save_checkpoint
from hgld.progress import NoProgress, Progress
from hgld.training.optimisation import (
    Optimisers,
    TrainingLength,
    average_gradients,
    backpropagate,
    freeze_parameters,
    require_trainable,
)
from hgld.training.run_folder import RunFolder
from hgld.training.training_images import TrainingImages
from hgld.training.training_settings import TrainingSettings
from hgld.training.validation import embed_dataset, rank_embedded

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}

log = logging.getLogger(__name__)


class Trainer:
    """Trains a model and a loss, from any step to the end.

    Attributes:
        batch: Number of batches of this epoch that are done.
        step: Number of steps that are done.
        best: Best value of the selecting metric on the validation images so far; None before the first.
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
        self.settings, self.images, self.folder = settings, images, folder
        self.model, self.loss = model, loss
        self.processes, self.progress = processes or Processes(), progress or NoProgress()
        self.device = model.device
        self.n_steps = images.n_steps
        groups = {**model.parameter_groups(), "proxies": list(loss.parameters())}
        require_trainable(model, groups, settings)
        length = TrainingLength(self.n_steps, images.n_epochs, settings.warm_up_epochs)
        self.optimisers = Optimisers(groups, dict(settings.optimiser), length)
        self.scaler = torch.amp.GradScaler(
            self.device.type, enabled=settings.mixed_precision == "fp16"
        )
        self.epoch = self.batch = self.step = 0
        self.skipped_batches = 0
        self.best: float | None = None
        self._reader = BatchReader(images.train, settings.workers)

    def train(self) -> None:
        """Train from the current step to the end.

        Raises:
            KeyboardInterrupt: A stop was requested; a checkpoint of the last step is saved. Evaluations stop at once.
            ConfigurationError: The embeddings, the loss or its gradient are not finite, or a batch does not fit into
                memory.
            InputError: An image archive cannot be read.
        """
        with closing(self._reader), catch_stop_signals() as stop:
            if self.step == 0:
                self.save()  # an evaluation may take long, and is not resumed when it is interrupted
                with stop.interrupting():
                    self.evaluate()
            if self.n_steps == 0:
                self.save()  # again, now with the evaluation in the history
            batch_size = self.settings.batch_size
            self.progress.start(self.n_steps * batch_size, self.step * batch_size)
            # A checkpoint of the last step may precede the end of its epoch: batch is then above 0.
            while self.step < self.n_steps or self.batch > 0:
                self.train_epoch(stop)
                n_epochs = self.epoch + 1
                is_last = self.step == self.n_steps
                evaluating = is_last or n_epochs % self.settings.evaluation.every == 0
                if evaluating:
                    self.save()  # an evaluation that is interrupted does not cost the epoch
                self.epoch, self.batch = n_epochs, 0
                if evaluating:
                    with stop.interrupting():
                        self.evaluate()
                self.save()

    def train_epoch(self, stop: StopRequest) -> None:
        """Train for the remaining batches of the epoch."""
        self.model.train()
        self.loss.train()
        freeze_parameters(self.model, self.settings, self.epoch)
        model: nn.Module = self.model
        is_trained = any(parameter.requires_grad for parameter in self.model.parameters())
        if self.processes.count > 1 and is_trained:
            # averages gradients over processes
            devices = [self.device] if self.device.type == "cuda" else None
            model = DistributedDataParallel(model, devices)
        started, waited_s = time.perf_counter(), self._reader.waited_s
        remaining = self._reader.training(
            self.images.sampler,
            self.epoch,
            start=self.batch,
            processes=self.processes,
            seed=self.settings.seed,
        )
        for batch in islice(remaining, self.n_steps - self.step):  # which may end within the epoch
            rates = self.optimisers.set_learning_rates(self.epoch, self.step)
            loss = self.train_step(model, batch)
            self.batch, self.step = self.batch + 1, self.step + 1
            started, seconds = time.perf_counter(), time.perf_counter() - started
            waited_s, step_waited_s = self._reader.waited_s, self._reader.waited_s - waited_s
            self.log_step(batch, loss, rates, seconds, waiting_share=step_waited_s / seconds)
            stopping = any(self.processes.gather(stop.requested))
            if stopping or self.step % self.settings.checkpoint_steps == 0:
                self.save()
            if stopping:
                self.processes.gather(None)  # SLURM may kill the others as soon as one has ended
                raise KeyboardInterrupt

    def train_step(self, model: nn.Module, batch: Batch) -> float | None:
        """Take one step; return the loss, or None if too few images of the batch could be read."""
        classes = []
        rows = []
        n_skipped = 0
        values = (_classes(batch.labels), batch.rows.tolist(), len(batch.skipped))
        for part_classes, part_rows, n_part_skipped in self.processes.gather(values):
            classes += part_classes
            rows += part_rows
            n_skipped += n_part_skipped
        if n_skipped and len(set(classes)) == len(classes):
            return None  # no class has two images left
        options = {}
        if isinstance(self.loss, CrossBatchMemory) and self.loss.unique:
            options["indices"] = torch.tensor(rows, device=self.device)

        def loss_function(embeddings: Tensor) -> Tensor:
            embeddings, labels = gather_embeddings(embeddings, batch.labels)
            try:
                with self._shared_random_state():
                    loss: Tensor = self.loss(embeddings, labels, **options)
            except EmbeddingsError as error:
                raise self._divergence(error.finding) from error
            if not loss.isfinite():
                parts = [f"{name} {float(part):.4g}" for name, part in self.loss.parts.items()]
                finding = f"the loss is {float(loss.detach())}"
                if parts:
                    finding += f" ({', '.join(parts)})"
                raise self._divergence(finding)
            return loss

        self.optimisers.zero_grad()
        dtype = _DTYPES.get(self.settings.mixed_precision)
        autocast = partial(torch.autocast, self.device.type, dtype, enabled=dtype is not None)
        try:
            loss = backpropagate(
                model,
                batch.images_on(self.device, dtype or torch.float32),
                loss_function,
                chunk_size=self.settings.chunk_size,
                autocast=autocast,
                scale=self.scaler.scale,
            )
        except torch.cuda.OutOfMemoryError as error:
            raise ConfigurationError(
                f"the GPU is out of memory: batch_size {self.settings.batch_size} in {self.processes.count} "
                f"processes, chunk_size {self.settings.chunk_size or 'not set'}, mixed_precision "
                f"{self.settings.mixed_precision}. Set chunk_size (the same gradients with less memory), "
                "mixed_precision: bf16, or a smaller batch_size"
            ) from error
        average_gradients(self.loss.parameters(), self.processes)
        if not self.optimisers.step(self.scaler, self.settings.clip_norm):
            if not self.scaler.is_enabled() or self.scaler.get_scale() < 1:
                raise self._divergence("the gradient is not finite")
            log.info(
                "step %d: no update, as the gradient exceeds 16 bits; its scale is halved",
                self.step,
            )
        return float(loss)

    def evaluate(self) -> None:
        """Evaluate the model on the validation images, and save and test it if it is the best so far.

        Without validation images, only test it.
        """
        has_validation = self.images.val is not None
        if has_validation and not self._validate():
            return
        self.evaluate_on("test", self.images.test, self.images.is_query)
        if has_validation:
            self.save(best=True)

    def _validate(self) -> bool:
        """Evaluate the model on the validation images, and return whether it is the best so far."""
        assert self.images.val is not None
        metric = self.settings.evaluation.best
        mean = self.evaluate_on("val", self.images.val)[metric]
        if math.isnan(mean):
            raise ConfigurationError(
                f"the validation images cannot select a checkpoint: {metric} is undefined, as no query has a "
                "positive; use a metric of a coarser level (evaluation.best), or more images per class"
            )
        if self.best is not None and goodness(metric, mean) <= goodness(metric, self.best):
            return False
        self.best = mean
        return True

    def evaluate_on(
        self,
        kind: Literal["val", "test"],
        dataset: ExampleDataset,
        is_query: Booleans | None = None,
    ) -> Mapping[str, float]:
        """Evaluate the model, log the means, and return them: of all metrics, or of the selecting one on ``val``."""
        settings = self.settings.evaluation
        if self.processes.rank == 0:
            log.info("evaluating with %d %s images", len(dataset), kind)
        embedded = embed_dataset(
            self.model,
            dataset,
            batch_size=settings.batch_size,
            workers=self.settings.workers,
            processes=self.processes,
        )
        means = rank_embedded(
            embedded,
            dataset,
            is_query,
            metrics=(settings.best,) if kind == "val" else settings.metrics,
            ranking=RankingConfig(
                device=str(self.model.device), distance=self.model.settings.distance
            ),
            processes=self.processes,
        ).means
        if settings.best not in means:
            raise ConfigurationError(
                f'evaluation.best is "{settings.best}"; expected one of {", ".join(means)}'
            )
        if self.processes.rank == 0:
            values = [f"{name} {shown_value(name, mean):.2f}" for name, mean in means.items()]
            text = ", ".join(values)
            log.info("after %d epochs, %d steps, %s: %s", self.epoch, self.step, kind, text)
            self.folder.log(kind, self.step, {"epoch": self.epoch, **means})
            self._log_skipped(dataset, embedded.skipped)
        return means

    def log_step(
        self,
        batch: Batch,
        loss: float | None,
        rates: Mapping[str, float],
        seconds: float,
        *,
        waiting_share: float,
    ) -> None:
        """Log a step: the loss (None if the batch was skipped), learning rates, throughput and unreadable images."""
        self.skipped_batches += loss is None
        skipped = []
        for images in self.processes.gather(batch.skipped):
            skipped += images
        if self.processes.rank:
            return
        n_images = self.settings.batch_size
        values: dict[str, Any] = {
            "epoch": self.epoch,
            "lr": rates,
            "images_per_s": n_images / seconds,
            "waiting_share": waiting_share,
        }
        if loss is not None:
            values["loss"] = loss
            values["parts"] = {name: float(part) for name, part in self.loss.parts.items()}
        if self.skipped_batches:
            values["skipped_batches"] = self.skipped_batches
        self.folder.log("step", self.step, values)
        self._log_skipped(self.images.train, skipped)
        details = {} if loss is None else {"loss": loss, **values["parts"]}
        self.progress.advance(n_images, **details)

    def save(self, *, best: bool = False) -> None:
        """Save a checkpoint, as the last one or as the best one; all processes have to call this together."""
        state = self.state_dict()
        if self.processes.rank == 0:
            save_checkpoint(self.folder.best if best else self.folder.last, state)

    def state_dict(self) -> dict[str, Any]:
        """Return the contents of a checkpoint; all processes have to call this together."""
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
            "history": self.folder.n_history_lines,
        }

    def fingerprint(self) -> dict[str, Any]:
        """Return what must be the same when the training is resumed: settings, data and number of processes."""
        return {
            "settings": to_dict(self.settings),
            "digests": self.images.digests,
            "processes": self.processes.count,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state returned by :meth:`state_dict`."""
        self.model.load_state_dict(state["model"])
        self.loss.load_state_dict(state["loss"])
        self.optimisers.load_state_dict(state["optimiser"])
        self.scaler.load_state_dict(state["scaler"])
        self.epoch, self.batch, self.step = state["epoch"], state["batch"], state["step"]
        self.best, self.skipped_batches = state["best"], state["skipped_batches"]
        set_random_state(state["rng"][self.processes.rank], self.device)

    def _divergence(self, finding: str) -> ConfigurationError:
        """Return the error of a step whose numbers are not finite, such as "the loss is nan"."""
        return ConfigurationError(
            f"at step {self.step}, {finding}; lower the learning rates, set clip_norm, or try another "
            "mixed_precision. The last checkpoint is intact"
        )

    @contextmanager
    def _shared_random_state(self) -> Iterator[None]:
        """Draw the same random numbers in all processes, as each computes the loss of the whole batch."""
        gpus = [torch.cuda.current_device()] if self.device.type == "cuda" else []
        generator = epoch_generator(self.settings.seed, self.epoch, self.batch, 1)
        with torch.random.fork_rng(gpus):
            torch.manual_seed(int(generator.integers(2**63)))
            yield

    def _log_skipped(self, dataset: ExampleDataset, skipped: Iterable[SkippedImage]) -> None:
        ids = dataset.manifest.ids
        self.folder.log_skipped({ids[image.row]: image.reason for image in skipped})


def _classes(labels: Tensor) -> list[int]:
    """Return the finest class of every pair of an image and a label."""
    finest: list[Any] = labels[..., 0].tolist()
    if labels.ndim == 2:
        return finest
    classes = []
    for image_classes in finest:
        classes += [label for label in set(image_classes) if label >= 0]
    return classes


def seed_generators(seed: int) -> None:
    """Seed the generators of Python, NumPy and torch."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def random_state(device: torch.device) -> dict[str, Any]:
    """Return the state of the generators of Python, NumPy and torch, as tensors and plain values."""
    kind, keys, *rest = np.random.get_state(legacy=True)
    version, words, gauss = random.getstate()
    state = {
        "python": [version, list(words), gauss],
        "numpy": [kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest],
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: Mapping[str, Any], device: torch.device) -> None:
    """Restore a state returned by :func:`random_state`."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.cpu().numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"].cpu())
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"].cpu(), device)
