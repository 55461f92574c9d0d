"""Pages as data, and their commands as a user types them; docs/adding.md has most of them."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from dynbatch.harness.values.paths import ROOT
from tests.support.processes import run_in

PAGE = ROOT / "docs" / "adding.md"
BLOCK = re.compile(
    r"^(?:`(?P<path>[\w/.]+)`:\n\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
RESULT = re.compile(r"\[\d+/\d+\] ")  # its number among all of a command
ANYTHING = "..."  # matches any part of a command's output


@dataclass(frozen=True, slots=True)
class Command:
    """A command after `$`, and its output according to the page ("" for unspecified output)."""

    typed: str
    printed: str

    def is_answered_by(self, output: str) -> bool:
        """Check an output against the printed one: `...` is any text, and blanks are ignored.

        Results may come in any order: those of a block end with its fastest system.
        """
        pieces = (re.escape(piece) for piece in _plain(self.printed).split(ANYTHING))
        return not self.printed or bool(
            re.fullmatch(".*?".join(pieces), _plain(output), flags=re.DOTALL)
        )


@dataclass(frozen=True, slots=True)
class Section:
    """One kind of extension: its files by path, and its commands in order."""

    title: str
    files: dict[str, str]
    commands: tuple[Command, ...]

    def write(self, folder: Path) -> None:
        """Write the files of the section below a directory."""
        for name, text in self.files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")

    def follow(self, folder: Path, **variables: str) -> None:
        """Run the commands in a directory, and check that they print what the page says."""
        for command in self.commands:
            printed = run_typed(command.typed, folder, **variables)
            assert command.is_answered_by(printed), f"$ {command.typed}\n{printed}"


def run_typed(typed: str, folder: Path, **variables: str) -> str:
    """Run shell commands that must succeed, with this environment's programs; return the output."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path} | variables
    return run_in(folder, ["bash", "-c", typed], environment)


def _plain(text: str) -> str:
    lines = [" ".join(line.split()) for line in text.strip().splitlines()]
    results = sorted(RESULT.sub("", line) for line in lines if RESULT.match(line))
    return "\n".join([*results, *(line for line in lines if not RESULT.match(line))])


def commands_in(text: str) -> tuple[Command, ...]:
    """Return the commands of a console block."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
    assert parts[0] == "", "a console block begins with a command"
    return tuple(
        Command(typed, printed.strip())
        for typed, _, printed in (part.partition("\n") for part in parts[1:])
    )


def sections_of(page: str) -> list[Section]:
    """Return all sections of a page that contain blocks."""
    sections = []
    for chapter in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        blocks = [match.groupdict() for match in BLOCK.finditer(chapter)]
        files = {block["path"]: block["text"] for block in blocks if block["path"]}
        consoles = (block["text"] for block in blocks if block["kind"] == "console")
        commands = tuple(command for text in consoles for command in commands_in(text))
        if blocks:
            sections.append(Section(chapter.partition("\n")[0], files, commands))
    return sections


SECTIONS = sections_of(PAGE.read_text(encoding="utf-8"))
