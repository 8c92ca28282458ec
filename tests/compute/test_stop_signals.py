"""Graceful stops on Ctrl-C, SIGTERM and the end of the parent process."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from hgld.compute.machine import StopRequest, catch_stop_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_requests_a_stop(number: signal.Signals) -> None:
    handler = signal.getsignal(number)
    with catch_stop_signals() as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        assert stop.requested
    assert signal.getsignal(number) is handler


@pytest.fixture
def ctrl_c_interrupts() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt; a shell's background processes ignore it."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.mark.usefixtures("ctrl_c_interrupts")
def test_second_ctrl_c_interrupts() -> None:
    with catch_stop_signals():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.usefixtures("ctrl_c_interrupts")
def test_second_sigterm_is_ignored_and_ctrl_c_after_it_interrupts() -> None:
    with catch_stop_signals() as stop:
        for _ in range(3):  # would end the process, were it not caught
            os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_blocks_with_nothing_to_save_are_interrupted_at_once(number: signal.Signals) -> None:
    with catch_stop_signals() as stop:
        with stop.interrupting():
            pass
        with pytest.raises(KeyboardInterrupt), stop.interrupting():
            os.kill(os.getpid(), number)
        with pytest.raises(KeyboardInterrupt), stop.interrupting():
            pytest.fail("began although a stop was requested before")


def test_other_threads_leave_signals_alone() -> None:
    handler = signal.getsignal(signal.SIGINT)
    handlers: list[object] = []
    requests: list[StopRequest] = []

    def work() -> None:
        with catch_stop_signals() as stop:
            handlers.append(signal.getsignal(signal.SIGINT))
            requests.append(stop)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [handler]
    assert not requests[0].requested
