"""A page of which one part is written from the code: what stands between two marks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.records.whole_files import replace_whole

END = "<!-- until here -->\n"


@dataclass(frozen=True, slots=True)
class MarkedPage:
    """A page, and the script that writes its part."""

    path: Path
    script: str

    @property
    def begin(self) -> str:
        """The mark before the part."""
        return f"<!-- written by scripts/{self.script}.py -->\n"

    @property
    def written(self) -> str:
        """The part as it stands there."""
        return self._text().partition(self.begin)[2].partition(END)[0].strip()

    def with_part(self, part: str) -> str:
        """The whole page with another part."""
        before, _, rest = self._text().partition(self.begin)
        return f"{before}{self.begin}\n{part}\n{END}{rest.partition(END)[2]}"

    def write(self, part: str) -> None:
        """Put a part in the place of the one that stands there."""
        replace_whole(self.path, self.with_part(part))

    def _text(self) -> str:
        return self.path.read_text(encoding="utf-8")
