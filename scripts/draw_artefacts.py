"""Write the table of artefacts in docs/pipeline.md from conf/experiment: no row by hand.

python -m scripts.draw_artefacts
"""

from __future__ import annotations

from typing import Any

from harness.planning.grid import experiment_names, read_experiment
from harness.values.places import ROOT
from scripts.marked_page import MarkedPage

PAGE = MarkedPage(ROOT / "docs" / "pipeline.md", "draw_artefacts")


def table() -> str:
    """A row for each file of conf/experiment."""
    lines = ["| artefact | of | what | by itself |", "|---|---|---|---|"]
    for name in experiment_names():
        content = read_experiment(name)
        cells = (f"`{name}`", content["paper"], content["title"], f"`{_command(name, content)}`")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _command(name: str, content: dict[str, Any]) -> str:
    """`bench` where there are trials to measure; else the pipeline, which counts and reads code."""
    scales = content["scales"].values()
    measures = any(isinstance(of, dict) and (of.keys() & {"blocks", "trials_of"}) for of in scales)
    return f"bench experiment={name}" if measures else f"snakemake draw_{name}"


def main() -> None:
    """Write the page again."""
    PAGE.write(table())


if __name__ == "__main__":
    main()
