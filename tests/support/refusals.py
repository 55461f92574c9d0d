"""Checks that input is refused in one line that has given texts, and calls that raise errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import pytest

from dynbatch.harness.errors import ConfigError

Output = pytest.CaptureFixture[str]
MOST = 2000  # characters of a line, in which a long value is shortened


@contextmanager
def expect_refusal(*words: str, kind: type[Exception] = ConfigError) -> Iterator[None]:
    """Expect an error in the block, in one line with all texts."""
    with pytest.raises(kind) as caught:
        yield
    check_line(str(caught.value), words)


def read_refusal(capsys: Output, *words: str) -> str:
    """Return the one line that a command printed, on stderr, and check that it has all texts."""
    printed = capsys.readouterr()
    assert printed.out == "", printed.out
    check_line(printed.err.removesuffix("\n"), words)
    return printed.err


def raising(error: BaseException) -> Callable[..., NoReturn]:
    """Return a function that raises an error, whatever its arguments."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    return fail


def check_line(line: str, words: tuple[str, ...]) -> None:
    missing = [text for text in words if text not in line]
    assert line, "nothing was printed"
    assert "\n" not in line, line
    assert len(line) <= MOST, line
    assert not missing, f"{line!r} has not {missing}"
