"""The reference documents every command, option, setting, table, value, file and public name."""

import ast
import csv
import doctest
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from hgld import errors
from hgld.benchmark.presets import list_presets
from hgld.losses import LOSSES
from hgld.models.model_settings import PRESETS
from hgld.rejection.registry import DETECTORS
from hgld.tables import TABLES
from hgld.tables.schemas import meaning_of, values_of
from tests.test_public_names import PUBLIC_ROOMS

CHECKOUT = Path(__file__).parent.parent
EXTENSIONS = CHECKOUT / "docs" / "_extensions"


@pytest.fixture(scope="module")
def pages_of() -> Iterator[Callable[[str], dict[str, str]]]:
    """The pages that a module of the site's extension writes, by their names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXTENSIONS))

        def write(kind: str) -> dict[str, str]:
            pages: dict[str, str] = getattr(import_module(f"{kind}_reference"), f"{kind}_pages")()
            return pages

        yield write
        for name in [name for name in sys.modules if (EXTENSIONS / f"{name}.py").exists()]:
            del sys.modules[name]


def rows(page: str) -> list[list[str]]:
    """The cells of all rows of the tables in a page, without headers."""
    lines = re.findall(r"^\| (.*) \|$", page.replace("\\|", "¦"), re.MULTILINE)
    return [line.split(" | ") for line in lines if line.startswith("`")]


def test_examples_in_the_extension(pages_of: Callable[[str], dict[str, str]]) -> None:
    pages_of("command")
    pages_of("settings")
    pages_of("python")
    for name in ("command_reference", "markdown_text", "option_tables", "python_reference"):
        result = doctest.testmod(sys.modules[name])
        assert result.attempted > result.failed == 0


def test_every_command_and_option_is_explained(pages_of: Callable[[str], dict[str, str]]) -> None:
    (page,) = pages_of("command").values()
    sections = re.split(r"^### ", page, flags=re.MULTILINE)[1:]
    names = {section.partition("\n")[0] for section in sections}
    assert {"hgld scrape", "hgld manifest table", "hgld compare-rejection"} <= names
    assert [row for row in rows(page) if not row[1].strip()] == []
    assert "## Other" not in page, "commands without a panel"


@pytest.mark.parametrize(
    "page", ["training_settings.md", "benchmark_settings.md", "rejection_settings.md", "release_settings.md"]
)
def test_every_setting_is_explained(pages_of: Callable[[str], dict[str, str]], page: str) -> None:
    settings = rows(pages_of("settings")[page])
    assert len(settings) > 18
    assert [row[0] for row in settings if not row[-1].strip()] == []


def options_by_section(page: str) -> dict[str, dict[str, str]]:
    """The meanings of options by option and by section."""
    sections = re.findall(r"^## `(\w+)`\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return {name: {row[0].strip("`"): row[3] for row in rows(section)} for name, section in sections}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("loss", {name: [option.rstrip("_") for option in loss.options] for name, loss in LOSSES.items()}),
        ("rejection", {name: [*inspect.signature(score).parameters] for name, score in DETECTORS.items()}),
    ],
)
def test_every_loss_and_rejection_score_is_explained(
    pages_of: Callable[[str], dict[str, str]], kind: str, options: dict[str, list[str]]
) -> None:
    (page,) = pages_of(kind).values()
    explained = options_by_section(page)
    assert {name: [*meanings] for name, meanings in explained.items()} == options
    assert [name for name, meanings in explained.items() if not all(meanings.values())] == []


def test_every_preset_is_listed(pages_of: Callable[[str], dict[str, str]]) -> None:
    (page,) = pages_of("preset").values()
    names = [preset.name for kind in list_presets() for preset in kind]
    assert sorted(row[0].strip("`") for row in rows(page)) == sorted([*names, *PRESETS])
    assert [row for row in rows(page) if not row[1].strip()] == []


def test_every_published_table_is_shown(pages_of: Callable[[str], dict[str, str]]) -> None:
    (page,) = pages_of("published").values()
    files = {path.name: path for path in (CHECKOUT / "docs/reference/published").glob("*.csv")}
    with files.pop("tables.csv").open(encoding="utf-8", newline="") as lines:
        listed = [row["file"] for row in csv.DictReader(lines)]
    assert sorted(listed) == sorted(files)
    for path in files.values():
        with path.open(encoding="utf-8", newline="") as lines:
            for row in csv.reader(lines):
                assert f"| {' | '.join(row)} |" in page


def test_settings_are_described_as_in_yaml(pages_of: Callable[[str], dict[str, str]]) -> None:
    for name, page in pages_of("settings").items():
        headings = re.findall("^## .*", page, re.MULTILINE)
        assert len({*headings}) == len(headings), name
        assert re.findall(r"\b(?:None|True|False)\b|>>>", page) == [], name
        sections = [row[0].rstrip("`") for row in rows(page) if "section" in row[1]]
        assert [section for section in sections if section not in " ".join(headings)] == []


def test_every_column_and_value_is_explained(pages_of: Callable[[str], dict[str, str]]) -> None:
    (page,) = pages_of("table").values()
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert sections.keys() == TABLES.keys()
    for name, spec in TABLES.items():
        fields = [*spec.schema, *spec.optional]
        listed = {row[0].strip("`"): row[-2 if len(row) == 4 else -1] for row in rows(sections[name])}
        assert listed.keys() == {value for field in fields for value in (field.name, *values_of(field))}
        assert all(map(meaning_of, fields))
        assert all(meaning for field in fields for meaning in values_of(field).values())


def test_every_file_name_of_the_code_is_explained() -> None:
    """Names of files of other people's data sets, and of hgld's own sample, are left to the code that reads them."""
    suffixes = "csv|html|journal|jsonl?|lock|md|npy|parquet|parts?|png|pt|safetensors|sqlite|tar|tex|txt|xlsx"
    pattern = re.compile(rf"[\w.*-]*\.({suffixes})")
    templates = {path.name for kind in ("html", "json") for path in CHECKOUT.glob(f"hgld/templates/**/*.{kind}")}
    names = set()
    for path in CHECKOUT.glob("hgld/**/*.py"):
        if not {"demo", "readers"} & {*path.parts}:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
            names |= {text for text in texts if isinstance(text, str) and pattern.fullmatch(text)}
    assert {"run.json", ".skipped.csv"} <= names
    page = (CHECKOUT / "docs/reference/files.md").read_text(encoding="utf-8")
    known = templates | {f"{table}.parquet" for table in TABLES} | {"pyarrow.parquet"}
    assert {name for name in names - known if not all(part in page for part in name.split("*"))} == set()


def variables_read_by(tree: ast.Module) -> set[str]:
    """The names of environment variables that a module reads, as options or from a mapping of them."""
    constants = {
        ast.unparse(target): statement.value
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
    }
    names: list[ast.expr] = []
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg="envvar", value=name):
                names.append(name)
            case (
                ast.Subscript(value=mapping, slice=name, ctx=ast.Load())
                | ast.Call(func=ast.Attribute(value=mapping, attr="get" | "pop" | "setdefault"), args=[name, *_])
                | ast.Call(func=ast.Attribute(value=mapping, attr="getenv"), args=[name, *_])
            ) if ast.unparse(mapping) in ("os", "os.environ", "environ", "environment"):
                names.append(constants.get(ast.unparse(name), name))
    return {name.value for name in names if isinstance(name, ast.Constant) and isinstance(name.value, str)}


def test_every_environment_variable_is_explained() -> None:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in CHECKOUT.glob("hgld/**/*.py")]
    read = set().union(*map(variables_read_by, trees))
    assert {"HGLD_CACHE", "HGLD_COMPILE", "HGLD_CONTACT", "WORLD_SIZE"} <= read
    page = (CHECKOUT / "docs/reference/environment.md").read_text(encoding="utf-8")
    own, _, _ = page.partition("## Read by libraries")
    explained = {name for row in rows(own) for name in re.findall(r"`(\w+)`", row[0])}
    assert explained == read
    # Variables of libraries are named in docstrings and messages only.
    nodes = (node for tree in trees for node in ast.walk(tree))
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    named = set(re.findall(r"\b(?:HF|HGLD|WANDB)_[A-Z_0-9]+\b", " ".join(texts)))
    assert {name for name in named if f"`{name}`" not in page} == set()


def test_every_error_is_explained(pages_of: Callable[[str], dict[str, str]]) -> None:
    (page,) = pages_of("error").values()
    listed = {name.strip("`"): meaning for name, _, meaning in rows(page)}
    raised = {name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception)}
    assert listed.keys() == raised
    assert all(listed.values())
    # The tree says what the caller does next.
    assert {name for name in raised if f" {name} " not in page.partition("| error")[0]} == {"HgldError"}


def test_every_public_name_has_an_entry_and_a_summary(pages_of: Callable[[str], dict[str, str]]) -> None:
    pages = pages_of("python")
    rooms = {*PUBLIC_ROOMS} - {"hgld"}
    assert {*re.findall(":doc:`(.+)`", pages["python.rst"])} == rooms
    for room in rooms:
        entries = re.findall(rf"^\.\. [\w:]+:: {room}\.(\w+)$", pages[f"{room}.rst"], re.MULTILINE)
        assert sorted(entries) == sorted(importlib.import_module(room).__all__)
        summaries = dict(re.findall(r"^   \* - :py:obj:`(\w+) .*\n     - (.*)$", pages[f"{room}.rst"], re.MULTILINE))
        assert summaries.keys() == {*entries}
        assert [name for name, summary in summaries.items() if not summary.endswith(".")] == []


def test_every_constant_is_explained(pages_of: Callable[[str], dict[str, str]]) -> None:
    for name, page in pages_of("python").items():
        for constant, text in re.findall(r"^\.\. py:data:: (\S+)\n\n(.*)$", page, re.MULTILINE):
            assert text.strip(), f"{constant} in {name}"
