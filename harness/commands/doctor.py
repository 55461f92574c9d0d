"""`bench-doctor`: systems that this machine can run, its noise, and how far to trust its ratios."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from statistics import median

from dynbatch.harness.contracts.model import find_model_class
from dynbatch.harness.engine.cpu_kernels.libraries import describe_libraries
from dynbatch.harness.machine.facts import Machine, describe_machine, has_cuda_device
from dynbatch.harness.machine.folders import make_temporary_folder
from dynbatch.harness.machine.noise import Finding, check_noise
from dynbatch.harness.measuring.block import BlockEntry, measure_block
from dynbatch.harness.measuring.probe import Availability, check_systems, group_by_adapter
from dynbatch.harness.measuring.processes.fork_server import ForkServers
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.kinds import SystemFile, read_systems
from dynbatch.harness.planning.yaml_files import find_datasets, list_choices, read_mapping
from dynbatch.harness.records.record import Record
from dynbatch.harness.records.turns import collect_turn_seconds, compute_ratio
from dynbatch.harness.terminal.exit_handling import OneLineParser, make_command
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.values.paths import CONF_DIR

NO_CUDA = "no NVIDIA device is visible"
FIRST_MODEL = "tree_lstm"
ITSELF = {
    **{"system": "vertex", "model": "tree_lstm", "dataset": "sst_synthetic"},
    **{"batch_size": 16, "hidden_size": 64, "timing.n_mini_batches": 4, "timing.precision": 0.004},
}
SECONDS_OF_ITSELF = 1.5  # of timed work for each side; a repetition also starts two processes
TRUSTED = 0.01  # largest deviation of the engine from itself
_SMALL = {"batch_size": 1, "hidden_size": 8, "mode": "infer"}


@make_command("bench-doctor")
def main(typed: list[str]) -> int:
    """Run `bench-doctor`.

    Returns:
        0 whatever the findings are, 1 for wrong input, 2 for an internal error.
    """
    parser = OneLineParser(prog="bench-doctor", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    show = to_json if parser.parse_args(typed).json else to_text
    show_step("starting every system, which takes about a minute")
    answers = check_all_systems()
    machine = describe_machine()
    matmuls = Finding("matmuls", *describe_libraries())
    show_step("measuring noise, then the engine against itself, for about 20 seconds")
    disturbance = [*check_noise(machine), judge_against_itself(measure_against_itself())]
    print(show(machine, answers, disturbance, matmuls))
    return 0


def show_step(text: str) -> None:
    """Print progress where it does not mix with the result."""
    print(f"bench-doctor: {text}", file=sys.stderr)


def check_all_systems() -> list[Availability]:
    """Check every system on every device, in one process per adapter."""
    composer = Composer()
    devices = ("cpu", "cuda") if has_cuda_device() else ("cpu",)
    pairs = product(read_systems(CONF_DIR), devices)
    specs = [_build_small_trial(system, device, composer) for system, device in pairs]
    answers = [answer for alike in group_by_adapter(specs) for answer in check_systems(alike)]
    if "cuda" not in devices:
        names = dict.fromkeys(answer.system for answer in answers)
        answers += [Availability(name, "cuda", NO_CUDA) for name in names]
    return answers


def _build_small_trial(system: SystemFile, device: str, composer: Composer) -> TrialSpec:
    """Build a small trial of a model that the system runs, on generated data if possible."""
    models = [FIRST_MODEL, *list_choices("model")]
    model = next((name for name in models if system.can_run(name)), FIRST_MODEL)
    module = read_mapping(CONF_DIR / "model" / f"{model}.yaml")["model"]
    fitting = find_datasets(find_model_class(module))
    generated = [name for name in fitting if name.endswith("_synthetic")]
    chosen = {"system": system.name, "model": model, "dataset": (generated or fitting)[0]}
    return composer.resolve_trial({**chosen, "device": device, **_SMALL})


def measure_against_itself(n_repetitions: int = 3) -> list[float]:
    """Measure the engine against itself; return the ratio of each repetition, 1 in truth."""
    spec = Composer().resolve_trial({**ITSELF, "timing.min_seconds": SECONDS_OF_ITSELF})
    ratios = []
    with make_temporary_folder() as folder, ForkServers() as servers:
        for repetition in range(n_repetitions):
            entries = [
                BlockEntry(spec.replace_round(n), folder / f"{n}.json", folder / f"{n}.log")
                for n in (2 * repetition, 2 * repetition + 1)  # two rounds: processes differ
            ]
            sides = [
                collect_turn_seconds(outcome.passes_s, outcome.turns)
                for outcome in measure_block(entries, servers)
                if isinstance(outcome, Record) and outcome.status == "ok"
            ]
            if len(sides) == 2 and (ratio := compute_ratio(*sides)) is not None:
                ratios.append(ratio)
    return ratios


def judge_against_itself(ratios: Sequence[float]) -> Finding:
    """Judge whether ratios on this machine can be trusted to 1 %."""
    if not ratios:
        reason = "the engine cannot be measured; run bench for the reason"
        return Finding("A/A ratio", "none", reason)
    low, high = min(ratios), max(ratios)
    value = f"{median(ratios):.3f} ({low:.3f} to {high:.3f}), engine against itself"
    is_close = max(high - 1, 1 - low) <= TRUSTED
    advice = "differences of a few percent are noise here; stop other processes, set more rounds"
    return Finding("A/A ratio", value, "" if is_close else advice)


def to_json(
    machine: Machine,
    answers: Sequence[Availability],
    findings: Sequence[Finding],
    matmuls: Finding,
) -> str:
    """Return all findings as JSON; `matmuls` is the engine's matmul library on a CPU."""
    content = {
        "machine": machine.to_dict(),
        "matmuls": asdict(matmuls),
        "systems": [asdict(answer) for answer in answers],
        "disturbance": [asdict(finding) for finding in findings],
        "quiet": not any(finding.advice for finding in findings),
    }
    return json.dumps(content, indent=1)


def to_text(
    machine: Machine,
    answers: Sequence[Availability],
    findings: Sequence[Finding],
    matmuls: Finding,
) -> str:
    """Return all findings as text; `matmuls` is the engine's matmul library on a CPU."""
    gpus = ", ".join(f"{gpu.name} (driver {gpu.driver})" for gpu in machine.gpus) or "none"
    lines = [
        "Machine",
        f"  CPU     {machine.cpu}, {machine.n_cores} cores, {len(machine.usable_cpus)} CPUs usable",
        f"  memory  {machine.memory_bytes / 2**30:.1f} GiB",
        f"  GPU     {gpus}",
        "",
        "Engine",
        _format_finding(matmuls),
        "",
        "Systems",
    ]
    width = max(len(answer.system) for answer in answers)
    for answer in answers:
        if answer.reason == NO_CUDA:
            continue  # true for all systems, printed once below
        verdict = "runs" if answer.reason is None else f"no: {answer.reason}"
        lines.append(f"  {answer.system:{width}}  {answer.device:4}  {verdict}")
    if any(answer.reason == NO_CUDA for answer in answers):
        lines.append(f"  {'all':{width}}  cuda  no: {NO_CUDA}")
    lines += ["", "Quiet enough to measure?"]
    lines += [_format_finding(finding) for finding in findings]
    disturbed = any(finding.advice for finding in findings)
    return "\n".join([*lines, "  no, see the advice above" if disturbed else "  yes"])


def _format_finding(finding: Finding) -> str:
    advice = f"  <- {finding.advice}" if finding.advice else ""
    return f"  {finding.name:12} {finding.value}{advice}"


if __name__ == "__main__":
    sys.exit(main())
