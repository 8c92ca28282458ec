"""What a comparison will take: steps, images, hours, memory and disk, from a measured throughput (``--plan``)."""

from __future__ import annotations

import heapq
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hgld.benchmark.benchmark_settings import BenchmarkSettings, Gldv2Evaluation
from hgld.benchmark.dataset_sizes import Passes, TrainingData, evaluation_data, training_data
from hgld.benchmark.launcher import Slot
from hgld.benchmark.run_evaluation import read_evaluated
from hgld.benchmark.runs import Run
from hgld.benchmark.throughput import (
    ModelCost,
    StepCost,
    measure_model,
    measure_ranking,
    measure_reading,
    measure_step,
    with_threads,
)
from hgld.cli.render import aligned
from hgld.compute.malloc import disable_trimming
from hgld.errors import indented_list
from hgld.progress import byte_size
from hgld.training.run import is_finished
from hgld.training.training_settings import TrainingSettings

_BYTES_OF_FLOAT32 = 4
_WIDTH = 80
#: The last checkpoint of a run, and the best.
_CHECKPOINTS = 2


@dataclass(frozen=True)
class _Need:
    """What a run takes.

    Args:
        steps: of its training.
        batch_size: images of a step.
        network_s: of a step, for the network.
        step: what else a step takes.
        training_s: in all, with the evaluations before it, meanwhile and after it.
        final_s: of the evaluation of the trained model.
        activations: bytes of a GPU that a step takes besides what is held; 0 on a CPU, which does not say.
        embeddings: bytes of those of the evaluation.
    """

    steps: int
    batch_size: int
    network_s: float
    step: StepCost
    training_s: float
    final_s: float
    activations: int
    embeddings: int

    @property
    def row(self) -> list[object]:
        """Its numbers in the table."""
        step = (self.network_s, self.step.loss.seconds, self.step.optimisers.seconds)
        return [
            self.steps,
            *(f"{seconds:.3f}" for seconds in step),
            f"{(self.training_s + self.final_s) / 3600:,.2f}",
        ]


@dataclass(frozen=True, eq=False)
class _Common:
    """What several trainings share.

    Args:
        data: that they read.
        network: with the images of a process.
        reading_s: what one process needs to read an image; 0 where there are none.
        ranking_s: for a query and an image of the gallery.
    """

    data: TrainingData
    network: ModelCost
    reading_s: float
    ranking_s: float


def plan(settings: BenchmarkSettings, runs: Sequence[Run], slots: Sequence[Slot]) -> str:
    """What runs will take, measured with made-up images on the first of the devices; nothing is written.

    Images that are there are read, 32 of them, to see how long that takes. Where GLDv2's are not there, its published
    sizes stand in for them.

    Args:
        settings: of the comparison.
        runs: of its table and of studies.
        slots: that the runs would be shared among.

    Raises:
        InputError: images to train on are not there, and they are not GLDv2's.
        ConfigurationError: a batch does not fit into the memory of the GPU; or a run was begun with other settings.
    """
    disable_trimming()  # as trainings do
    bench = _Bench(settings, slots[0])
    with with_threads(slots[0].threads):
        needs = {
            title: bench.need(training) for title, training in {_title(run): run.settings for run in runs}.items()
        }
    trained = {run.folder for run in runs if is_finished(run.settings, run.folder)}
    to_train = [needs[_title(run)] for run in runs if run.folder not in trained]
    to_do = [run for run in runs if run.folder not in trained or read_evaluated(settings, run) is None]
    hours = [
        (needs[_title(run)].final_s + (run.folder not in trained) * needs[_title(run)].training_s) / 3600
        for run in to_do
    ]
    counts = Counter(map(_title, to_do))
    lines = [
        f"{settings.title}: {len(runs)} runs, {len(runs) - len(to_do)} of them done",
        "",
        *aligned(
            ["a run of", "to do", "steps", "network s", "loss s", "optimisers s", "hours"],
            [[title, counts[title], *need.row] for title, need in needs.items()],
        ),
        "",
        _time(hours, slots),
        f"{sum(need.steps * need.batch_size for need in to_train):,} images to learn from, each as often as it comes",
        _memory(list(needs.values())),
        _disk([needs[_title(run)] for run in runs], bench.n_bytes),
        "",
        *(line for note in bench.notes() for line in textwrap.wrap(note, _WIDTH)),
    ]
    if missing := bench.missing:
        lines += ["", "Not there yet; docs/reproduce.md says how it comes:", indented_list(missing)]
    return "\n".join(lines)


class _Bench:
    """Measures what runs take, and once what several of them have in common.

    Args:
        settings: of the comparison.
        slot: where a run is trained.
    """

    def __init__(self, settings: BenchmarkSettings, slot: Slot) -> None:
        self._slot, self._device = slot, torch.device(slot.devices[0])
        evaluation = settings.evaluation
        self._gldv2 = evaluation_data(evaluation) if isinstance(evaluation, Gldv2Evaluation) else None
        self._known: dict[TrainingSettings, _Common] = {}

    def need(self, settings: TrainingSettings) -> _Need:
        """What a run takes."""
        common = self._common(settings)
        data, network = common.data, common.network
        n_processes = len(self._slot.devices)
        step = measure_step(settings, network.model, data.labels, data.batch, self._device, n_processes)
        share = settings.batch_size // n_processes
        network_s = network.training.seconds / network.n_images * share
        computing_s = network_s + step.loss.seconds + step.optimisers.seconds
        step_s = self._reading_too(computing_s, share * common.reading_s, settings)
        final = self._gldv2.test if self._gldv2 else data.test
        return _Need(
            steps=data.steps,
            batch_size=settings.batch_size,
            network_s=network_s,
            step=step,
            training_s=data.steps * step_s + self._seconds(data.besides, common, settings),
            final_s=self._seconds(final, common, settings),
            activations=max(network.training.n_bytes, step.loss.n_bytes),
            embeddings=final.n_images * network.model.dim * _BYTES_OF_FLOAT32,
        )

    @property
    def missing(self) -> list[str]:
        """What is not there, and why."""
        found = [common.data.missing for common in self._known.values()]
        found += [self._gldv2.missing] if self._gldv2 else []
        return list(dict.fromkeys(one for some in found for one in some))

    @property
    def n_bytes(self) -> int:
        """Of all images; trainings share theirs."""
        of_training = max(common.data.n_bytes for common in self._known.values())
        return of_training + (self._gldv2.n_bytes if self._gldv2 else 0)

    def notes(self) -> list[str]:
        """What the numbers depend on."""
        common = list(self._known.values())
        on_gpu = self._device.type == "cuda"
        where = torch.cuda.get_device_name(self._device) if on_gpu else f"{self._slot.threads} CPU threads"
        at_a_time = " or ".join(f"{n:,}" for n in sorted({one.network.n_images for one in common}))
        found = [
            f"Measured on {where}, beside whatever else was running. Networks with {at_a_time} made-up images at a "
            "time, scaled to a batch in proportion; losses and optimisers with a whole batch.",
            "Hours have the evaluations in them, and the pass over the images that a projection begins with; a "
            "warm-up takes less than they say.",
        ]
        if all(one.data.images for one in common):
            fastest = max(1 / one.reading_s for one in common)
            found.append(f"One process reads {fastest:,.0f} images a second.")
        else:
            found.append(
                "Not in them before the images to train on are there: reading, that pass, and evaluations before, "
                "meanwhile and after."
            )
        if len(self._slot.devices) > 1:
            found.append("What the processes of a run exchange was not measured.")
        return found

    def _common(self, settings: TrainingSettings) -> _Common:
        """What trainings with other losses and seeds share."""
        key = settings.model_copy(update={"loss": None, "memory": None, "optimiser": None, "seed": 0})
        if key not in self._known:
            data = training_data(settings, published=self._gldv2 is not None)
            network = measure_model(settings, self._device, len(self._slot.devices))
            self._known[key] = _Common(
                data=data,
                network=network,
                reading_s=0.0 if data.images is None else measure_reading(data.images),
                ranking_s=measure_ranking(network.model.dim, self._device),
            )
        return self._known[key]

    def _seconds(self, passes: Passes, common: _Common, settings: TrainingSettings) -> float:
        """Of images that are embedded and ranked."""
        embedding_s = self._reading_too(
            common.network.embedding.seconds / common.network.n_images, common.reading_s, settings
        )
        seconds = passes.n_images * embedding_s + passes.n_pairs * common.ranking_s
        return seconds / len(self._slot.devices)

    def _reading_too(self, computing_s: float, reading_s: float, settings: TrainingSettings) -> float:
        """Computing, while other processes read the next images: beside a GPU, or on the same cores."""
        if self._device.type == "cpu":
            return computing_s + reading_s / self._slot.threads
        return max(computing_s, reading_s / max(1, min(settings.workers, self._slot.threads)))


def _title(run: Run) -> str:
    """A method; and of a study, what is changed."""
    changed = run.folder.parent.name
    return run.method if changed == run.method else f"{run.method} {changed}"


def _time(hours: Sequence[float], slots: Sequence[Slot]) -> str:
    """In all, and how long it takes if each slot takes the next run when it is free, as :func:`launch` does."""
    free = [0.0] * len(slots)
    for of_run in hours:
        heapq.heapreplace(free, free[0] + of_run)
    devices = slots[0].devices
    in_all = f"{sum(hours) * len(devices):,.1f} GPU-hours" if devices[0] != "cpu" else f"{sum(hours):,.1f} hours"
    return f"{in_all} for what is to do; {max(free):,.1f} hours on {' | '.join(map(str, slots))}"


def _memory(needs: Sequence[_Need]) -> str:
    """Of the most demanding training."""
    held, activations = max(need.step.held for need in needs), max(need.activations for need in needs)
    said = f"memory of a process: up to {byte_size(held)} for parameters, gradients and optimisers"
    return f"{said}, and {byte_size(activations)} more in a step" if activations else said


def _disk(needs: Sequence[_Need], n_bytes: int) -> str:
    checkpoints = sum(_CHECKPOINTS * need.step.stored for need in needs)
    embeddings = sum(need.embeddings for need in needs)
    return (
        f"disk: {byte_size(n_bytes)} of images, {byte_size(checkpoints)} of checkpoints, {byte_size(embeddings)} of "
        "embeddings"
    )
