"""Files of records: written whole or not at all, never rewritten, leftovers of the dead removed."""

from __future__ import annotations

import os
from pathlib import Path

from harness.errors import ConfigError


def write_whole(path: Path, text: str) -> None:
    """Write atomically; what was there, which no longer answers, moves to superseded/ beside it."""
    _write(path, text, keep=True)


def replace_whole(path: Path, content: str | bytes) -> None:
    """Write atomically what can be made again: whoever looks finds the old file or the new one."""
    _write(path, content, keep=False)


def _write(path: Path, content: str | bytes, *, keep: bool) -> None:
    """Whoever looks finds the old file, or the new one complete on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path, str(os.getpid()))
    with temporary.open("wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
        file.flush()
        os.fsync(file.fileno())
    if keep:
        put_aside(path)
    temporary.replace(path)


def put_aside(path: Path) -> None:
    """Move a file that no longer answers to superseded/ beside it; nothing where there is none."""
    if path.exists():
        old = path.parent / "superseded"
        old.mkdir(exist_ok=True)
        path.replace(old / f"{path.stem}.{path.stat().st_mtime_ns}.json")


def drop_leftovers(path: Path) -> None:
    """Delete what a killed writer of this file left half-written."""
    for leftover in path.parent.glob(_temporary(path, "*").name):
        leftover.unlink(missing_ok=True)


def _temporary(path: Path, tag: str) -> Path:
    return path.with_name(f".{path.name}.{tag}.tmp")


def check_suffix(path: Path, holds: str, *suffixes: str) -> None:
    """Raise ConfigError unless the name of the file `out` ends in one of these."""
    if path.suffix not in suffixes:
        kinds = " or ".join(suffix.removeprefix(".").upper() for suffix in suffixes)
        raise ConfigError(f"out={path}, but {holds} {kinds}; end it in {' or '.join(suffixes)}")


def check_writable(folder: Path, given_as: str = "results_dir or out") -> None:
    """Raise ConfigError unless files can be written in `folder`, which is made if missing."""
    probe = folder / f".probe.{os.getpid()}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be written ({error.strerror}); choose another {given_as}"
        ) from error
