"""Fixtures of the tests of the hierarchy, whose result a release publishes."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hgld.release.facts import ReleaseSettings
from tests.child_processes import run_child
from tests.hierarchy.conftest import folder, write_completed, write_scraped
from tests.hierarchy.test_any_list import folder as paintings
from tests.hub_server import hub

__all__ = ["CROISSANT_WARNINGS", "FACTS", "folder", "hub", "paintings", "write_completed", "write_scraped"]

#: Warnings of the parser under mlcroissant, and of pandas under its reader.
CROISSANT_WARNINGS = [
    pytest.mark.filterwarnings("ignore:ConjunctiveGraph is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The inplace keyword:DeprecationWarning"),
]

#: Facts of a release that has nothing to do with GLDv2.
FACTS = ReleaseSettings.model_validate(
    {
        "name": "Lakes and more",
        "description": "Kinds of places: a test.",
        "creators": ["Zoë"],
        "licence": "CC0-1.0",
        "url": "https://example.org/lakes",
        "keywords": ["lakes"],
        "source": "A list of our own.",
        "ids": "Our numbers.",
        "images": "There are none: look at the categories.",
        "purpose": "To test releases.",
        "funding": "Nobody paid for it.",
        "annotators": "Two of us, unpaid.",
        "ethics": "None was needed.",
        "uses": "Nothing yet.",
        "maintenance": "Zoë, at the address above.",
    }
)


def load_with_datasets(folder: Path, cache: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each split that the package ``datasets`` of Hugging Face reads from a release."""
    # In a separate process, as the library reads the offline setting when it is imported.
    script = (
        "import json, os, sys\n"
        "os.environ |= {'HF_HUB_OFFLINE': '1', 'HF_HOME': sys.argv[2]}\n"
        "from datasets import load_dataset\n"
        "dataset = load_dataset(sys.argv[1])\n"
        "print(json.dumps({split: dataset[split].to_list() for split in dataset}))"
    )
    result = run_child([sys.executable, "-c", script, str(folder), str(cache)])
    assert "Ignoring" not in result.stderr, "the card's header is valid"
    splits: dict[str, list[dict[str, Any]]] = json.loads(result.stdout)
    return splits
