"""Write the answers of the second CPU into README.md, from its committed records.

python -m scripts.draw_second_answers
"""

from __future__ import annotations

from harness.values.places import ROOT
from scripts.answer_folders import SECOND_CPU
from scripts.draw_answers import table
from scripts.marked_page import MarkedPage

PAGE = MarkedPage(ROOT / "README.md", "draw_second_answers")


def main() -> None:
    """Write the page again."""
    PAGE.write(table(SECOND_CPU))


if __name__ == "__main__":
    main()
