"""Write the table of experiments in docs/pipeline.md from conf/experiment.

python -m scripts.write_experiments
"""

from __future__ import annotations

from typing import Any

from harness.planning.grid import experiment_names, read_experiment
from harness.values.places import ROOT
from scripts.marked_page import MarkedPage

PAGE = MarkedPage(ROOT / "docs" / "pipeline.md", "write_experiments")


def build_table() -> str:
    """Return a row for each file of conf/experiment."""
    lines = ["| experiment | paper | title | command |", "|---|---|---|---|"]
    for name in experiment_names():
        content = read_experiment(name)
        command = f"`{_find_command(name, content)}`"
        cells = (f"`{name}`", content["paper"], content["title"], command)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _find_command(name: str, content: dict[str, Any]) -> str:
    """Return `bench` if there are trials to measure, else the pipeline, which counts."""
    scales = content["scales"].values()
    measures = any(isinstance(of, dict) and (of.keys() & {"blocks", "trials_of"}) for of in scales)
    return f"bench experiment={name}" if measures else f"snakemake draw_{name}"


def main() -> None:
    """Write the table."""
    PAGE.write(build_table())


if __name__ == "__main__":
    main()
