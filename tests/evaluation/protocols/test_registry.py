"""The registry of protocols, and the public names of the room."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hgld.evaluation.input_files import EvaluationFiles
from hgld.evaluation.protocols import PROTOCOL_NAMES, get_protocol


@pytest.mark.parametrize("name", PROTOCOL_NAMES)
def test_protocols_have_their_name_and_declare_existing_inputs(name: str) -> None:
    protocol = get_protocol(name)
    assert protocol.name == name
    fields = set(EvaluationFiles.__dataclass_fields__)
    for inputs in protocol.inputs:
        assert fields.issuperset({*inputs.required, *inputs.optional})
        assert not set(inputs.required).intersection(inputs.optional)
    assert fields.issuperset(protocol.descriptions)


def test_protocol_names_are_listed_without_torch() -> None:
    script = "import sys, hgld.evaluation.protocols; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
