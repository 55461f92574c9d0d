"""The engine beside DyNet by batch and hidden size, beside other peers, and on two threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.contracts.system import PHASES
from scripts.kept_runs.run import (
    Run,
    Workload,
    gain_words,
    head,
    memory_mib,
    phase_words,
    row,
    speed_words,
)

ENGINE, PYTHON, CPP = "vertex", "dynet", "dynet_cpp"
NAMES = {"tree_lstm": "Tree-LSTM", "lattice_lstm": "Lattice-LSTM"}
MODES = {"train": "training", "infer": "inference"}
OTHER_PEERS = {"jax_scan": "JAX", "torch_levels": "PyTorch"}
TOLD_BY_PHASE = (
    Workload("tree_lstm", "train", 64, 1),
    Workload("tree_lstm", "train", 256, 64),
    Workload("tree_lstm", "infer", 128, 64),
)
LARGE = (Workload("tree_lstm", "train", 256, 64), Workload("tree_lstm", "train", 256, 256))


def tables(run: Run) -> str:
    """All of the page, as Markdown."""
    parts = (_over_dynet, _over_others, _threads, _share, _phases, _memory)
    return "\n\n".join("\n".join(part(run)) for part in parts) + "\n"


def _order(workload: Workload) -> tuple[bool, bool, int, int]:
    """Trees first, training first, large states first, small mini-batches first."""
    is_lattice, infers = workload.model != "tree_lstm", workload.mode == "infer"
    return is_lattice, infers, -workload.hidden_size, workload.batch_size


def _of_one_thread(run: Run) -> Iterator[Workload]:
    yield from sorted((one for one in run if one.threads == 1), key=_order)


def _words(workload: Workload) -> str:
    what = f"{NAMES[workload.model]} {MODES[workload.mode]}"
    return f"{what}, hidden {workload.hidden_size}, batch {workload.batch_size}"


def _over_dynet(run: Run) -> Sequence[str]:
    columns = ("engine", "DyNet (Python)", "DyNet (C++)", "over Python's", "over C++")
    lines = head("what", *columns)
    for workload in _of_one_thread(run):
        ours, python, cpp = (run[workload][name] for name in (ENGINE, PYTHON, CPP))
        gains = (f"**{gain_words(ours, python)}**", gain_words(ours, cpp))
        lines.append(row(_words(workload), *map(speed_words, (ours, python, cpp)), *gains))
    return lines


def _over_others(run: Run) -> Sequence[str]:
    lines = head("other peers", "engine", "peer", "engine over it")
    for workload in _of_one_thread(run):
        for name, label in OTHER_PEERS.items():
            if peer := run[workload].get(name):
                ours, what = run[workload][ENGINE], f"{_words(workload)}: {label} (`{name}`)"
                gain = f"**{gain_words(ours, peer)}**"
                lines.append(row(what, speed_words(ours), speed_words(peer), gain))
    return lines


def _threads(run: Run) -> Sequence[str]:
    columns = ("two threads", "two over one", "`torch_levels`, two threads", "engine over it")
    lines = head("what", "one thread", *columns)
    for workload in sorted((one for one in run if one.threads == 2), key=_order):
        one, two = run[workload._replace(threads=1)][ENGINE], run[workload][ENGINE]
        peer = run[workload]["torch_levels"]
        gains = (f"**{gain_words(two, one)}**", f"**{gain_words(two, peer)}**")
        first, second, third = map(speed_words, (one, two, peer))
        lines.append(row(_words(workload), first, second, gains[0], third, gains[1]))
    return lines


def _share(run: Run) -> Sequence[str]:
    workload = LARGE[0]
    share = gain_words(run[workload][ENGINE], run[workload]["products"])
    return (
        "Of the rate at which this core multiplies the same matrices (`system=products`), the"
        f" engine reaches {share} in {_words(workload)}, everything included.",
    )


def _phases(run: Run) -> Sequence[str]:
    names = ("construct", "schedule and layout", "forward", "backward", "update")
    lines = head("a mini-batch, ms", *names)
    for workload in TOLD_BY_PHASE:
        for name in (ENGINE, PYTHON, CPP):
            rounds = run[workload][name]
            told = (phase_words(rounds, (phase,), n_decimals=3) for phase in PHASES)
            lines.append(row(f"{_words(workload)}: `{name}`", *told))
    return lines


def _memory(run: Run) -> Sequence[str]:
    told = ", ".join(
        f"`{name}` {' / '.join(str(memory_mib(run[one][name])) for one in LARGE)}"
        for name in (ENGINE, PYTHON, CPP)
    )
    sizes = " / ".join(str(one.batch_size) for one in LARGE)
    return (f"Peak memory of the process in training, hidden 256, batch {sizes}, MiB: {told}.",)
