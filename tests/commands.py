"""Commands of hgld, run in the process of the tests."""

from typing import Any

from typer.testing import CliRunner, Result

from hgld.cli import app


def run_hgld(*words: object, code: int = 0, **options: Any) -> Result:
    """Run a command that ends with an exit code; return what it prints."""
    result = CliRunner().invoke(app, list(map(str, words)), **options)
    assert result.exit_code == code, result.output
    return result
