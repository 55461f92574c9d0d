"""A page with parts that a script writes: the text between two marks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.records.files import replace_whole

END = "<!-- until here -->\n"


@dataclass(frozen=True, slots=True)
class MarkedPage:
    """One part of a page, with the script that writes it.

    part: a name for one of several parts of the same script.
    """

    path: Path
    script: str
    part: str = ""

    @property
    def begin(self) -> str:
        """The mark before the part."""
        name = f": {self.part}" if self.part else ""
        return f"<!-- written by scripts/{self.script}.py{name} -->\n"

    @property
    def written(self) -> str:
        """The part as it is on the page."""
        return self._text().partition(self.begin)[2].partition(END)[0].strip()

    def replace(self, part: str) -> str:
        """Return the whole page with another part."""
        before, _, rest = self._text().partition(self.begin)
        return f"{before}{self.begin}\n{part.strip()}\n\n{END}{rest.partition(END)[2]}"

    def write(self, part: str) -> None:
        """Replace the part on the page."""
        replace_whole(self.path, self.replace(part))

    def _text(self) -> str:
        return self.path.read_text(encoding="utf-8")
