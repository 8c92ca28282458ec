"""The commands that ``hgld manifest`` makes from the registry of readers."""

from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path

import pytest

from hgld.datasets.readers.registry import READERS
from hgld.io.settings import settings_help
from tests.child_processes import run_script
from tests.commands import run_hgld


@pytest.mark.parametrize("name", READERS)
def test_every_setting_of_a_reader_is_a_documented_option(name: str) -> None:
    module, _, class_name = READERS[name].target.partition(":")
    reader = getattr(import_module(f"hgld.datasets.readers.{module}"), class_name)
    assert is_dataclass(reader)
    names = [field.name for field in fields(reader)]
    assert sorted(settings_help(reader)) == sorted(names)
    result = run_hgld("manifest", name, "--help", env={"COLUMNS": "200", "TERM": "dumb"})
    argument = READERS[name].argument
    assert f"Example: hgld manifest {name} {f'{argument.upper()} --images ' * bool(argument)}DIR" in result.output
    for setting in names:
        assert (setting.upper() if setting == argument else f"--{setting.replace('_', '-')} ") in result.output


def test_listing_the_readers_imports_none_of_them() -> None:
    script = (
        "import sys\nfrom hgld.cli import app\n"
        "try: app(['manifest', '--help'])\nexcept SystemExit: pass\n"
        "sys.exit(', '.join({'torch', 'pyarrow', 'numpy'} & set(sys.modules)) or 0)\n"
    )
    output = run_script(script)
    assert all(name in output for name in READERS)


def test_settings_reach_the_reader_and_errors_name_options(tmp_path: Path) -> None:
    (tmp_path / "train_test_split").mkdir()
    for name in ("train_list", "test_list_1600"):
        (tmp_path / "train_test_split" / f"{name}.txt").write_text(f"{name} 1\n")
    command = ["manifest", "vehicle-id", str(tmp_path), "-o", str(tmp_path / "m.parquet")]
    result = run_hgld(*command, "--test-list", "1600")
    assert result.output.startswith("2 images (1 test, 1 train) with labels at 1 levels (1 vehicle)\n")
    wrong = run_hgld("manifest", "dyml", tmp_path, "--part", "fine", "-o", tmp_path / "d.parquet", code=1)
    assert 'for the test set of DyML-Product, set --part to "test"' in wrong.stderr
    run_hgld("manifest", "unknown", code=2)
