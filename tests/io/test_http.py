"""The rate limiter on a simulated clock, and the pauses that servers ask for."""

import pytest
import requests

from hgld.io.http import RateLimiter, retry_after_s


class FakeTime:
    def __init__(self) -> None:
        self.now = 100.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds + 1e-9  # a real clock never stops


def test_rate_holds_over_any_minute() -> None:
    fake = FakeTime()
    limiter = RateLimiter(150, clock=fake.clock, sleep=fake.sleep)
    sent = []
    for n in range(600):
        limiter.wait()
        sent.append(fake.now)
        fake.now += 30 if n == 300 else 0  # a long silence must not accumulate tokens
    for start in sent:
        assert sum(start <= moment < start + 60 for moment in sent) <= 155
    assert sent[-1] - sent[0] == pytest.approx(599 / 2.5 + 30 - 2 * 5 / 2.5, abs=2.5)


def test_longest_pause_holds_without_a_rate() -> None:
    fake = FakeTime()
    limiter = RateLimiter(0, clock=fake.clock, sleep=fake.sleep)
    limiter.pause(7)
    limiter.pause(3)
    limiter.wait()
    assert fake.now == pytest.approx(107)


@pytest.mark.parametrize(
    ("retry_after", "date", "seconds"),
    [
        ("90", None, 90),
        ("Fri, 01 Jan 2010 00:01:30 GMT", "Fri, 01 Jan 2010 00:00:00 GMT", 90),
        ("Fri, 01 Jan 2090 00:01:30 GMT", "Fri, 01 Jan 2090 00:00:00 GMT", 90),
        ("Fri, 01 Jan 2010 00:01:30 GMT", "Fri, 01 Jan 2010 01:00:00 GMT", 0),
        ("Fri, 01 Jan 2010 00:01:30 GMT", None, 0),
        ("Fri, 01 Jan 2010 00:01:30 GMT", "no date", 0),
        ("soon", "Fri, 01 Jan 2010 00:00:00 GMT", None),
    ],
)
def test_a_date_to_wait_for_is_compared_with_that_of_the_server(
    retry_after: str, date: str | None, seconds: float | None
) -> None:
    response = requests.Response()
    response.headers["Retry-After"] = retry_after
    if date is not None:
        response.headers["Date"] = date
    assert retry_after_s(response) == seconds
