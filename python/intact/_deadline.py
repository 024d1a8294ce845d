"""`--time` of the commands: long work ends at the next whole unit of work after its time is over."""

from __future__ import annotations

import math
import time
from contextvars import ContextVar

from ._library import Error

IS_OVER = "the time of --time was over"

_end: ContextVar[float] = ContextVar("end", default=math.inf)  # of time.monotonic()


class TimeOver(Error):
    """The time was over before a whole result was there. `what`: what is missing."""

    def __init__(self, what: str):
        super().__init__("TIME_OVER", f"unfinished: {what}: {IS_OVER}")


def limit(seconds: "float | None") -> None:
    """The calling thread's work has so many seconds from now on; None: any number."""
    _end.set(math.inf if seconds is None else time.monotonic() + seconds)


def seconds_left() -> "float | None":
    """At least 0; None: any number. The `timeout` of a process."""
    return None if _end.get() == math.inf else max(_end.get() - time.monotonic(), 0.0)


def is_time_over() -> bool:
    return time.monotonic() >= _end.get()


def begin_unit(what: str) -> None:
    """Is called before each unit of work. Raises `TimeOver` if the time is over; `what` is then missing."""
    if is_time_over():
        raise TimeOver(what)
