"""The command line as users see it: help, completion, exit codes, messages."""

import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import Field, dataclass
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from hgld import __version__
from hgld.cli import app
from hgld.cli.base import App, SharedCommand
from hgld.cli.options_from_source import _read, options_of
from hgld.errors import ConfigurationError
from hgld.evaluation.settings import RerankMethod, RerankSettings
from tests.child_processes import run_child, run_script
from tests.commands import run_hgld
from tests.compute.test_processes import TASK

COMMANDS = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def hgld(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, "-c", "from hgld.cli import app; app()", *arguments]
    return subprocess.run(run, capture_output=True, text=True, env=environment or None, check=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_has_an_example(command: str) -> None:
    assert f"Example: hgld {command}" in run_hgld(command, "--help", env={"COLUMNS": "200", "TERM": "dumb"}).output


@pytest.mark.parametrize(
    ("commands", "heavy"),
    [
        ([""], {"pyarrow", "requests", "pydantic"}),
        (COMMANDS, {"torch", "pandas", "sklearn", "matplotlib", "openpyxl"}),
    ],
    ids=["list of commands", "every command"],
)
def test_help_imports_no_heavy_module(commands: list[str], heavy: set[str]) -> None:
    run_script(
        f"import sys\nfrom hgld.cli import app\nfor command in {commands}:\n"
        "    try: app([*command.split(), '--help'])\n    except SystemExit: pass\n"
        f"sys.exit(', '.join({heavy} & set(sys.modules)) or 0)\n"
    )


@dataclass(frozen=True)
class Settings:
    """Settings of a test.

    Args:
        n_clusters: Number of ``clusters``; see :func:`len`.
        tags: Tags; repeatable.
        share: A share. Default: that of the data.
        factors: Factors.
        verbose: Say more.
        hidden: Without option.
    """

    n_clusters: int
    tags: tuple[str, ...] = ()
    share: float | None = None
    factors: tuple[int, ...] = (1,)
    verbose: bool = False
    hidden: int = 7

    def __post_init__(self) -> None:
        if self.n_clusters < 1:
            raise ConfigurationError(f"`n_clusters` is {self.n_clusters}")


def sources(group: typer.Typer) -> Iterator[str]:
    """What the commands of an application take their options from."""
    for command in group.registered_commands:
        yield from (each.source for each in getattr(command.callback, "settings", ()))
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        yield from sources(inner.typer_instance)


@pytest.mark.parametrize("source", sorted({*sources(app)}))
def test_options_are_described_as_if_their_source_were_imported(source: str) -> None:
    module, _, name = source.partition(":")
    described, imported = _read(source), getattr(import_module(module), name)
    assert inspect.getdoc(described) == inspect.getdoc(imported)
    assert inspect.isclass(described) == inspect.isclass(imported)
    fields = [signature(each).parameters.values() for each in (described, imported)]
    for ours, theirs in zip(*fields, strict=True):
        assert (ours.name, ours.annotation) == (theirs.name, theirs.annotation)
        values = [getattr(each.default, "__name__", each.default) for each in (ours, theirs)]
        assert values[0] == values[1] or isinstance(ours.default, Field)


def test_names_that_a_source_imports_under_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    imports = "from hgld.evaluation.settings import RerankMethod as Method, RerankSettings"
    (tmp_path / "renamed.py").write_text(f"{imports}\ndef rank(method: Method, settings: RerankSettings): ...\n")
    names = _read("renamed:rank").names
    assert names["Method"] == RerankMethod
    assert list(signature(names["RerankSettings"]).parameters) == list(signature(RerankSettings).parameters)


def run_command(line: str, kind: str = "Settings", **changes: Any) -> str:
    group = App()
    group.callback()(lambda: None)

    def run(*, config: Any, share: float = 0.5) -> None:
        """Print settings.

        Args:
            share: Share of ``tags``. Default: a half.
        """
        typer.echo(f"{config() if callable(config) else config} {share}")

    run.__annotations__["config"] = kind
    group.command()(options_of(f"{__name__}:Settings", **changes)(run))
    return CliRunner().invoke(group, ["run", *line.split()], env={"COLUMNS": "200", "TERM": "dumb"}).output


def test_options_of_settings() -> None:
    factors = {"name": "--factor", "parser": lambda text: tuple(map(int, text.split(",")))}
    changes: dict[str, Any] = {"n_clusters": "-k", "factors": factors, "hidden": None}
    assert run_command("-k 2 --tags a --tags b --factor 2,3 --verbose", **changes) == (
        "Settings(n_clusters=2, tags=('a', 'b'), share=0.5, factors=(2, 3), verbose=True, hidden=7) 0.5\n"
    )
    help_text = " ".join(run_command("--help", **changes).split())
    assert "Number of clusters. " in help_text
    assert "Share of --tags." in help_text
    assert "[default: (a half)]" in help_text
    assert "Args:" not in help_text
    assert "--no-verbose" not in help_text
    assert "--hidden" not in help_text
    assert run_command("-k 0", **changes) == "error: -k is 0\n"
    assert "share=0.5, factors=(1,), verbose=False, hidden=3) 0.5" in run_command(
        "--n-clusters 1 --hidden 3", "partial[Settings]", factors=factors
    )


def test_version() -> None:
    assert hgld("--version").stdout == f"hgld {__version__}\n"


def test_completion_is_installed_and_completes(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("hgld")
    if not program.exists():
        pytest.skip(f"{program} is not installed")
    # The shell is recognised by its process, so bash has to be the parent, and not to be replaced by hgld.
    install = ["bash", "-c", f"{program} --install-completion; exit $?"]
    run_child(install, environment={**os.environ, "HOME": str(tmp_path)})
    script = tmp_path / ".bash_completions" / "hgld.sh"
    complete = (
        f"source {script}; COMP_WORDS=({program} scr); COMP_CWORD=1; _hgld_completion {program}; echo $COMPREPLY"
    )
    assert run_child(["bash", "-c", complete]).stdout == "scrape\n"


def test_scrape_of_wikimedia_needs_a_contact(tmp_path: Path) -> None:
    categories = tmp_path / "in.csv"
    categories.write_text("landmark_id,category\n1,https://commons.wikimedia.org/wiki/Category:X\n")
    result = hgld("scrape", str(categories), "--split", "train", "-o", str(tmp_path / "out.parquet"), PATH="")
    assert result.returncode == 1
    assert result.stdout == ""
    assert "error: commons.wikimedia.org asks every client to name its operator" in result.stderr
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.glob("out*"))


def test_wrong_option_is_a_usage_error(tmp_path: Path) -> None:
    result = hgld("scrape", "in.csv", "--source", "web", "-o", str(tmp_path / "out.parquet"))
    assert result.returncode == 2
    assert "api" in result.stderr


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("evaluate --embeddings a.npy --embeddings b.npy", "--embeddings"),
        ("evaluate --device cpu --embeddings a.npy --device=cuda", "--device"),
        ("manifest folder images -o a.parquet --out b.parquet", "--out"),
    ],
)
def test_repeated_option_of_a_single_value_is_refused(line: str, option: str) -> None:
    result = run_hgld(*line.split(), code=1)
    assert result.output == f"error: {option} is given 2 times, but takes one value; give it once\n"


def test_options_of_several_values_and_flags_may_be_repeated() -> None:
    line = "evaluate --embeddings absent.npy --metric AP --metric R@1 --json --json"
    assert CliRunner().invoke(app, line.split()).output.startswith("error: absent.npy: no such file")


@pytest.mark.parametrize(
    ("line", "suffixes"),
    [
        ("evaluate --per-query {}.csv", ".parquet"),
        ("evaluate --per-label {}.txt", ".csv or .parquet"),
        ("evaluate --write-predictions {}.parquet", ".csv"),
        ("evaluate --page {}.pdf", ".html"),
        ("manifest folder images -o {}.json", ".parquet"),
        ("scrape list.csv -o {}", ".parquet"),
        ("clean -o {}.csv", ".parquet"),
        ("clean --removed {}.csv", ".parquet"),
        ("embed -o {}.csv", ".parquet"),
        ("cluster -o {}.png", ".parquet"),
        ("suggest -o {}.csv", ".parquet"),
        ("taxonomy import -o {}.txt", ".csv"),
        ("taxonomy export -o {}.tsv", ".csv"),
        ("build -o {}.csv", ".parquet"),
        ("complete -o {}.csv", ".parquet"),
        ("index-images -o {}.csv", ".parquet"),
        ("compare --changes {}.parquet", ".csv"),
        ("decisions -o {}.parquet", ".csv"),
        ("import-sheet -o {}.xlsx", ".csv"),
        ("adjudicate -o {}.parquet", ".csv"),
        ("agreement -o {}.csv", ".json"),
        ("search -o {}.txt", ".csv or .parquet or .json"),
    ],
)
def test_file_of_another_format_than_its_suffix_says_is_not_written(line: str, suffixes: str, tmp_path: Path) -> None:
    name = line.split()[-1].format("x")
    result = CliRunner().invoke(app, [word.format(tmp_path / "x") for word in line.split()])
    assert result.exit_code == 1
    assert result.output.startswith(
        f'error: {tmp_path / name}: the suffix is "{Path(name).suffix}"; choose {suffixes}\n'
    )
    assert not list(tmp_path.iterdir())


def test_commands_that_do_not_share_work_refuse_several_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in TASK.items():
        monkeypatch.setenv(name, value)
    result = run_hgld("clean", tmp_path / "scraped.parquet", "-o", tmp_path / "out.parquet", code=1)
    assert "srun has started 2 tasks of hgld clean, which does not divide its work among them" in result.stderr
    assert "use srun --ntasks=1" in result.stderr
    assert not list(tmp_path.iterdir())


def test_commands_that_share_work() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    shared = {name for name, command in commands.items() if isinstance(command, SharedCommand)}
    assert shared == {"benchmark", "evaluate", "train"}
