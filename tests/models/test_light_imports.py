"""Imports of timm without ``torch._dynamo``, which takes seconds."""

import subprocess
import sys

START = """
import sys
import torch
import hgld.models.backbones
heavy = {"torch._dynamo", "torch._dynamo.utils", "sympy", "wandb"} & set(sys.modules)
assert not heavy, heavy
"""

USE = """
from torchvision.ops import roi_align
images, boxes = torch.rand(1, 1, 8, 8), [torch.tensor([[0.0, 0.0, 4.0, 4.0]])]
assert roi_align(images, boxes, 2).shape == (1, 1, 2, 2)
layer = torch.compile(torch.nn.Linear(2, 2), backend="eager")
assert layer(torch.ones(1, 2)).shape == (1, 2)
import torch._dynamo.utils
assert torch._dynamo.utils.__file__
"""

OTHER_VERSION = """
import sys
import torch
from hgld.models.light_imports import light_imports
with light_imports():
    from torch._dynamo.eval_frame import innermost_fn
    import torch._dynamo
    assert callable(torch._dynamo.reset)
assert "sympy" in sys.modules
"""


def test_backbones_are_imported_without_compilers_which_work_later() -> None:
    subprocess.run([sys.executable, "-c", START + USE], check=True)


def test_what_a_stand_in_lacks_is_imported() -> None:
    subprocess.run([sys.executable, "-c", OTHER_VERSION], check=True)
