"""The cache of thumbnails: its bound, its threads, and photographs that cannot be shown."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter

import pytest

from hgld.errors import InputError
from hgld.review.thumbnails import Thumbnail, ThumbnailCache
from tests.review.photograph_files import jpeg


async def wanted() -> bool:
    return False


def get(cache: ThumbnailCache, *image_ids: str, size: str = "small") -> list[Thumbnail | None]:
    """Return the thumbnails of photographs that are asked for at the same time."""

    async def all_at_once() -> list[Thumbnail | None]:
        return await asyncio.gather(*(cache.get(image_id, size, wanted) for image_id in image_ids))

    return asyncio.run(all_at_once())


def test_thumbnails_are_made_in_a_few_threads_and_kept() -> None:
    reads: Counter[str] = Counter()
    threads: set[str] = set()
    running = most = 0
    lock = threading.Lock()

    def read(image_id: str) -> bytes:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            reads[image_id] += 1
            threads.add(threading.current_thread().name)
        time.sleep(0.01)
        with lock:
            running -= 1
        return jpeg()

    cache = ThumbnailCache(read, workers=2)
    thumbnails = get(cache, *"abcd", *"abcd")
    assert reads == dict.fromkeys("abcd", 1)
    assert most <= 2
    assert threading.current_thread().name not in threads
    first = thumbnails[0]
    assert first is not None
    assert first.jpeg.startswith(b"\xff\xd8")
    assert {thumbnail and thumbnail.etag for thumbnail in thumbnails} == {first.etag}
    large = get(cache, "a", size="large")[0]
    assert large is not None
    assert large.etag != first.etag
    assert reads["a"] == 2


def test_least_recently_used_thumbnails_are_dropped() -> None:
    reads: Counter[str] = Counter()

    def read(image_id: str) -> bytes:
        reads[image_id] += 1
        return jpeg()

    (thumbnail,) = get(ThumbnailCache(read), "a")
    assert thumbnail is not None
    cache = ThumbnailCache(read, max_bytes=2 * len(thumbnail.jpeg))
    reads.clear()
    for image_id in ("a", "b", "a", "c", "a", "b"):
        get(cache, image_id)
    assert reads == {"a": 1, "b": 2, "c": 1}
    small = ThumbnailCache(read, max_bytes=0)
    assert get(small, "a")[0] == thumbnail, "larger than the cache"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"no picture", "not an image"),
        (jpeg()[:400], "damaged"),
        (InputError("x.tar: not the tar file that was indexed"), "its file cannot be read"),
        (OSError(5, "Input/output error"), "its file cannot be read"),
        (MemoryError(), "its file cannot be read"),
    ],
    ids=["text", "cut short", "changed", "broken disk", "no memory"],
)
def test_problems_are_told_and_logged_once(
    content: bytes | Exception, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    def read(_: str) -> bytes:
        if isinstance(content, Exception):
            raise content
        return content

    cache = ThumbnailCache(read)
    with caplog.at_level(logging.WARNING):
        thumbnails = get(cache, "a", "a") + get(cache, "a", size="large")
    assert thumbnails == [Thumbnail(b"", "", problem)] * 3
    assert len(caplog.records) == 1


def test_a_photograph_that_becomes_readable_is_shown() -> None:
    contents = [b"no picture", jpeg()]
    cache = ThumbnailCache(lambda _: contents.pop(0))
    assert [thumbnail and bool(thumbnail.jpeg) for _ in range(3) for thumbnail in get(cache, "a")] == [
        False,
        True,
        True,
    ]


def test_nothing_is_made_for_those_who_are_gone() -> None:
    async def gone() -> bool:
        return True

    def read(_: str) -> bytes:
        raise AssertionError

    assert asyncio.run(ThumbnailCache(read).get("a", "small", gone)) is None


def test_unknown_photographs_are_errors() -> None:
    def read(image_id: str) -> bytes:
        raise KeyError(image_id)

    with pytest.raises(KeyError):
        get(ThumbnailCache(read), "a")
