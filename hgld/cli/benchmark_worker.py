"""Child process or SLURM job of ``hgld benchmark``: trains and evaluates one run; not a command of its own."""

from __future__ import annotations

import signal
from pathlib import Path

import typer

from hgld.cli.base import friendly_errors, log_to_stderr


def main(task: Path, device: str, parent: bool = True) -> None:
    """Run a task on a device; stop in good order when the parent or SLURM asks for it, or when the parent exits.

    A parent process keeps stdin open while it lives; a job of SLURM has none.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    log_to_stderr()
    with friendly_errors():
        from hgld.benchmark.worker import WorkerTask, work
        from hgld.compute.machine import disable_trimming, stop_with_parent
        from hgld.compute.processes import joined_processes, local_device, training_backend
        from hgld.progress import NoProgress, TerminalProgress

        if parent:
            stop_with_parent()
        disable_trimming()
        with joined_processes(training_backend(device)) as processes, TerminalProgress("train", "images") as progress:
            work(
                WorkerTask.read(task),
                device=local_device(device),
                processes=processes,
                progress=NoProgress() if processes.rank else progress,
            )


if __name__ == "__main__":
    typer.run(main)
