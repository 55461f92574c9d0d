"""`bench-doctor`: what this machine can run, what it cannot and why, and whether it is quiet."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from harness.errors import BenchError
from harness.machine.facts import Machine, describe_machine, has_cuda_device
from harness.machine.quiet import Finding, look_for_disturbance
from harness.measuring.launch import worker_environment
from harness.planning.compose import Composer, choices_of
from harness.planning.resolve import spec_of
from harness.terminal.argument_parser import OneLineParser
from harness.trials.spec import TrialSpec

PROBE_TIMEOUT_S = 120
_SMALL = ("batch_size=1", "hidden_size=8", "dataset=sst_synthetic")


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether a system runs on a device here; reason is None where it does."""

    system: str
    device: str
    reason: str | None


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the findings; 0 unless the configuration itself is broken."""
    parser = OneLineParser(prog="bench-doctor", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    try:
        options = parser.parse_args(arguments)
        answers = ask_all()
    except BenchError as error:
        print(f"bench-doctor: {error}", file=sys.stderr)
        return 1
    machine = describe_machine()
    findings = look_for_disturbance(machine)
    show = to_json if options.json else to_text
    print(show(machine, answers, findings))
    return 0


def ask_all() -> list[Answer]:
    """Ask every system about every device, one process per adapter, without importing any here."""
    composer = Composer()
    devices = ("cpu", "cuda") if has_cuda_device() else ("cpu",)
    by_adapter: dict[str, list[TrialSpec]] = {}
    for system in choices_of("system"):
        for device in devices:
            overrides = [f"system={system}", f"device={device}", *_SMALL]
            spec = spec_of(composer.compose(overrides))
            by_adapter.setdefault(spec.adapter, []).append(spec)
    answers = [answer for specs in by_adapter.values() for answer in ask(specs)]
    if "cuda" not in devices:
        names = dict.fromkeys(answer.system for answer in answers)
        answers += [Answer(name, "cuda", "no NVIDIA device is visible") for name in names]
    return answers


def ask(specs: Sequence[TrialSpec]) -> list[Answer]:
    """Ask the systems of one adapter in a process of their own."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "harness.measuring.probe"],
            input=json.dumps([spec.to_dict() for spec in specs]),
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            env=worker_environment(specs[0]),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _all(specs, f"its import takes more than {PROBE_TIMEOUT_S} s")
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        return _all(specs, f"its import fails: {lines[-1] if lines else done.returncode}")
    reasons = json.loads(done.stdout.splitlines()[-1])
    return [Answer(s.system, s.device, r) for s, r in zip(specs, reasons, strict=True)]


def _all(specs: Sequence[TrialSpec], reason: str) -> list[Answer]:
    return [Answer(spec.system, spec.device, reason) for spec in specs]


def to_json(machine: Machine, answers: Sequence[Answer], findings: Sequence[Finding]) -> str:
    """All findings for other programs."""
    quiet = not any(finding.advice for finding in findings)
    content = {
        "machine": machine.to_dict(),
        "systems": [asdict(answer) for answer in answers],
        "disturbance": [asdict(finding) for finding in findings],
        "quiet": quiet,
    }
    return json.dumps(content, indent=1)


def to_text(machine: Machine, answers: Sequence[Answer], findings: Sequence[Finding]) -> str:
    """All findings for people."""
    gpus = ", ".join(f"{gpu.name} (driver {gpu.driver})" for gpu in machine.gpus) or "none"
    lines = [
        "Machine",
        f"  CPU     {machine.cpu}, {machine.n_cores} cores, {len(machine.usable_cpus)} CPUs usable",
        f"  memory  {machine.memory_bytes / 2**30:.1f} GiB",
        f"  GPU     {gpus}",
        "",
        "Systems",
    ]
    width = max(len(answer.system) for answer in answers)
    for answer in answers:
        verdict = "runs" if answer.reason is None else f"no: {answer.reason}"
        lines.append(f"  {answer.system:{width}}  {answer.device:4}  {verdict}")
    lines += ["", "Quiet enough to measure?"]
    for finding in findings:
        advice = f"  <- {finding.advice}" if finding.advice else ""
        lines.append(f"  {finding.name:12} {finding.value}{advice}")
    disturbed = any(finding.advice for finding in findings)
    return "\n".join([*lines, "  no, see the advice above" if disturbed else "  yes"])


if __name__ == "__main__":
    sys.exit(main())
