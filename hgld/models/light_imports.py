"""Import timm without packages that it imports in turn and hgld does not use.

timm imports torchvision. Both import ``torch._dynamo``, and with it sympy and triton, which takes two seconds of
processor time: torchvision to ask whether one of its operations can be compiled, timm to mark functions that
``torch.compile`` shall not trace. wandb is for timm's own training script.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from hgld.compute.compiled import not_traced


@contextmanager
def light_imports() -> Iterator[None]:
    """Stand in for ``torch._dynamo`` and wandb while timm is imported, unless either is imported already.

    Afterwards the names refer to the packages again. Functions that timm and torchvision took from the stand-ins work
    like the original functions.
    """
    stand_ins: dict[str, ModuleType | None] = {}
    if "torch._dynamo" not in sys.modules:
        stand_ins["torch._dynamo"] = _Dynamo("torch._dynamo")
        stand_ins["torch._dynamo.utils"] = _DynamoUtils("torch._dynamo.utils")
    if "wandb" not in sys.modules:
        stand_ins["wandb"] = None  # importing it raises ImportError, as if it were not installed
    modules: dict[str, Any] = sys.modules
    modules.update(stand_ins)
    try:
        yield
    finally:
        for name, stand_in in stand_ins.items():
            if modules.get(name) is stand_in:
                modules.pop(name, None)


def is_timm_model(name: str) -> bool:
    """Return whether timm has a model of this name."""
    with light_imports():
        import timm
    return bool(timm.is_model(name))


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        """Return what a stand-in lacks from the module itself, which this imports."""
        is_path_of_package = name == "__path__" and isinstance(self, _Dynamo)
        if name.startswith("__") and not is_path_of_package:  # inspect asks modules for their files
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


class _Dynamo(_StandIn):
    @staticmethod
    def disable(
        function: Callable[..., Any] | None = None, *_: object, **__: object
    ) -> Callable[..., Any]:
        return not_traced if function is None else not_traced(function)


class _DynamoUtils(_StandIn):
    @staticmethod
    def is_compile_supported(device_type: Any) -> Any:
        return import_module("torch._dynamo.utils").is_compile_supported(device_type)
