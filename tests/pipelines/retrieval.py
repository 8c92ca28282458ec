"""The Snakemake pipeline of retrieval in a folder of its own, for its tests."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SNAKEFILE = Path(__file__).parents[2] / "pipelines" / "retrieval" / "Snakefile"
SLURM_PROFILE = SNAKEFILE.parent / "profiles" / "slurm"
#: Changes to the profile for nodes with little to do: few processes, and status checks every few seconds.
SMALL_JOBS = ("--set-threads", "embed_part=1", "--slurm-init-seconds-before-status-checks", "2")
#: A small network with random weights, which are the same in every process.
TINY_MODEL = "--model test_resnet --pretrained none --size 32 --resize 32"


@dataclass
class RetrievalPipeline:
    """Snakemake in a folder, with settings.

    Args:
        folder: Working folder.
        settings: Settings of the pipeline.
        environment: Variables besides those of this process.
    """

    folder: Path
    settings: dict[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def out(self) -> Path:
        return self.folder / str(self.settings["out"])

    @property
    def process_environment(self) -> dict[str, str]:
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        return os.environ | {"OMP_NUM_THREADS": "1"} | dict(self.environment) | {"PATH": path}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        config = self.folder / "settings.json"
        config.write_text(json.dumps(self.settings), encoding="utf-8")
        command = [sys.executable, "-m", "snakemake", "--snakefile", str(SNAKEFILE), "--configfile", str(config)]
        return subprocess.Popen(
            [*command, *arguments],
            cwd=self.folder,
            env=self.process_environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str, succeeds: bool = True) -> str:
        """Run Snakemake to its end; returns what it prints."""
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=600)
        assert (process.returncode == 0) == succeeds, output
        return output

    def planned(self) -> dict[str, int]:
        """Number of jobs that would run, by rule."""
        return planned_jobs(self.run("--dry-run"))


def planned_jobs(output: str) -> dict[str, int]:
    """Number of jobs by rule in the output of a dry run, without the one that only names the results."""
    return dict(Counter(re.findall(r"^ *(?:local)?rule (?!all)(\w+):", output, flags=re.MULTILINE)))


def washington_settings(shared: Path, *, parts: int) -> dict[str, Any]:
    """Settings that embed half of the landmarks of Washington state's photographs."""
    folder = shared / "wa_gldv2"
    return {
        "out": "out",
        "datasets": {
            "washington": {
                "folder": str(folder / "train"),
                "tars": True,
                "manifest": f"gldv2 {folder / 'train'} --images out/washington/images.parquet"
                f" --labels {folder / 'train_clean.csv'} --min-images 4 --test-share 0.5",
                "embed": ["tiny"],
                "parts": parts,
            }
        },
        "models": {"tiny": f"{TINY_MODEL} --split test"},
    }
