"""A training of the toy model that takes long enough to be stopped in the middle, as a command for SLURM."""

import time
from pathlib import Path

import typer

from hgld.cli.application import friendly_errors, log_to_stderr
from hgld.compute.processes import joined_processes
from hgld.progress import NoProgress
from hgld.training import run
from tests.training import toy


class SlowProgress(NoProgress):
    """Waits after each step."""

    def advance(self, units: int = 1, **details: float) -> None:
        time.sleep(0.5)


def main(manifest: Path, out: Path) -> None:
    """Train, or resume the training in a folder."""
    log_to_stderr()
    toy.use_toy_model()
    settings = toy.settings(manifest, checkpoint_steps=1000, workers=1, epochs=3)
    with friendly_errors(again="continue with --resume"), joined_processes() as processes:
        run.train(settings, out, resume=True, processes=processes, progress=SlowProgress())


if __name__ == "__main__":
    typer.run(main)
