"""Write the results in README.md and docs/results.md, and their two pictures, from records.

python -m scripts.write_results
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pandas as pd

from harness.records.files import replace_whole
from harness.values.places import CONF_DIR, ROOT
from plots.declaration import read_declaration
from plots.drawable import select_drawable
from plots.experiment import Experiment, load_experiment
from plots.figures import page
from plots.figures.forest import describe_forest, draw_forest
from plots.figures.heat import TITLE as HEAT_TITLE
from plots.figures.heat import describe_heat, draw_heat
from plots.report import shrink_picture
from plots.tables.answers import evaluate_answers, evaluate_strategies
from plots.tables.cells import DAGGER, EN_DASH, format_ratio, pivot
from plots.write import save_figure, to_pipes
from scripts.write_pages import MarkedPage

REFERENCE = ROOT / "results" / "reference"
# The first folder that has a workload tells it.
FIRST_CPU = (
    REFERENCE / "amd-epyc-2cpu-2026-11-24" / "paper_evening",
    REFERENCE / "amd-epyc-2cpu-2026-11-24" / "paper",
    REFERENCE / "amd-epyc-2cpu-2026-11-23" / "paper",
)
SECOND_CPU = (
    REFERENCE / "intel-xeon-2cpu-2026-11-25" / "paper",
    REFERENCE / "intel-xeon-2cpu-2026-11-25" / "medium",
)
# The largest change between two runs of a ratio of baselines whose code had not changed, see
# conf/experiment/answers.yaml.
BETWEEN_RUNS = float((read_declaration("answers", CONF_DIR).figure or {})["band"])
README, RESULTS = ROOT / "README.md", ROOT / "docs" / "results.md"
PICTURES = (REFERENCE / "answers.png", REFERENCE / "strategies.png")
FOREST_TITLE = "Speedup of the engine over each framework's fastest baseline"
CONDITIONS = "one core of an AMD EPYC (Zen 4), the papers' sizes, float32"
PIXELS = 1200  # of a line of a picture
REASONS = {  # for a baseline that is faster than the engine
    "TorchFold": ", because it merges equal leaves and subtrees, and so skips half of the vertices"
}
FEW_STRATEGIES = 3  # fewer are no comparison of strategies


@dataclass(frozen=True, slots=True)
class Results:
    """Answers and strategies of one CPU: rows of plots.tables.answers, of the first folder each."""

    answers: pd.DataFrame
    strategies: pd.DataFrame


@cache
def load_results(folders: Sequence[Path]) -> Results:
    """Evaluate the answers of several folders, and keep each workload of the first that has it."""
    experiments = [load_answers(folder) for folder in folders]
    return Results(
        keep_first(map(evaluate_answers, experiments), has_answer),
        keep_first(map(evaluate_strategies, experiments), has_strategies),
    )


def load_answers(folder: Path) -> Experiment:
    """Load the experiment `answers` from committed records."""
    held = select_drawable({"records": folder}, os.environ, ["answers"])
    part = held.drawn["answers"]
    return load_experiment("answers", held.choices, part.trials, part.sweeps, held.source)


def keep_first(
    frames: Iterable[pd.DataFrame], is_told: Callable[[pd.DataFrame], bool]
) -> pd.DataFrame:
    """Keep each workload of the first frame that tells it, in the order of experiments."""
    found: dict[tuple[str, str], pd.DataFrame] = {}
    for frame in frames:
        for key, rows in frame.groupby(["experiment", "workload"], sort=False):
            if is_told(rows):
                found.setdefault(key, rows)
    ordered = sorted(found.items(), key=lambda item: item[0][0])
    return pd.concat([rows for _, rows in ordered], ignore_index=True)


def has_answer(rows: pd.DataFrame) -> bool:
    """Return whether the engine and a baseline have a number."""
    return bool(rows.is_fastest_baseline.any() and (rows.status[rows.is_engine] == "ok").any())


def has_strategies(rows: pd.DataFrame) -> bool:
    """Return whether enough strategies have a number to be compared."""
    return bool((rows.speedup_status == "ok").sum() >= FEW_STRATEGIES)


def select_answers(results: Results) -> pd.DataFrame:
    """Return a row per workload: its fastest baseline, and the engine's throughput."""
    answers = results.answers
    engine = answers[answers.is_engine][["experiment", "workload", "value", "warnings"]]
    best = answers[answers.is_fastest_baseline]
    return best.merge(
        engine, on=["experiment", "workload"], suffixes=("", "_engine"), validate="1:1"
    )


def classify(low: float, high: float, factor: float = BETWEEN_RUNS) -> str:
    """Return "faster" or "slower" if the whole interval is beyond a factor, else "unclear"."""
    if pd.isna(low):
        return "unclear"
    return "faster" if low > factor else "slower" if high < 1 / factor else "unclear"


def build_table(rows: pd.DataFrame) -> str:
    """Return a row per workload: engine, fastest baseline and speedup, bold if it is clear."""
    speed = [
        f"{value:,.0f}{DAGGER if warnings else ''}"
        for value, warnings in zip(rows.value_engine, rows.warnings_engine, strict=True)
    ]
    baseline = [
        f"{value:,.0f}{DAGGER if warnings else ''}"
        for value, warnings in zip(rows.value, rows.warnings, strict=True)
    ]
    gains = [format_gain(row) for _, row in rows.iterrows()]
    counts = [f"{n} ({m})" for n, m in zip(rows.n_baselines, rows.n_frameworks, strict=True)]
    cells = pd.DataFrame(
        {
            "hidden": rows.hidden_size.astype(str).to_list(),
            "engine, instances/s": speed,
            "fastest baseline": rows.label.to_list(),
            "of (frameworks)": counts,
            "its instances/s": baseline,
            "speedup": gains,
        },
        index=pd.Index(rows.workload, name="workload"),
    )
    return "\n".join(to_pipes(cells))


def format_gain(row: pd.Series, factor: float = BETWEEN_RUNS) -> str:
    """Format a speedup, in bold if its whole interval is beyond a factor."""
    text = format_ratio(row.speedup, row.speedup_low, row.speedup_high, row.speedup_warnings)
    is_clear = classify(row.speedup_low, row.speedup_high, factor) != "unclear"
    return f"**{text}**" if is_clear else text


def build_short_table(results: Results) -> str:
    """Return the README's rows: a workload of each kind of network."""
    return build_table(select_smallest(select_answers(results)))


def select_smallest(rows: pd.DataFrame) -> pd.DataFrame:
    """Select the workload with the smallest speedup of each kind of network, the largest first."""
    rows = rows.sort_values("speedup", kind="stable")
    kinds = rows.experiment.str.removesuffix("_inference")
    return rows[~kinds.duplicated()][::-1]


def build_bullets(first: Results, second: Results) -> str:
    """Return the answer in five bullets; every number is from the frame."""
    rows, others = select_answers(first), select_answers(second)
    classes = [classify(*ends) for ends in rows[["speedup_low", "speedup_high"]].to_numpy()]
    n = {name: classes.count(name) for name in ("faster", "slower", "unclear")}
    names = rows.framework.value_counts()
    often = ", ".join(f"{name} {count}" for name, count in names.items())
    slowest = rows.loc[rows.speedup.idxmin()]
    strategies = first.strategies
    medians = strategies[strategies.speedup_status == "ok"].groupby("label").speedup.median()
    close = medians[medians.sub(1).abs() < 0.03].sort_values()
    behind = medians.drop(close.index).sort_values()
    return "\n".join(
        [
            "- **Which framework?** The engine (`system=vertex`: the shared core with our policy"
            " `critical_share`) is clearly faster than the fastest baseline on"
            f" {n['faster']} of {len(rows)} workloads, clearly slower on {n['slower']}, and not"
            f" clearly different on {n['unclear']}. Fastest baseline, by number of workloads:"
            f" {often} (TorchFold is PyTorch's).",
            "- **Which strategy?** Each paper's strategy is also a set of switches of our engine."
            f" There, {join_names(close)} as fast as ours in the median; ours is"
            f" {join_factors(behind)}.",
            "- **Why?** The gain over frameworks is the engine's, not the policy's: on a CPU a step"
            f" is cheap to start, so that fewer batches count little ({describe_batches(first)})."
            " What counts is few, large matrix products and little copying.",
            f"- **Where not?** {slowest.workload}: {slowest.label} is faster (speedup"
            f" {slowest.speedup:.2f}){REASONS.get(slowest.label, '')}.",
            "- **How sure?** 95% intervals over six rounds in fresh processes; clearly: the whole"
            f" interval is beyond a factor of {BETWEEN_RUNS}, the largest change between runs of"
            " unchanged code. On a"
            f" second CPU, an Intel Xeon, speedups on {len(others)} workloads are"
            f" {others.speedup.min():.2f} to {others.speedup.max():.2f}. No GPU has been measured.",
        ]
    )


def join_names(medians: pd.Series) -> str:
    """Return "A's and B's are", for strategies that are as fast."""
    names = [f"{shorten(str(label))}'s" for label in medians.index]
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'}"


def join_factors(medians: pd.Series) -> str:
    """Return "1.05 times as fast as A's, 1.2 times as B's", by ascending factor."""
    parts = [f"{value:.2f} times as fast as {shorten(str(k))}'s" for k, value in medians.items()]
    return ", ".join(parts)


def shorten(label: str) -> str:
    """Return a strategy's name alone."""
    return label.removesuffix(" strategy")


def describe_batches(results: Results) -> str:
    """Compare the batches of Cavs's strategy and of ours on lattices, and their speed."""
    rows = load_answers(REFERENCE / "amd-epyc-2cpu-2026-11-23" / "paper").rows
    lattices = rows[rows.experiment == "headline_lattice_lstm"].groupby("system").n_batches.median()
    found = results.strategies
    is_cavs = (found.experiment == "headline_lattice_lstm") & (found.system == "cavs")
    return (
        f"on lattices Cavs's strategy runs {lattices['cavs']:.0f} batches where ours runs"
        f" {lattices['vertex']:.0f}, and ours is {found.speedup[is_cavs].iloc[0]:.2f} times as fast"
    )


def build_strategies(results: Results) -> str:
    """Return the engine's speedup over each strategy, bold if its interval does not contain 1."""
    rows = results.strategies[results.strategies.speedup_status == "ok"]
    texts = rows.assign(
        strategy=rows.label.map(shorten),
        text=[
            f"**{format_median(row)}**"
            if classify(row.speedup_low, row.speedup_high, 1) != "unclear"
            else format_median(row)
            for row in rows.itertuples()
        ],
    ).sort_values("strategy", key=lambda names: names.str.lower(), kind="stable")
    order = list(dict.fromkeys(rows.workload))
    texts = texts.sort_values("workload", key=lambda names: names.map(order.index), kind="stable")
    columns = sorted(set(texts.strategy), key=str.lower)
    cells = pivot(texts, {"workload": "workload"}, ["strategy"], lambda row: str(row.text))
    return "\n".join(to_pipes(cells[columns].replace("", EN_DASH)))


def format_median(row: object) -> str:
    """Format the median of a speedup with two decimals, and a dagger for warnings."""
    return f"{row.speedup:.2f}{DAGGER if row.speedup_warnings else ''}"  # type: ignore[attr-defined]


def build_parts() -> dict[MarkedPage, str]:
    """Return every written part of both pages."""
    first, second = load_results(FIRST_CPU), load_results(SECOND_CPU)
    return {
        MarkedPage(README, "write_results", "answer"): build_bullets(first, second),
        MarkedPage(README, "write_results", "table"): build_short_table(first),
        MarkedPage(RESULTS, "write_results", "first CPU"): build_table(select_answers(first)),
        MarkedPage(RESULTS, "write_results", "second CPU"): build_table(select_answers(second)),
        MarkedPage(RESULTS, "write_results", "strategies"): build_strategies(first),
    }


def write_pictures() -> None:
    """Draw the forest plot and the heat map of the first CPU."""
    first = load_results(FIRST_CPU)
    forest, heat = draw_forest(first.answers, band=BETWEEN_RUNS), draw_heat(first.strategies)
    page.add_title(forest, FOREST_TITLE)
    page.add_caption(forest, describe_forest(first.answers, BETWEEN_RUNS, CONDITIONS))
    page.add_title(heat, HEAT_TITLE)
    page.add_caption(heat, describe_heat(first.strategies, CONDITIONS))
    for path, figure in zip(PICTURES, (forest, heat), strict=True):
        save_figure(figure, path)
        replace_whole(path, shrink_picture(path, PIXELS)[0])


def main() -> None:
    """Write all parts and both pictures."""
    for part, text in build_parts().items():
        part.write(text)
    write_pictures()


if __name__ == "__main__":
    main()
