"""Opens addresses for no longer than a server may take, whatever it sends and however slowly.

A socket's own timeout holds for a single read: a header line, a chunk's extension or an endless
`100 Continue` that drips a byte a second never passes it. A thread shuts the socket down instead.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Protocol

SLOWEST_BYTES_PER_S = 1000  # on average, once the timeout has passed: no server may send for ever


class Response(Protocol):
    """What is needed of an HTTP response."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the header lines by name."""

    def read1(self, n_bytes: int, /) -> bytes:
        """Return what has come, up to n_bytes; empty at the end."""


def patience_s(n_bytes: int, timeout_s: float) -> float:
    """How long a server may take for its first n_bytes and the next."""
    return max(timeout_s, n_bytes / SLOWEST_BYTES_PER_S)


class Deadline:
    """Shuts sockets down from a thread of its own once its time has come, unless it was moved."""

    def __init__(self, seconds: float) -> None:
        self.has_passed = False
        self._until_s = time.monotonic() + seconds
        self._is_over = False
        self._sockets: list[socket.socket] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._wait, daemon=True)

    def __enter__(self) -> Deadline:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify()
        self._thread.join()

    def move(self, until_s: float) -> None:
        """Set another time, by time.monotonic."""
        self._until_s = until_s  # later than before: the thread looks again when it wakes

    def watch(self, connected: socket.socket) -> None:
        """Shut this one down, too; at once where the time has come."""
        with self._changed:
            self._sockets.append(connected)
            if self.has_passed:
                self._shut()

    def _wait(self) -> None:
        with self._changed:
            while not self._is_over and (left_s := self._until_s - time.monotonic()) > 0:
                self._changed.wait(left_s)
            if not self._is_over:
                self.has_passed = True
                self._shut()

    def _shut(self) -> None:
        for one in self._sockets:
            with suppress(OSError):  # closed, or handed on to TLS
                socket.socket.shutdown(one, socket.SHUT_RDWR)  # TLS's own would say goodbye first


class ImpatientResponse:
    """A response whose reads end when its deadline does; each read moves it.

    Raises TimeoutError then: what was cut off may look like a whole answer.
    """

    def __init__(self, response: Response, deadline: Deadline, timeout_s: float) -> None:
        self.headers = response.headers
        self._response, self._deadline, self._timeout_s = response, deadline, timeout_s
        self._n_bytes, self._began_s = 0, time.monotonic()
        deadline.move(self._began_s + patience_s(0, timeout_s))

    def read1(self, n_bytes: int, /) -> bytes:
        """Return what has come, up to n_bytes; empty at the end."""
        try:
            chunk = self._response.read1(n_bytes)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise self._late() if self._deadline.has_passed else error from None
        if self._deadline.has_passed:
            raise self._late()
        self._n_bytes += len(chunk)
        self._deadline.move(self._began_s + patience_s(self._n_bytes, self._timeout_s))
        return chunk

    def _late(self) -> TimeoutError:
        passed_s = time.monotonic() - self._began_s
        return TimeoutError(f"timed out after {passed_s:.1f} s and {self._n_bytes} bytes")


@contextmanager
def open_url(url: str, timeout_s: float) -> Iterator[Response]:
    """Open an address for reading; the timeout holds for all that comes before the first byte.

    Raises TimeoutError where it passes, or where bytes come slower than SLOWEST_BYTES_PER_S.
    """
    with Deadline(timeout_s) as deadline:
        opener = urllib.request.build_opener(_Http(deadline), _Https(deadline))
        try:
            response = opener.open(url, timeout=timeout_s)
        except (OSError, ValueError, http.client.HTTPException) as error:
            if not deadline.has_passed:
                raise
            raise TimeoutError(f"timed out, no answer in {timeout_s:g} s") from error
        with response:
            if deadline.has_passed:
                raise TimeoutError(f"timed out, no whole answer in {timeout_s:g} s")
            yield ImpatientResponse(response, deadline, timeout_s)


def _watched(kind: type[http.client.HTTPConnection], deadline: Deadline) -> type[Any]:
    """A class of connections that tells the deadline of each socket that it gets."""

    class Watched(kind):  # type: ignore[valid-type,misc]
        """Told when `sock` is set, since a proxy is talked to before `connect` returns."""

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if name == "sock" and value is not None:
                deadline.watch(value)

    return Watched


class _Http(urllib.request.HTTPHandler):
    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._connection: Any = _watched(http.client.HTTPConnection, deadline)

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connection, req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._connection: Any = _watched(http.client.HTTPSConnection, deadline)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connection, req, context=ssl.create_default_context())
