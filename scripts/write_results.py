"""Write the results in README.md and docs/results.md, and their two figures.

All results come from committed records.

python -m scripts.write_results
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from dynbatch.harness.planning.claim_points import BATCHES
from dynbatch.harness.planning.kinds import read_systems
from dynbatch.harness.records.files import replace_whole
from dynbatch.harness.records.numbers import RATIO, numbers, ratios
from dynbatch.harness.records.tidy import frame
from dynbatch.harness.values.paths import CONF_DIR, ROOT
from dynbatch.plots.declaration import read_declaration
from dynbatch.plots.drawable import select_drawable
from dynbatch.plots.experiment import Experiment, load_held
from dynbatch.plots.figures import page
from dynbatch.plots.figures.forest import describe_forest, draw_forest
from dynbatch.plots.figures.heat import TITLE as HEAT_TITLE
from dynbatch.plots.figures.heat import describe_heat, draw_heat
from dynbatch.plots.report import shrink_picture
from dynbatch.plots.tables.answers import (
    WORKLOAD,
    evaluate_answers,
    evaluate_strategies,
    find_certain,
)
from dynbatch.plots.tables.cells import COUNTED, DAGGER, EN_DASH, format_ratio, pivot_numbers
from dynbatch.plots.tables.claims import NOT_MEASURABLE, NOT_SHOWN, VERDICTS, judge
from dynbatch.plots.write import save_figure, to_pipes
from scripts.write_pages import MarkedPage

REFERENCE = ROOT / "results" / "reference"
ZEN5 = REFERENCE / "amd-epyc-zen5-2cpu-2026-11-29"
FIRST_CPU = ZEN5 / "paper"
CPUS = {
    "AMD Zen 5": FIRST_CPU,
    "Intel Xeon": REFERENCE / "intel-xeon-2cpu-2026-11-29" / "paper",
    "AMD Zen 3": REFERENCE / "amd-epyc-zen3-2cpu-2026-11-28" / "paper",
}
NAMES = tuple(CPUS)
POLICIES = ZEN5 / "medium"  # policies compared by time, with equal kernels
# A claim has the verdict of the first directory that decides it.
CLAIMS = (ZEN5 / "claims", REFERENCE / "amd-epyc-2cpu-2026-11-28" / "claims")
GPU, GPU_NAME = REFERENCE / "nvidia-h200-2026-11-27" / "medium", "NVIDIA H200"
FIRST_LATER = 3  # round on FIRST_CPU, measured some time after those before it
# More than a ratio of unchanged code changes from one run to another, see describe_repeatability.
BETWEEN_RUNS = float((read_declaration("answers", CONF_DIR).figure or {})["band"])
README, RESULTS = ROOT / "README.md", ROOT / "docs" / "results.md"
PICTURES = (REFERENCE / "answers.png", REFERENCE / "strategies.png")
FOREST_TITLE = (
    "Speedup of the engine over the fastest baseline of each framework, and over C++ by hand"
)
CONDITIONS = "one core of an AMD EPYC (Zen 5), the papers' sizes, float32"
PIXELS = 1200  # width of a figure
MANUAL = "native_levels"  # C++ by hand
ENDS = ("", "_low", "_high", "_warnings")  # of the columns of a speedup
# Columns of a baseline in the tables.
SHOWN = ["label", "value", "warnings", *(f"speedup{end}" for end in ENDS)]


@cache
def load_answers(folder: Path) -> pd.DataFrame:
    """Evaluate the answers of a directory: its workloads with an engine and a baseline."""
    answers = evaluate_answers(load_results_of("answers", folder))
    workloads = answers.groupby(["experiment", "workload"], sort=False)
    return workloads.filter(has_answer).sort_values("experiment", kind="stable", ignore_index=True)


@cache
def load_strategies() -> pd.DataFrame:
    """Return the engine's speedups over the strategies, see plots/tables/answers.py."""
    rows = evaluate_strategies(load_results_of("answers", FIRST_CPU))
    return rows[rows.speedup_status == "ok"].reset_index(drop=True)


def load_results_of(name: str, folder: Path) -> Experiment:
    """Load the results of one experiment from committed records."""
    return load_held(name, select_drawable({"records": folder}, os.environ, [name]))


def has_answer(rows: pd.DataFrame) -> bool:
    return bool(rows.is_fastest_baseline.any() and (rows.status[rows.is_engine] == "ok").any())


def select_answers(answers: pd.DataFrame) -> pd.DataFrame:
    """Return a row per workload: the engine, its speedups over the fastest framework and over C++.

    Returns:
        Columns of the workload; value and warnings of the engine, of the framework (value_framework
        etc., with its label), and speedup, speedup_low, speedup_high and speedup_warnings over the
        framework; the same columns of C++ by hand end in _manual.
    """
    engine = answers[answers.is_engine]
    workloads = engine[[*WORKLOAD, "hidden_size", "value", "warnings"]]
    sides = select_frameworks(answers), answers[answers.system == MANUAL]
    rows = workloads
    for side, suffix in zip(sides, ("_framework", "_manual"), strict=True):
        measured = side[side.speedup_status == "ok"].set_index(WORKLOAD)
        rows = rows.join(measured[SHOWN].add_suffix(suffix), on=WORKLOAD, validate="1:1")
    return rows.reset_index(drop=True)


def select_frameworks(answers: pd.DataFrame) -> pd.DataFrame:
    """Select the fastest framework of each workload; C++ by hand is none."""
    rows = answers[~answers.is_engine & (answers.system != MANUAL)]
    rows = rows[rows.speedup_status == "ok"].sort_values("speedup", kind="stable")
    return rows.drop_duplicates(WORKLOAD)


def classify(low: float, high: float, factor: float = BETWEEN_RUNS) -> str:
    """Return "faster" or "slower" if the whole interval is beyond a factor, else "unclear"."""
    if pd.isna(low):
        return "unclear"
    return "faster" if low > factor else "slower" if high < 1 / factor else "unclear"


def build_table(rows: pd.DataFrame) -> str:
    """Return a row per workload: engine, fastest framework and speedups, bold if they are clear."""
    cells = pd.DataFrame(
        {
            "hidden": rows.hidden_size.astype(str).to_list(),
            "engine, instances/s": format_speeds(rows.value, rows.warnings),
            "fastest framework": rows.label_framework.to_list(),
            "its instances/s": format_speeds(rows.value_framework, rows.warnings_framework),
            "speedup over it": format_gains(rows, "framework"),
            "speedup over C++": format_gains(rows, "manual"),
        },
        index=pd.Index(rows.workload, name="workload"),
    )
    return "\n".join(to_pipes(cells))


def format_speeds(values: pd.Series[float], warnings: pd.Series[str]) -> list[str]:
    """Format whole instances per second, with a dagger for warnings."""
    pairs = zip(values, warnings, strict=True)
    return [f"{value:,.0f}{DAGGER * bool(warning)}" for value, warning in pairs]


def format_gains(rows: pd.DataFrame, side: str) -> list[str]:
    """Format the speedups over one side, in bold if the whole interval is beyond BETWEEN_RUNS."""
    columns = [f"speedup{end}_{side}" for end in ENDS]
    texts = []
    for value, low, high, warnings in rows[columns].itertuples(index=False):
        bold = "" if classify(low, high) == "unclear" else "**"
        missing = pd.isna(value)
        texts.append(EN_DASH if missing else bold + format_ratio(value, low, high, warnings) + bold)
    return texts


def select_smallest(rows: pd.DataFrame) -> pd.DataFrame:
    """Select each kind of network's workload with the smallest speedup over frameworks.

    The largest comes first.
    """
    rows = rows.sort_values("speedup_framework", kind="stable")
    kinds = rows.experiment.str.removesuffix("_inference")
    return rows[~kinds.duplicated()][::-1]


def build_bullets(rows: pd.DataFrame, others: Mapping[str, pd.DataFrame]) -> str:
    """Summarize the results in eight bullets; every number is computed from the records.

    Args:
        rows: see select_answers, for the first CPU.
        others: the same for the other CPUs, by name.
    """
    medians = load_strategies().groupby("label").speedup.median()
    close = medians[medians.sub(1).abs() < 0.03].sort_values()
    behind = medians.drop(close.index).sort_values()
    spans = [
        f"{name}: {format_span(cpu, 'framework')} and {format_span(cpu, 'manual')}"
        for name, cpu in others.items()
    ]
    return "\n".join(
        [
            "- **Frameworks.** On Zen 5, the engine (`system=vertex`, policy `critical_share`) is"
            f" {compare_speeds(rows, 'framework')} the fastest measured"
            f" framework ({count_workloads('torch_compiled')} include `torch.compile`,"
            f" {count_workloads('tf_dynamic_xla')} TensorFlow XLA).",
            f"- **C++ by hand** (`{MANUAL}`): {compare_speeds(rows, 'manual')} it;"
            f" interval below 1 on {(rows.speedup_high_manual < 1).sum()}."
            f" On the Xeon, clearly slower on {count_classes(others['Intel Xeon'], 'manual')[1]}.",
            "- **Strategies** (policy, granularity, fusion, layout). On our engine (second figure),"
            f" {join_names(close)} as fast as"
            f" ours in the median (ours {describe_cavs()} times Cavs's);"
            f" ours is {format_slower_strategies(behind)}.",
            "- [**Policy**](docs/critical_share.md) alone, with equal kernels, gains little:"
            f" {describe_policies()} (batch 32, hidden 128).",
            f"- **Slower than frameworks:** {describe_slower({NAMES[0]: rows, **others})}.",
            "- **Confidence.** 95 % intervals over six rounds (strategies, Xeon: ranges over three;"
            " Zen 3: one)"
            f'; "clearly": beyond a factor of {BETWEEN_RUNS}. Speedups over frameworks and C++ on'
            f" {'; on '.join(spans)}.",
            f"- **Claims of the papers.** {describe_claims()}",
            f"- **GPU.** {describe_gpu(evaluate_answers(load_results_of('answers', GPU)))}",
        ]
    )


def compare_speeds(rows: pd.DataFrame, side: str) -> str:
    """Return the range and the median of the speedups over one side, and how many are clear."""
    speedups = rows[f"speedup_{side}"].dropna()
    n_faster, n_slower = count_classes(rows, side)
    return (
        f"clearly faster on {n_faster} of {len(speedups)} workloads, clearly slower on {n_slower}:"
        f" {format_span(rows, side)} (median {speedups.median():.2f}) times as fast as"
    )


def count_workloads(system: str) -> int:
    """Count the workloads that the first CPU has measured with a system."""
    answers = load_answers(FIRST_CPU)
    return int((answers.status[answers.system == system] == "ok").sum())


def count_classes(rows: pd.DataFrame, side: str) -> tuple[int, int]:
    """Count the workloads on which the engine is clearly faster, and clearly slower."""
    ends = rows[[f"speedup_low_{side}", f"speedup_high_{side}"]].to_numpy()
    classes = [classify(*pair) for pair in ends]
    return classes.count("faster"), classes.count("slower")


def format_span(rows: pd.DataFrame, side: str) -> str:
    """Format the smallest and the largest speedup over one side."""
    speedups = rows[f"speedup_{side}"]
    return f"{speedups.min():.2f} to {speedups.max():.2f}"


def describe_gpu(answers: pd.DataFrame) -> str:
    """Return the speedup of each workload that a GPU has measured, and the frameworks."""
    parts = [
        f"{row.speedup:.1f}{DAGGER if row.speedup_warnings else ''} ({row.workload})"
        for row in answers[answers.is_fastest_baseline].itertuples()
    ]
    is_baseline = ~answers.is_engine & (answers.speedup_status == "ok")
    frameworks = sorted(answers.framework[is_baseline].unique())
    return (
        f"On an {GPU_NAME}, speedups over the fastest of {' and '.join(frameworks)} (no others"
        f" measured; PyTorch without `torch.compile` and CUDA graphs) are {' and '.join(parts)}:"
        " [three rounds](docs/gpu.md)."
    )


def join_names(medians: pd.Series) -> str:
    """Return "A's and B's are" for strategies that are as fast as ours."""
    names = [f"{shorten(str(label))}'s" for label in medians.index]
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'}"


def format_slower_strategies(medians: pd.Series) -> str:
    """Return "1.05 times as fast as A's, 1.2 times B's", in ascending order."""
    parts = [f"{value:.2f} times {shorten(str(k))}'s" for k, value in medians.items()]
    return ", ".join(parts).replace(" times ", " times as fast as ", 1)


def describe_cavs() -> str:
    """Return the range of our speedups over Cavs's strategy."""
    rows = load_strategies()
    speedups = rows.speedup[rows.label == "Cavs strategy"]
    return f"{speedups.min():.2f} to {speedups.max():.2f}"


def shorten(label: str) -> str:
    """Return the name of a strategy without the word "strategy"."""
    return label.removesuffix(" strategy")


def describe_policies() -> str:
    """Compare the times of DyNet's agenda and of our policy, with equal kernels, in training."""
    rows = load_results_of("policies_timed_vertices", POLICIES).rows
    rows = rows[(rows["mode"] == "train") & (rows.status == "ok")]
    ours, agenda = (rows[rows.policy == policy] for policy in ("critical_share", "agenda"))
    times = numbers(ratios(agenda, ours, ["model"], "mini_batch_ms"), ["model"], RATIO)
    batches = [
        numbers(side, ["model"], "n_batches").set_index("model").value["lattice_lstm"]
        for side in (ours, agenda)
    ]
    return (
        f"DyNet's agenda takes {times.value.min():.2f} to"
        f" {times.value.max():.2f} times our time in training on {len(times)} models, although it"
        f" runs {batches[1]:.0f} batches, not {batches[0]:.0f}, on lattices"
    )


def describe_slower(cpus: Mapping[str, pd.DataFrame]) -> str:
    """Name the frameworks against which the whole interval of the speedup is below 1.

    A single round has no interval.
    """
    places: dict[tuple[str, str], list[str]] = {}
    for name, rows in cpus.items():
        high = rows.speedup_high_framework.fillna(rows.speedup_framework)
        for row in rows[high < 1].sort_values("speedup_framework").itertuples():
            key = str(row.label_framework), str(row.workload)
            places.setdefault(key, []).append(
                f"{name.split(' ', 1)[1]} {row.speedup_framework:.2f}"
            )
    texts = [
        f"{label}{describe_merging() if label == 'TorchFold' else ''} on {workload}"
        f" ({', '.join(where)})"
        for (label, workload), where in places.items()
    ]
    return "; ".join(texts) or "no framework"


def describe_merging() -> str:
    """Say that TorchFold merges equal vertices, and how fast the engine is if it does so, too."""
    rows = frame(FIRST_CPU)
    all_vertices = rows[(rows.status == "ok") & (rows["model.options.variant"] == "cavs")]
    speedups = ratios(all_vertices, "vertex_shared")
    speedup = speedups[speedups.system == "torchfold"].ratio.median()
    return (
        " (merges subtrees of equal words; `vertex_shared`, merging leaves, is about"
        f" {speedup:.1f} times as fast)"
    )


def describe_repeatability(folder: Path) -> str:
    """Tell by how much speedups over frameworks change between rounds of unchanged code."""
    rows = frame(folder)
    speedups = ratios(rows[rows.status == "ok"], "vertex")
    frameworks = {s.name for s in read_systems(CONF_DIR) if s.kind == "framework"} - {MANUAL}
    by_trial = speedups[speedups.system.isin(frameworks)].groupby("trial_id").ratio
    changes = (by_trial.max() / by_trial.min())[by_trial.count() > 1]
    middle, most = changes.quantile([0.5, 0.95])
    others = speedups[speedups.system != "vertex"]
    halves = others.groupby(["trial_id", others["round"] >= FIRST_LATER]).ratio.median()
    earlier, later = (halves.xs(is_later, level=1) for is_later in (False, True))
    starts = pd.to_datetime(rows.started_at).groupby(rows["round"] >= FIRST_LATER).median()
    gap_min = (starts[True] - starts[False]).total_seconds() / 60
    moved = np.exp(np.log(later / earlier).abs()).dropna()
    return (
        f"Between single rounds, speedups over frameworks changed by a factor of {middle:.2f} in"
        f" the median, and by more than {most:.2f} in one of 20 ({len(changes)} systems and"
        f" workloads). Medians of the first three rounds and of the last three, about"
        f" {gap_min:.0f} minutes later, differ by {moved.median():.2f} in the median and by at most"
        f" {moved.max():.2f} ({len(moved)} speedups, with those over C++ by hand and one over"
        " `vertex_shared`)."
    )


def build_strategies(rows: pd.DataFrame) -> str:
    """Tabulate the engine's speedup over each strategy, bold if 1 is not possible."""
    names = rows.label.map(shorten)
    columns = sorted(set(names), key=str.lower)
    bold = find_certain(rows).map({True: "**", False: ""})
    marks = rows.speedup_warnings.astype(bool).map({True: DAGGER, False: ""})
    texts = rows.assign(
        strategy=pd.Categorical(names, columns),
        text=bold + rows.speedup.map("{:.2f}".format) + marks + bold,
    )
    table = pivot_numbers(texts, {"workload": "workload"}, ["strategy"], lambda row: str(row.text))
    return "\n".join(to_pipes(table))


@cache
def judge_claims() -> pd.DataFrame:
    """Return a row for each claim that committed records decide, in the order of conf/claims."""
    experiments = [load_results_of("claims", folder) for folder in CLAIMS]
    judged = pd.DataFrame(
        [
            judge(claim, experiment)[0]
            for claim in experiments[0].claims
            for experiment in experiments
        ]
    )
    return judged[judged.verdict != NOT_MEASURABLE].drop_duplicates("claim")


def describe_claims() -> str:
    """Count the verdicts on claims that a CPU can decide."""
    rows = judge_claims()
    n, is_count = rows.verdict.value_counts(), rows.quantity.isin([*COUNTED, BATCHES])
    parts = [f"{n[verdict]} {verdict}" for verdict in (*VERDICTS[::-1], NOT_SHOWN) if verdict in n]
    n_counts = int((is_count & (rows.verdict == VERDICTS[-1])).sum())
    parts[0] += f" ({n_counts} are counts)"
    return (
        f"Of {n.sum()} decidable on a CPU (DyNet's; ED-Batch's, by a preset): {', '.join(parts)}"
        " ([table](docs/results.md#claims-of-the-papers))."
    )


def build_claims() -> str:
    """Tabulate claims with their numbers and verdicts."""
    rows = judge_claims()
    ends = rows[["value", "low", "high"]].where(rows.low != rows.high, other=rows[["value"]])
    ends["warnings"] = rows.warnings
    cells = {
        "paper": rows.paper.str.partition(",")[0] + ", " + rows.location.str.partition(",")[0],
        "claimed": rows.published,
        "measured": [format_ratio(*row) for row in ends.itertuples(index=False)],
        "rule": rows.rule,
        "verdict": rows.verdict,
    }
    table = pd.DataFrame(cells).set_index(rows.text.rename("claim"))
    return "\n".join(to_pipes(table))


def build_parts() -> dict[MarkedPage, str]:
    first, *others = (select_answers(load_answers(cpu)) for cpu in CPUS.values())
    return {
        MarkedPage(README, "write_results", "answer"): build_bullets(
            first, dict(zip(NAMES[1:], others, strict=True))
        ),
        MarkedPage(README, "write_results", "table"): build_table(select_smallest(first)),
        **{
            MarkedPage(RESULTS, "write_results", name): build_table(rows)
            for name, rows in zip(NAMES, (first, *others), strict=True)
        },
        MarkedPage(RESULTS, "write_results", "strategies"): build_strategies(load_strategies()),
        MarkedPage(RESULTS, "write_results", "repeatability"): describe_repeatability(FIRST_CPU),
        MarkedPage(RESULTS, "write_results", "claims"): build_claims(),
    }


def write_pictures() -> None:
    """Draw the forest plot of the first CPU, and the heat map of strategies."""
    answers, strategies = load_answers(FIRST_CPU), load_strategies()
    forest, heat = draw_forest(answers, band=BETWEEN_RUNS), draw_heat(strategies)
    page.add_title(forest, FOREST_TITLE)
    page.add_caption(forest, describe_forest(answers, BETWEEN_RUNS, CONDITIONS))
    page.add_title(heat, HEAT_TITLE)
    page.add_caption(heat, describe_heat(strategies, CONDITIONS))
    for path, figure in zip(PICTURES, (forest, heat), strict=True):
        save_figure(figure, path)
        replace_whole(path, shrink_picture(path, PIXELS)[0])


def main() -> None:
    for part, text in build_parts().items():
        part.write(text)
    write_pictures()


if __name__ == "__main__":
    main()
