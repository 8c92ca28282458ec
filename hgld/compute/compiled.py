"""Loops compiled by numba, for what array operations cannot do in one pass; optional, with a switch.

A function that is decorated with :func:`compiled` is compiled to machine code when it is first called, once for each
combination of argument types. Callers ask :func:`is_compiled` first, and otherwise compute the same with operations
of torch, which takes several times as long. So hgld works where numba cannot be installed, and on a GPU. To measure
or to test the slower way, set the environment variable ``HGLD_COMPILE`` to 0, false, off or no.

numba needs no compiler on the machine. Machine code is cached beside the source file, or where that folder is
read-only, in the user's cache; without either, every process compiles again, which takes about a second a loop.

Rules for compiled functions:

- they take NumPy arrays and numbers, check nothing, and are called by a function that does check;
- they call compiled functions of the same file only: numba compiles a function again when its file changes, but not
  when the file of a function that it calls changes;
- they release the interpreter lock, so several threads may run them at once (:mod:`hgld.compute.machine`).
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    import torch

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger(__name__)

#: Environment variable that switches compiled loops off, and its values that do.
SWITCH = "HGLD_COMPILE"
_OFF = frozenset({"0", "false", "off", "no"})

#: Relaxed rules of arithmetic that allow loops with sums to be vectorised; NaN and infinity keep their meaning.
REORDER_SUMS = frozenset({"reassoc", "contract", "nsz"})


def is_compiled(device: torch.device | None = None) -> bool:
    """Return whether compiled loops work for data of a device: on a CPU (the default), unless switched off."""
    on_cpu = device is None or device.type == "cpu"
    return on_cpu and os.environ.get(SWITCH, "").lower() not in _OFF and _numba_works()


@functools.cache
def _numba_works() -> bool:
    """Return whether numba compiles; warn once if it cannot, but not if ``NUMBA_DISABLE_JIT`` says so."""
    try:
        import numba

        numba.njit(lambda: None)
    except Exception as error:  # various errors, if NumPy or Python have other versions
        log.warning(
            "numba does not work (%s): rankings and losses take several times as long", error
        )
        return False
    return not numba.config.DISABLE_JIT


def compiled(*, fastmath: frozenset[str] = frozenset()) -> Callable[[F], F]:
    """Return a decorator that compiles a function when it is first called.

    Args:
        fastmath: Relaxed rules of LLVM's arithmetic, such as :data:`REORDER_SUMS`. By default, sums are added up in
            the order in which the function does.

    >>> @compiled()
    ... def total(values):
    ...     result = 0.0
    ...     for value in values:
    ...         result += value
    ...     return result
    >>> import numpy as np
    >>> float(total(np.array([1.0, 2.0])))
    3.0
    """

    def decorate(function: F) -> F:
        return cast(F, _CompiledFunction(function, fastmath))

    return decorate


def not_traced(function: F) -> F:
    """Return a function that ``torch.compile`` calls as it is: dynamo cannot trace numba.

    ``torch.compiler.disable`` alone would import dynamo with this package, which takes seconds.
    """

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        dynamo = sys.modules.get("torch._dynamo")  # whoever compiles has imported it
        if dynamo is None:
            return function(*args, **options)
        return dynamo.disable(function)(*args, **options)

    return cast(F, call)


class _CompiledFunction:
    """A function that numba compiles at its first call, so that importing hgld does not import numba.

    Where loops are not compiled, it runs as it is written, in Python.
    """

    def __init__(self, function: Callable[..., Any], fastmath: frozenset[str]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._fastmath = function, fastmath

    def __call__(self, *args: Any) -> Any:
        if is_compiled():
            return self._dispatcher(*args)
        return self._function(*args)

    @functools.cached_property
    def _dispatcher(self) -> Any:
        import numba

        options = {"fastmath": set(self._fastmath), "error_model": "numpy", "nogil": True}
        try:
            dispatcher = numba.njit(self._function, cache=True, **options)
        except RuntimeError:  # there is no folder for a cache
            return numba.njit(self._function, **options)
        cache = dispatcher._cache
        cache.load_overload = self._or_miss(cache.load_overload, cache)
        cache.save_overload = self._or_miss(cache.save_overload, cache)
        return dispatcher

    def _or_miss(self, method: Callable[..., Any], cache: Any) -> Callable[..., Any]:
        """Return a method of numba's cache that returns None, as for a miss, where it fails, and empties the cache.

        Files of the cache may be truncated, and a disk full.
        """

        def attempt(*args: Any) -> Any:
            try:
                return method(*args)
            except Exception as error:  # unpickling damaged files raises various errors
                log.debug(
                    "the cached machine code of %s is not used: %s", self._function.__name__, error
                )
                with contextlib.suppress(OSError):
                    cache.flush()
                return None

        return attempt

    @property
    def _numba_type_(self) -> Any:
        """The type by which other compiled functions call this one."""
        return self._dispatcher._numba_type_
