"""The command line as users see it: help, completion, exit codes, messages."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hgld import __version__
from hgld.cli import app
from hgld.cli.application import App, SharedCommand
from hgld.cli.options import field_options, help_panels, with_field_options
from hgld.cli.shared_options import writable_file
from hgld.datasets.readers.registry import READERS
from hgld.errors import ConfigurationError
from hgld.figures.treemap import write_tree_page
from hgld.io.files import write_page
from tests.child_processes import run_child, run_script
from tests.commands import run_hgld
from tests.compute.test_processes import TASK

COMMANDS = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
SUBCOMMANDS = [
    "audit duplicates",
    "audit labels",
    "manifest leave-out",
    "taxonomy check",
    "taxonomy export",
    "taxonomy import",
    *(f"manifest {name}" for name in READERS),
]


def hgld(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, "-c", "from hgld.cli import app; app()", *arguments]
    return subprocess.run(run, capture_output=True, text=True, env=environment or None, check=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_has_an_example(command: str) -> None:
    assert f"Example: hgld {command}" in run_hgld(command, "--help", env={"COLUMNS": "200", "TERM": "dumb"}).output


def test_help_begins_with_the_commands_of_a_first_day() -> None:
    shown = run_hgld("--help", env={"COLUMNS": "200", "TERM": "dumb"}).output
    first, _, others = shown.partition("First steps")[2].partition(" Labels ")
    commands = [line.split()[1] for line in first.splitlines() if line.startswith("│")]
    assert commands == [
        *("demo", "scrape", "labels", "review", "build"),
        *("train", "embed-images", "evaluate", "search", "manifest"),
    ]
    assert all(heading in others for heading in (" Review ", " Hierarchy ", " Photographs ", " Retrieval "))


@pytest.mark.parametrize(
    ("commands", "heavy"),
    [
        ([""], {"pyarrow", "requests", "pydantic"}),
        ([*COMMANDS, *SUBCOMMANDS], {"torch", "pandas", "numpy", "pyarrow", "requests", "matplotlib", "openpyxl"}),
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
        share: Share of ``tags``. Default: that of the data.
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


def parse_factors(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def run_command(line: str) -> str:
    """Return what a command prints whose options are a field of its own and those of settings."""
    group = App()
    group.callback()(lambda: None)

    @group.command()
    @field_options(Settings, n_clusters="-k", factors=typer.Option("--factor", parser=parse_factors), hidden=None)
    def run(
        *,
        config: Settings,
        level: int = 3,
    ) -> None:
        """Print settings.

        Args:
            level: Level of ``factors``. Default: the coarsest.
        """
        typer.echo(f"{config} {level}")

    return CliRunner().invoke(group, ["run", *line.split()], env={"COLUMNS": "200", "TERM": "dumb"}).output


def test_help_keeps_backslashes() -> None:
    help_text = run_hgld("taxonomy", "import", "--help", env={"COLUMNS": "400", "TERM": "dumb"}).output
    assert r"a > that is a word of a name is written \>." in help_text


def test_pages_that_hgld_did_not_write_are_not_replaced(tmp_path: Path) -> None:
    page = tmp_path / "notes.html"
    page.write_text("<!doctype html><title>Mine</title>")
    check = writable_file(".html")
    for write in (check, lambda path: write_page(path, "<p>new")):
        with pytest.raises(
            ConfigurationError, match=r"notes\.html: exists, and hgld did not write it; remove it, or"
        ):
            write(page)
    assert "Mine" in page.read_text()
    write_tree_page(tmp_path / "tree.html", [], ("landmark", "landmarks"))
    assert check(tmp_path / "tree.html") == tmp_path / "tree.html"
    write_page(tmp_path / "tree.html", "<p>new")
    (tmp_path / "empty.html").touch()
    assert check(tmp_path / "empty.html") is not None


def test_options_of_settings() -> None:
    assert run_command("-k 2 --tags a --tags b --factor 2,3 --verbose") == (
        "Settings(n_clusters=2, tags=('a', 'b'), share=None, factors=(2, 3), verbose=True, hidden=7) 3\n"
    )
    assert run_command("-k 1 --share 0.5 --level 2") == (
        "Settings(n_clusters=1, tags=(), share=0.5, factors=(1,), verbose=False, hidden=7) 2\n"
    )
    assert run_command("-k 0") == "error: -k is 0\n"
    assert "Missing option '-k'" in run_command("")


def test_help_of_options_of_settings() -> None:
    help_text = " ".join(run_command("--help").split())
    assert "Number of clusters. " in help_text
    assert "Share of --tags." in help_text
    assert "[default: (that of the data)]" in help_text
    assert "Level of --factor." in help_text
    assert "[default: (the coarsest)]" in help_text
    assert "Args:" not in help_text
    assert "--no-verbose" not in help_text
    assert "--hidden" not in help_text


def test_options_of_fields_that_settings_lack() -> None:
    with pytest.raises(TypeError, match="Settings has no field n_cluster$"):
        field_options(Settings, n_cluster="-k", tags=None)


def test_options_of_settings_that_a_command_does_not_take() -> None:
    @field_options(Settings, n_clusters="-k")
    def without(*, share: float) -> None: ...

    with pytest.raises(TypeError, match="without has no parameter of the type Settings"):
        with_field_options(without)


def test_two_options_of_the_same_name() -> None:
    def doubled(*, share: float, config: Settings) -> None: ...

    with pytest.raises(TypeError, match="doubled: there are two options `share`"):
        with_field_options(doubled)


def test_options_are_grouped_below_headings_in_their_order() -> None:
    group = App()
    group.callback()(lambda: None)

    @group.command()
    @help_panels({"Details": ["verbose", "level"], "Clusters": ["n_clusters"]})
    def run(*, config: Settings, level: int = 3, share_of_all: float = 0.5) -> None:
        """Print a setting.

        Args:
            level: Level.
            share_of_all: Share.
        """
        typer.echo(f"{config.n_clusters} {config.verbose} {level}")

    runner = CliRunner()
    help_text = runner.invoke(group, ["run", "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
    places = ["─ Options", "--share-of-all", "─ Details", "--verbose", "--level", "─ Clusters", "--n-clusters"]
    assert sorted(places, key=help_text.index) == places
    assert runner.invoke(group, ["run", "--n-clusters", "2", "--verbose"]).output == "2 True 3\n"


def test_heading_of_an_option_that_the_command_lacks() -> None:
    @help_panels({"Details": ["levels"]})
    def run(*, level: int = 3) -> None: ...

    with pytest.raises(TypeError, match='run has no option levels for "Details"'):
        with_field_options(run)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_described(command: str) -> None:
    group = typer.main.get_command(app).commands[command]  # type: ignore[attr-defined]
    for each in getattr(group, "commands", {command: group}).values():
        context = each.make_context(command, [], resilient_parsing=True)
        undescribed = [option.name for option in context.command.params if not getattr(option, "help", None)]
        assert not undescribed


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


def test_an_option_that_another_command_of_this_name_had_is_unknown() -> None:
    assert (
        "--root of hgld audit labels is called --images now"
        in run_hgld("audit", "labels", "--root", "x", code=1).stderr
    )
    assert "No such option: --root" in run_hgld("labels", "list.csv", "--root", "x", code=2).stderr


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
