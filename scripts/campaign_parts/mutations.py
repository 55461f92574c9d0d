"""Ways to damage a file, each by a few random numbers; the seed tells exactly how."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

BOM = b"\xef\xbb\xbf"
HUGE = (b"99999999999999999999", b"2147483648", b"-1", b"1e309", b"4294967296", b"00", b"\xd9\xa3")
DEEP = 3000


def _flip(content: bytes, rng: random.Random) -> bytes:
    """Change one to three bytes."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _byte(content: bytes, rng: random.Random) -> bytes:
    """Put a byte in that matters in some format."""
    at = rng.randrange(len(content) + 1)
    return (
        content[:at] + rng.choice([b"(", b")", b"\t", b" ", b"\n", b"|", b"0", b"#"]) + content[at:]
    )


def _truncate(content: bytes, rng: random.Random) -> bytes:
    """Keep only the beginning, perhaps nothing."""
    return content[: rng.randrange(len(content))]


def _duplicate_line(content: bytes, rng: random.Random) -> bytes:
    """Write a line twice."""
    lines = content.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    return b"".join([*lines[: at + 1], *lines[at:]])


def _drop_line(content: bytes, rng: random.Random) -> bytes:
    """Leave a line out."""
    lines = content.splitlines(keepends=True)
    del lines[rng.randrange(len(lines))]
    return b"".join(lines)


def _swap_lines(content: bytes, rng: random.Random) -> bytes:
    """Exchange two lines."""
    lines = content.splitlines(keepends=True)
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return b"".join(lines)


def _bom(content: bytes, _: random.Random) -> bytes:
    """Begin with a byte order mark, as some editors save UTF-8."""
    return BOM + content


def _crlf(content: bytes, _: random.Random) -> bytes:
    """End lines as Windows does."""
    return content.replace(b"\n", b"\r\n")


def _cr(content: bytes, _: random.Random) -> bytes:
    """End lines as old Macs did."""
    return content.replace(b"\n", b"\r")


def _nul(content: bytes, rng: random.Random) -> bytes:
    """Put a NUL character in."""
    at = rng.randrange(len(content) + 1)
    return content[:at] + b"\0" + content[at:]


def _utf16(content: bytes, _: random.Random) -> bytes:
    """Save in another encoding."""
    return content.decode("utf-8").encode("utf-16")


def _deep(content: bytes, rng: random.Random) -> bytes:
    """Open thousands of parentheses before a line."""
    lines = content.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    return b"".join([*lines[:at], b"(1 " * DEEP, *lines[at:]])


def _huge(content: bytes, rng: random.Random) -> bytes:
    """Put a number in the place of a word that no table has room for."""
    words = content.split(b" ")
    words[rng.randrange(len(words))] = rng.choice(HUGE)
    return b" ".join(words)


def _long_line(content: bytes, rng: random.Random) -> bytes:
    """Repeat a line's text hundreds of times within the line."""
    lines = content.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    return b"".join([*lines[:at], lines[at].rstrip(b"\n") * 300 + b"\n", *lines[at + 1 :]])


def _blank_line(content: bytes, rng: random.Random) -> bytes:
    """Put an empty line in."""
    lines = content.splitlines(keepends=True)
    at = rng.randrange(len(lines) + 1)
    return b"".join([*lines[:at], b"\n", *lines[at:]])


def _nothing(content: bytes, _: random.Random) -> bytes:
    """Leave the file as it is: it has to be accepted."""
    return content


MUTATIONS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    name.removeprefix("_"): function
    for name, function in list(globals().items())
    if name.startswith("_") and getattr(function, "__module__", None) == __name__
}


def mutated(content: bytes, name: str, seed: int) -> bytes:
    """A file's bytes after the mutation of this name."""
    return MUTATIONS[name](content, random.Random(seed))


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _endless(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _circle(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


# What stands in the place of a file.
INSTEAD: dict[str, Callable[[Path], None]] = {
    "missing": Path.unlink,
    "fifo": _fifo,
    "folder": _folder,
    "endless": _endless,
    "circle": _circle,
}
