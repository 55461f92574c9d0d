"""Write the results in README.md and docs/results.md.

All results come from committed records.

python -m scripts.write_results
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.claim_points import BATCHES
from dynbatch.harness.planning.kinds import read_systems
from dynbatch.harness.records.cross_check import cross_check_records
from dynbatch.harness.records.numbers import RATIO, numbers, ratios
from dynbatch.harness.records.tidy import build_frame
from dynbatch.harness.values.paths import CONF_DIR, ROOT
from dynbatch.plots.tables.answers import (
    KEYS,
    WORKLOAD,
    evaluate_answers,
    find_certain,
    format_speeds,
    format_speedups,
    select_answers,
)
from dynbatch.plots.tables.cells import COUNTED, DAGGER, EN_DASH, format_ratio, pivot_numbers
from dynbatch.plots.tables.claims import NOT_SHOWN, VERDICTS
from dynbatch.plots.write import to_pipes
from scripts.reference_results import (
    BETWEEN_RUNS,
    CPUS,
    FIRST_CPU,
    GPU,
    GPU_NAME,
    MANUAL,
    OPENBLAS,
    compare_by_openblas,
    compare_graph_work,
    compare_merging,
    compare_with_learned,
    judge_claims,
    load_answers,
    load_results_of,
    load_strategies,
    load_workloads,
    read_reference,
    select_policies,
)
from scripts.write_pages import MarkedPage

APART = (range(3), range(6, 9))  # rounds on FIRST_CPU, hours apart
MANY, PAIRS = range(9), range(19, 22)  # rounds in blocks of up to ten systems, and of two
README, RESULTS = ROOT / "README.md", ROOT / "docs" / "results.md"
POLICY = ROOT / "docs" / "critical_share.md"
FORM = "{:,.0f}".format  # of instances per second


def build_table(rows: pd.DataFrame) -> str:
    """Return a row per workload: engine, fastest framework and speedups, bold if they are clear."""
    rows = rows.set_index("workload")
    cells = pd.DataFrame(
        {
            "hidden": rows.hidden_size.astype(str).to_list(),
            "engine, instances/s": format_speeds(rows.value, rows.warnings, FORM),
            "fastest framework": rows.label_framework.fillna(EN_DASH),
            "its instances/s": format_speeds(rows.value_framework, rows.warnings_framework, FORM),
            "speedup over it": mark_clear(rows, "framework"),
            "speedup over C++": mark_clear(rows, "manual"),
        }
    )
    return "\n".join(to_pipes(cells))


def mark_clear(rows: pd.DataFrame, side: str) -> pd.Series[str]:
    """Format the speedups over one side, in bold if the whole interval is beyond BETWEEN_RUNS."""
    texts, (is_faster, is_slower) = format_speedups(rows, side), find_clear(rows, side)
    return texts.mask(is_faster | is_slower, "**" + texts + "**")


def find_clear(rows: pd.DataFrame, side: str) -> tuple[pd.Series[bool], pd.Series[bool]]:
    """Return on which workloads the engine is clearly faster, and clearly slower."""
    low, high = rows[f"speedup_low_{side}"], rows[f"speedup_high_{side}"]
    return low > BETWEEN_RUNS, high < 1 / BETWEEN_RUNS


def select_smallest(rows: pd.DataFrame) -> pd.DataFrame:
    """Select each kind of network's workload with the smallest speedup over frameworks.

    The largest comes first.
    """
    rows = rows.sort_values("speedup_framework", kind="stable")
    kinds = rows.experiment.str.removesuffix("_inference")
    return rows[~kinds.duplicated()][::-1]


def build_bullets(cpus: Mapping[str, pd.DataFrame]) -> str:
    """Summarize the results in five bullets and a line on other machines, all from the records.

    Args:
        cpus: see plots.tables.answers.select_answers, for each of CPUS.
    """
    rows, xeon, zen4 = cpus.values()
    medians = load_strategies().groupby("label").speedup.median()
    close = medians[medians.sub(1).abs() < 0.03].sort_values()
    slower = medians.drop(close.index).sort_values()
    clearly = f"clearly (beyond a factor of {BETWEEN_RUNS}, more than unchanged code drifts)"
    return "\n".join(
        [
            "- **Strategies.** On one engine, with equal kernels (second figure),"
            f" {join_names('ours (`vertex`)', *close.index)} tie in the median; ours is"
            f" {format_slower_strategies(slower)}. None is fastest everywhere; factors below"
            f" {BETWEEN_RUNS} may be reversed elsewhere.",
            "- **Why.** [Granularity, fusion](docs/glossary.md) and layout matter more than"
            " [policy](docs/critical_share.md) (which batch next): DyNet's agenda instead of ours"
            f" multiplies training time by {describe_policies()}.",
            f"- **Frameworks.** The engine is {describe_median(rows, 'framework')} as the fastest"
            f" one: {clearly} faster on {describe_counts(rows, 'framework')}. Its interval is"
            f" below 1 only against {describe_slower(rows)}"
            " ([why](docs/results.md#where-the-engine-is-slower)).",
            f"- **C++ by hand** (`{MANUAL}`). {describe_median(rows, 'manual')}: clearly faster on"
            f" {describe_counts(rows, 'manual')}, slightly slower (interval below 1) on"
            f" {count_slightly_slower(rows)}.",
            f"- **Claims of the papers.** {describe_claims()}",
            "",
            "One Zen 5 core (strategies: one Zen 4 core); intervals over"
            f" {format_rounds(rows.speedup_n_rounds_framework)} rounds (strategies:"
            f" {format_rounds(load_strategies().speedup_n_rounds)}; policies: smallest to largest"
            " of three). [Other CPUs](docs/results.md#where-the-engine-is-slower): over frameworks"
            f" {format_span(xeon.speedup_framework)} (Xeon) and"
            f" {format_span(zen4.speedup_framework)} (Zen 4), over C++"
            f" {format_span(xeon.speedup_manual)} (C++ clearly faster on"
            f" {count_clearly_slower(xeon) or 'none'}) and"
            f" {format_span(zen4.speedup_manual)}."
            f" {describe_gpu(evaluate_answers(load_results_of('answers', GPU)))}",
        ]
    )


def describe_median(rows: pd.DataFrame, side: str) -> str:
    """Return the range and the median of the speedups over one side."""
    speedups = rows[f"speedup_{side}"]
    return f"{format_span(speedups)} (median {speedups.median():.2f}) times as fast"


def describe_counts(rows: pd.DataFrame, side: str) -> str:
    """Count the workloads on which the engine is clearly faster, and clearly slower."""
    n_faster, n_slower = (is_clear.sum() for is_clear in find_clear(rows, side))
    n = rows[f"speedup_{side}"].notna().sum()
    return f"{n_faster} of {n} workloads, clearly slower on {n_slower or 'none'}"


def count_slightly_slower(rows: pd.DataFrame) -> int:
    """Count the workloads on which C++ is faster by the whole interval, but not clearly."""
    return int((rows.speedup_high_manual < 1).sum()) - count_clearly_slower(rows)


def count_clearly_slower(rows: pd.DataFrame) -> int:
    """Count the workloads on which C++ is clearly faster."""
    return int(find_clear(rows, "manual")[1].sum())


def describe_openblas() -> str:
    """Tell which part of the engine's lead comes from the library for matmuls."""
    rows = load_workloads()
    own = ratios(rows[rows.system == OPENBLAS], rows[rows.is_engine], WORKLOAD)
    times, speedups = numbers(own, KEYS, RATIO).value, compare_by_openblas()
    return (
        "Part of the lead comes from the library for matmuls. With OpenBLAS, which DyNet uses"
        f" here, the engine takes {format_span(times)} times as long (median"
        f" {times.median():.2f}), and is {format_span(speedups)} times (median"
        f" {speedups.median():.2f}) as fast as the fastest framework."
    )


def describe_graph_work() -> str:
    """Tell why C++ by hand is faster where it is, however slightly."""
    rows = select_answers(load_answers(FIRST_CPU))
    slower = rows[rows.speedup_high_manual < 1]
    work = compare_graph_work().merge(slower[WORKLOAD])
    spans = {name: format_span(work[name], 1) for name in ("percent", "percent_manual")}
    return (
        f"C++ by hand is faster, however slightly, on {len(work)} workloads. There, the engine"
        f" takes {spans['percent']} % of its time to build graphs and choose batches, which a"
        f" program for one model has less of ({spans['percent_manual']} %). Without it on both"
        f" sides, the engine would take {format_span(work.quotient)} times the time of C++."
    )


def format_span(values: pd.Series[float], n_digits: int = 2) -> str:
    """Format the smallest and the largest value."""
    return f"{values.min():.{n_digits}f} to {values.max():.{n_digits}f}"


def format_rounds(counts: pd.Series[float]) -> str:
    """Format the smallest and the largest number of rounds."""
    ends = sorted({int(counts.min()), int(counts.max())})
    return " to ".join(map(str, ends))


def describe_gpu(answers: pd.DataFrame) -> str:
    """Return the speedup of each workload that a GPU has measured, and the frameworks."""
    parts = [
        f"{row.speedup:.1f}{DAGGER * bool(row.speedup_warnings)} ({row.workload})"
        for row in answers[answers.is_fastest_baseline].itertuples()
    ]
    is_baseline = ~answers.is_engine & (answers.speedup_status == "ok")
    frameworks = sorted(answers.framework[is_baseline].unique())
    return (
        f"[{GPU_NAME}](docs/gpu.md) (three rounds): {' and '.join(parts)} times as fast as the"
        f" fastest of {' and '.join(frameworks)} (neither compiled nor in CUDA graphs; JAX and"
        " TensorFlow have no results)."
    )


def join_names(first: str, *labels: str) -> str:
    """Return "ours, A's and B's" for the labels of strategies."""
    names = [first, *(f"{shorten(label)}'s" for label in labels)]
    return ", ".join(names[:-1]) + f" and {names[-1]}"


def format_slower_strategies(medians: pd.Series[float]) -> str:
    """Return "1.05 times as fast as A's, 1.20 B's", in ascending order; the last with its range."""
    parts = [f"{value:.2f} {shorten(str(label))}'s" for label, value in medians.items()]
    rows = load_strategies()
    slowest = rows.speedup[rows.label == medians.index[-1]]
    parts[-1] = parts[-1].replace(" ", f" (by workload {format_span(slowest)}) ", 1)
    return ", ".join(parts).replace(" ", " times as fast as ", 1)


def shorten(label: str) -> str:
    """Return the name of a strategy without the word "strategy"."""
    return label.removesuffix(" strategy")


def describe_policies() -> str:
    """Compare the times of DyNet's agenda and of our policy, with equal kernels, in training."""
    ours, agenda = select_policies("policies_timed_vertices")
    cells, operators = (
        numbers(ratios(theirs, own, ["model"]), ["model"], RATIO).value
        for own, theirs in ((ours, agenda), select_policies("policies_timed_operators"))
    )
    return (
        f"{format_span(cells)} on {len(cells)} models by cells, {format_span(operators)} on"
        f" {len(operators)} by operators"
    )


def build_slower(cpus: Mapping[str, pd.DataFrame]) -> str:
    """List for each CPU where frameworks are faster than the engine, and how often C++ is."""
    return "\n".join(
        f"- {name}: {describe_slower(rows)}. C++ by hand {describe_faster_manual(rows)} of"
        f" {rows.speedup_manual.notna().sum()} workloads."
        for name, rows in cpus.items()
    )


def describe_faster_manual(rows: pd.DataFrame) -> str:
    if rows.speedup_high_manual.isna().all():  # one round has no interval
        return f"on {(rows.speedup_manual < 1).sum()}"
    return (
        f"clearly on {count_clearly_slower(rows) or 'none'}, slightly on"
        f" {count_slightly_slower(rows)}"
    )


def describe_slower(rows: pd.DataFrame) -> str:
    """Name the frameworks against which the whole interval of the speedup is below 1.

    A single round has no interval.
    """
    high = rows.speedup_high_framework.fillna(rows.speedup_framework)
    texts = [
        f"{row.label_framework} on {row.workload} ({row.speedup_framework:.2f}"
        f"{DAGGER * bool(row.speedup_warnings_framework)})"
        for row in rows[high < 1].sort_values("speedup_framework").itertuples()
    ]
    return ", ".join(texts) or "no framework"


def describe_fair_merging() -> str:
    """Return the speedups over TorchFold, with their intervals, if both merge or neither does."""
    merging, plain = (
        format_ratio(row.value, row.low, row.high, row.warnings)
        for row in compare_merging().itertuples()
    )
    return (
        "Where TorchFold is faster, only it merges equal vertices. Speedups over it if the engine"
        f" merges them, too (`vertex_shared`), and if neither does (`torchfold_unshared`):"
        f" {merging} and {plain}."
    )


def describe_repeatability() -> str:
    """Tell by how much speedups over frameworks change between rounds of unchanged code."""
    shown = {*load_workloads().trial_id}
    records = cross_check_records(read_reference(FIRST_CPU).records)
    rows = build_frame(record for record in records if record.trial_id in shown)
    rows = rows[rows.status == "ok"]
    speedups = ratios(rows, "vertex")
    speedups = speedups[speedups.is_paired]
    frameworks = {s.name for s in read_systems(CONF_DIR) if s.kind == "framework"} - {MANUAL}
    by_trial = speedups[speedups.system.isin(frameworks)].groupby("trial_id").ratio
    changes = (by_trial.max() / by_trial.min())[by_trial.count() > 1]
    middle, most = changes.quantile([0.5, 0.95])
    others = speedups[speedups.system != "vertex"]
    earlier, later = (
        others[others["round"].isin(part)].groupby("trial_id").ratio.median() for part in APART
    )
    first, last = (
        pd.to_datetime(rows.started_at[rows["round"].isin(part)]).median() for part in APART
    )
    gap_h = (last - first).total_seconds() / 3600
    moved = np.exp(np.log(later / earlier).abs()).dropna()
    many, pairs = (others[others["round"].isin(part)].groupby("trial_id") for part in (MANY, PAIRS))
    by_block = pairs.ratio.median() / many.ratio.median()
    by_block = by_block[(pairs.ratio.count() == len(PAIRS)) & (many.ratio.count() == len(MANY))]
    if by_block.empty:
        raise ConfigError(f"{FIRST_CPU} has no rounds {PAIRS}; measure them, or adapt PAIRS")
    return (
        f"Between single rounds, speedups over frameworks changed by a factor of {middle:.2f} in"
        f" the median, and by more than {most:.2f} in one of 20 ({len(changes)} systems and"
        f" workloads). Medians of the first three rounds and of the seventh to ninth, about"
        f" {gap_h:.0f} hours later, differ by {moved.median():.2f} in the median, by more than"
        f" {moved.quantile(0.95):.2f} in one of 20, and by at most {moved.max():.2f}"
        f" ({len(moved)} speedups, with those over C++ by hand, strategies and variants of the"
        " engine). In three later rounds, the engine and one framework were alone in a block:"
        f" speedups are {format_span(by_block)} times those of the first nine rounds, in blocks of"
        f" up to ten systems (median {by_block.median():.2f}, {len(by_block)} speedups)."
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


def describe_claims() -> str:
    """Count the verdicts on claims that a CPU can decide."""
    rows = judge_claims()
    n, is_count = rows.verdict.value_counts(), rows.quantity.isin([*COUNTED, BATCHES])
    parts = [f"{n[verdict]} {verdict}" for verdict in (*VERDICTS[::-1], NOT_SHOWN) if verdict in n]
    n_counts = int((is_count & (rows.verdict == VERDICTS[-1])).sum())
    parts[0] += f" ({n_counts} are counts)"
    return (
        f"Of {n.sum()} (DyNet's and ED-Batch's) that a CPU decides: {', '.join(parts)}"
        " ([table](docs/results.md#claims-of-the-papers))."
    )


def describe_learned() -> str:
    """Compare this project's policy with ED-Batch's learned ones."""
    rows = compare_with_learned()
    difference = rows.n_batches - rows.n_fewest
    models = ", ".join(rows.model[difference > 0].map("`{}`".format).unique())
    return (
        f"On {len(rows)} graphs ({(rows.granularity == 'vertex').sum()} of cells, of these"
        f" {(rows.model == 'tree_lstm_2type').sum()} two-type trees with several seeds of types;"
        " the others of single operators), compared with the best of all learned state machines"
        " and seeds, `critical_share` needs fewer batches on"
        f" {(difference < 0).sum()}, equally many on {(difference == 0).sum()}, and more on"
        f" {(difference > 0).sum()} ({models}; at most {int(difference.max())} more)."
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
    cpus = {name: select_answers(load_answers(folder)) for name, folder in CPUS.items()}
    smallest = select_smallest(cpus["AMD Zen 5"])
    return {
        MarkedPage(README, "write_results", "answer"): build_bullets(cpus),
        MarkedPage(README, "write_results", "table"): build_table(smallest),
        **{
            MarkedPage(RESULTS, "write_results", name): build_table(rows)
            for name, rows in cpus.items()
        },
        MarkedPage(RESULTS, "write_results", "strategies"): build_strategies(load_strategies()),
        MarkedPage(RESULTS, "write_results", "repeatability"): describe_repeatability(),
        MarkedPage(RESULTS, "write_results", "openblas"): describe_openblas(),
        MarkedPage(RESULTS, "write_results", "slower"): build_slower(cpus),
        MarkedPage(RESULTS, "write_results", "merging"): describe_fair_merging(),
        MarkedPage(RESULTS, "write_results", "graph work"): describe_graph_work(),
        MarkedPage(RESULTS, "write_results", "claims"): build_claims(),
        MarkedPage(POLICY, "write_results", "learned"): describe_learned(),
    }


def main() -> None:
    for part, text in build_parts().items():
        part.write(text)


if __name__ == "__main__":
    main()
