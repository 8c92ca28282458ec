"""The option with which pages get the outputs of a run."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-outputs",
        action="store_true",
        help="write the outputs of examples, and the pictures that they make, to the pages instead of comparing them",
    )
