"""``--executor``: run a command in parts on an engine, each by its own command line with ``--part`` added."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hgld.cli.base import command_line, log
from hgld.compute.executors import Part
from hgld.errors import ConfigurationError, ProcessError, indented_list, require_at_least
from hgld.io.files import exclusive_lock
from hgld.progress import TerminalProgress

if TYPE_CHECKING:
    from hgld.compute.executors import Executor, Task


@dataclass(frozen=True)
class ExecutionConfig:
    """Engine that runs a command in parts.

    Args:
        executor: Run ``parts`` on an engine, then join them: processes of this machine, a job array of SLURM, or
            tasks of a Ray cluster (that of RAY_ADDRESS, or the one on this machine). Default: no engine.
        parts: Number of parts; many more than run at the same time, as what is lost is run again.
        max_running: Largest number of parts at the same time. Default: as many as the engine takes; local: one per
            GPU with ``device`` cuda, else 1.
        sbatch: Options of sbatch for each part, such as "--gpus=1 --time=8:00:00"; for slurm.
        ray: What each part needs, such as "num_gpus=1 num_cpus=8"; for ray.

    Raises:
        ConfigurationError: An option is missing, out of range, or for another executor.
    """

    executor: Literal["local", "slurm", "ray"] | None = None
    parts: int | None = None
    max_running: int | None = None
    sbatch: str = ""
    ray: str = ""

    def __post_init__(self) -> None:
        if (self.executor is None) != (self.parts is None):
            raise ConfigurationError("`executor` and `parts` need each other; give both")
        require_at_least(1, parts=self.parts, max_running=self.max_running)
        if (self.sbatch and self.executor != "slurm") or (self.ray and self.executor != "ray"):
            raise ConfigurationError("`sbatch` is for `executor` slurm, and `ray` for `executor` ray")

    def engine(self, device: str) -> Executor:
        """Return the executor."""
        from hgld.compute.executors import LocalExecutor, RayExecutor, parse_slots
        from hgld.compute.slurm import SlurmExecutor

        if self.executor == "slurm":
            return SlurmExecutor(self.sbatch, max_running=self.max_running)
        if self.executor == "ray":
            return RayExecutor(self.ray, self.max_running)
        names = [slot.devices[0] for slot in parse_slots("cuda" if device == "cuda" else "cpu")]
        n_slots = self.max_running or len(names)
        return LocalExecutor(parse_slots(",".join(names[n % len(names)] for n in range(n_slots))))

    def run_parts(self, out: Path, is_written: Callable[[Part], bool], *, device: str = "cpu") -> None:
        """Run the parts of the running command that are not written.

        Args:
            out: Output of the command. Logs are in ``{out}.logs`` beside it until all parts are done.
            is_written: Returns whether a part is written.
            device: Device that parts use.

        Raises:
            ProcessError: Parts have failed; the others are done.
            BusyError: Another run executes parts of the same output.
        """
        assert self.parts is not None
        folder, count = out.with_name(f"{out.name}.logs"), self.parts
        with exclusive_lock(folder, name=f"parts of {out}"):
            parts = [part for part in (Part(number, count) for number in range(1, count + 1)) if not is_written(part)]
            log.info("%d of %d parts are done", count - len(parts), count)
            tasks = [self._task(part, folder, partial(is_written, part)) for part in parts]
            with TerminalProgress(command_line()[0], "parts") as progress:
                failed = self.engine(device).run(tasks, folder / "slurm", progress=progress) if tasks else ()
            if failed:
                raise ProcessError(
                    f"{len(failed):,} of {count:,} parts failed, the others are done; the same command runs only "
                    "these again:\n" + indented_list([f"{each}: {each.last_line}" for each in failed])
                )
            shutil.rmtree(folder, ignore_errors=True)

    def _task(self, part: Part, folder: Path, is_done: Callable[[], bool]) -> Task:
        from hgld.compute.executors import Task

        module, line = "hgld" if self.executor == "slurm" else "hgld.cli.part_worker", command_line()
        return Task(
            name=f"part {part}",
            arguments=(module, *line, "--part", str(part)),
            log=folder / f"{part.number}-of-{part.count}.log",
            is_done=is_done,
            result=" ".join(line),
            retries=1,
        )
