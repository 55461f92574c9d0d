"""Texts that are to be paths: whether any file system could take them."""

from __future__ import annotations

from pathlib import PurePath

from harness.errors import ConfigError

LONGEST_NAME_BYTES = 255
LONGEST_PATH_BYTES = 3500  # Linux allows 4095, of which our own folders and names need some


def check_path_text(name: str, text: str) -> None:
    """Raise ConfigError for an empty path, one with a NUL character, or one that is too long."""
    if not text:
        raise ConfigError(f"{name} is empty; name a file or folder, or leave {name} out")
    if "\0" in text:
        raise ConfigError(f"{name}={text!r} has a NUL character; give a path without")
    longest = max(map(_n_bytes, PurePath(text).parts), default=0)
    if longest > LONGEST_NAME_BYTES or _n_bytes(text) > LONGEST_PATH_BYTES:
        raise ConfigError(
            f"{name}={text[:40]}... is a path of {_n_bytes(text)} bytes with a name of {longest};"
            f" give one of at most {LONGEST_PATH_BYTES} bytes, whose names have at most"
            f" {LONGEST_NAME_BYTES}"
        )


def _n_bytes(text: str) -> int:
    return len(text.encode(errors="surrogateescape"))
