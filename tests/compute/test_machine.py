"""Threads, and the memory allocator."""

import platform
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

import numpy as np
import pandas as pd
import pytest
import torch
from threadpoolctl import threadpool_info

from hgld.compute import machine
from hgld.compute.machine import one_thread, parallel_map, thread_count
from hgld.evaluation import evaluate_retrieval
from tests.child_processes import run_script

CPU = torch.device("cpu")


@pytest.fixture(params=[1, 3])
def n_threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_results_keep_the_order_of_the_items(n_threads: int) -> None:
    assert parallel_map(lambda item: item * item, range(20), CPU) == [item * item for item in range(20)]


def test_torch_uses_one_core_per_thread(n_threads: int) -> None:
    assert thread_count(CPU) == n_threads
    assert set(parallel_map(lambda _: torch.get_num_threads(), range(9), CPU)) == {1}
    assert torch.get_num_threads() == n_threads


def test_other_threads_keep_their_number_meanwhile(n_threads: int) -> None:
    """Torch's number is that of the process, which a thread takes over at its first operation."""

    def work(_: int) -> tuple[int, int]:
        # The lock: while another thread of the pool begins, the number of the process is 1 for a moment.
        with machine._TORCH_LOCK, ThreadPoolExecutor(1) as other:
            return torch.get_num_threads(), other.submit(torch.get_num_threads).result()

    assert set(parallel_map(work, range(9), CPU)) == {(1, n_threads)}


def test_one_thread_is_left_by_all_before_the_limit_ends() -> None:
    """The limit is that of the process; parallel work within it is done by other threads."""

    def limits(_: object = None) -> list[int]:
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    def limited(_: int) -> list[int]:
        with one_thread():
            parallel_map(str, range(3), CPU)
            return limits()

    with one_thread():  # which loads the libraries
        pass
    before = limits()
    with ThreadPoolExecutor(2) as pool:
        assert {number for numbers in pool.map(limited, range(20)) for number in numbers} == {1}
    assert limits() == before


def test_number_of_threads_is_restored_after_an_error(n_threads: int) -> None:
    with pytest.raises(ZeroDivisionError):
        parallel_map(lambda item: 1 // item, [1, 0], CPU)
    assert torch.get_num_threads() == n_threads


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_evaluation_in_any_gradient_mode(mode: Callable[[], AbstractContextManager[None]], n_threads: int) -> None:
    """Embeddings computed in the same block can be evaluated, as at the end of an epoch."""
    labels = np.arange(40) % 5
    with mode():
        network = torch.nn.Linear(8, 4)
        embeddings = network(torch.from_numpy(np.random.default_rng(3).standard_normal((40, 8), np.float32)))
        inside = evaluate_retrieval(embeddings, labels)
    outside = evaluate_retrieval(embeddings.detach().clone(), labels)
    assert inside.means == outside.means


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    rng = np.random.default_rng(0)
    queries, gallery = (rng.standard_normal((n, 48), np.float32) for n in (7, 6_000))
    labels = np.stack([np.arange(6_000) % 300, np.arange(6_000) % 3], axis=1)
    results = []
    before = torch.get_num_threads()
    try:
        for n_threads in (1, 2, 3):
            torch.set_num_threads(n_threads)
            results.append(evaluate_retrieval(queries, labels[:7], gallery, labels).per_query)
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        pd.testing.assert_frame_equal(results[0], other, check_exact=True)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_freed_memory_is_reused() -> None:
    """Count page faults, in a separate process because the setting applies to a whole process."""
    script = """
import resource
import numpy as np
from hgld.compute.machine import disable_trimming

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        np.ones(5_000_000)  # 40 MB, more than glibc ever keeps by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

default = faults()
disable_trimming()
faults()
print(default, faults())
"""
    default, without_trimming = map(int, run_script(script).split())
    assert without_trimming < default / 10
