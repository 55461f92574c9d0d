"""docs/adding.md as data: the files that it writes, the commands that it types."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.values.places import ROOT

PAGE = ROOT / "docs" / "adding.md"
BLOCK = re.compile(
    r"^(?:`(?P<path>[\w/.]+)`:\n\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
ANYTHING = "..."  # in what a command prints


@dataclass(frozen=True, slots=True)
class Command:
    """What is typed behind `$`, and what the page says that it prints ("": not told)."""

    typed: str
    printed: str

    def is_answered_by(self, output: str) -> bool:
        """Whether an output is the printed one, whatever stands for `...`; blanks do not count."""
        pieces = (re.escape(piece) for piece in _plain(self.printed).split(ANYTHING))
        return not self.printed or bool(
            re.fullmatch(".*?".join(pieces), _plain(output), flags=re.DOTALL)
        )


@dataclass(frozen=True, slots=True)
class Section:
    """One thing to add: its files by path, and its commands in their order."""

    title: str
    files: dict[str, str]
    commands: tuple[Command, ...]


def _plain(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())


def commands_in(text: str) -> tuple[Command, ...]:
    """Commands of one console block."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
    assert parts[0] == "", "a console block begins with a command"
    return tuple(
        Command(typed, printed.strip())
        for typed, _, printed in (part.partition("\n") for part in parts[1:])
    )


def sections_of(page: str) -> list[Section]:
    """All sections of a page that hold blocks."""
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
