"""Loops compiled by numba, for what array operations cannot do in one pass; optional, with a switch.

A function that is decorated with :func:`compiled` is compiled to machine code when it is first called, once for each
combination of argument types. Callers ask :func:`is_compiled` first, and otherwise compute the same with operations
of torch, which takes several times as long. So hgld works where numba cannot be installed, and on a GPU. To measure
or to test the slower way, set the environment variable ``HGLD_COMPILE`` to 0.

numba needs no compiler on the machine. Machine code is cached beside the source file, or where that folder is
read-only, in the user's cache; without either, every process compiles again, which takes about a second a loop.

Rules for compiled functions:

- they take NumPy arrays and numbers, check nothing, and are called by a function that does check;
- they call compiled functions of the same file only: numba compiles again when the file of a function changes, but
  not when that of a function it calls does;
- they release the interpreter lock, so several threads may run them at once (:mod:`hgld.compute.threads`).
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    import torch

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger(__name__)

#: Environment variable that switches compiled loops off when it is 0.
SWITCH = "HGLD_COMPILE"

#: Relaxed rules of arithmetic that allow loops with sums to be vectorised; NaN and infinity keep their meaning.
REORDER_SUMS = frozenset({"reassoc", "contract", "nsz"})


def is_compiled(device: torch.device | None = None) -> bool:
    """Return whether compiled loops work for data of a device: on a CPU (the default), unless switched off."""
    return (device is None or device.type == "cpu") and os.environ.get(SWITCH) != "0" and _numba_works()


@functools.cache
def _numba_works() -> bool:
    """Return whether numba can be imported; warn once if it cannot."""
    try:
        import numba  # noqa: F401
    except Exception as error:  # a numba for another version of NumPy or Python raises various errors
        log.warning("numba cannot be imported (%s): rankings and losses take several times as long", error)
        return False
    return True


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


class _CompiledFunction:
    """A function that numba compiles at its first call, so that importing hgld does not import numba.

    Where loops are not compiled, it runs as it is written, in Python.
    """

    def __init__(self, function: Callable[..., Any], fastmath: frozenset[str]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._fastmath = function, fastmath
        self._cached = True

    def __call__(self, *args: Any) -> Any:
        if not is_compiled():
            return self._function(*args)
        try:
            return self._dispatcher(*args)
        except OSError as error:  # loops read and write no files, so it is the cache: a full disk
            log.debug("the machine code of %s is not cached: %s", self._function.__name__, error)
            self._cached = False
            del self._dispatcher
            return self._dispatcher(*args)

    @functools.cached_property
    def _dispatcher(self) -> Any:
        import numba

        options = {"fastmath": set(self._fastmath), "error_model": "numpy", "nogil": True}
        try:
            return numba.njit(self._function, cache=self._cached, **options)
        except RuntimeError:  # there is no folder for a cache
            return numba.njit(self._function, cache=False, **options)

    @property
    def _numba_type_(self) -> Any:
        """The type by which other compiled functions call this one."""
        return self._dispatcher._numba_type_
