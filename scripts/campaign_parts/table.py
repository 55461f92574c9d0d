"""What a campaign found: classes by verdicts, as Markdown and as JSON."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness.machine.facts import describe_machine
from scripts.campaign_parts.case import HARMLESS, VERDICTS
from scripts.campaign_parts.done import Done

Found = Mapping[str, Sequence[Done]]


@dataclass(frozen=True, slots=True)
class Facts:
    """When and where a campaign ran, and how much of it was wanted."""

    date: str
    machine: str
    seed: int
    share: float
    n_wanted: Mapping[str, int]

    @property
    def line(self) -> str:
        """All of them in one line."""
        how_much = f"seed {self.seed}, share {self.share:g}: {sum(self.n_wanted.values())} cases"
        return f"{self.date}, {self.machine}, {how_much}."


def facts_now(seed: int, share: float, n_wanted: Mapping[str, int]) -> Facts:
    """The facts of a campaign that ends now."""
    here = describe_machine()
    machine = f"{here.cpu}, {len(here.usable_cpus)} CPUs, {here.memory_bytes / 2**30:.0f} GiB"
    return Facts(datetime.date.today().isoformat(), machine, seed, share, n_wanted)


def is_clean(found: Found, n_wanted: Mapping[str, int]) -> bool:
    """Whether every wanted case ran, and none broke a promise."""
    verdicts = {one.outcome.verdict for cases in found.values() for one in cases}
    all_ran = all(len(found.get(name, ())) == n for name, n in n_wanted.items())
    return all_ran and verdicts <= set(HARMLESS)


def markdown(found: Found, facts: Facts) -> str:
    """A row a class, with a column for each verdict that was given."""
    every = [one for cases in found.values() for one in cases]
    counts = {name: _counts(cases) for name, cases in found.items()}
    given = _counts(every)
    shown = [verdict for verdict in VERDICTS if verdict in given or verdict not in HARMLESS]
    shown = list(dict.fromkeys(("ok", *shown)))
    heads = ["class", "cases", *(verdict.replace("_", " ") for verdict in shown), "minutes"]
    rows = [
        _row(name, len(found[name]), facts.n_wanted[name], counts[name], shown, _minutes(cases))
        for name, cases in found.items()
    ]
    n_wanted = sum(facts.n_wanted.values())
    rows.append(_row("all", len(every), n_wanted, given, shown, _minutes(every)))
    lines = ["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows)]
    return "\n".join([facts.line, "", *lines])


def _counts(cases: Sequence[Done]) -> Counter[str]:
    return Counter(one.outcome.verdict for one in cases)


def _row(
    name: str, n: int, n_wanted: int, counts: Counter[str], shown: Sequence[str], minutes: str
) -> list[str]:
    ran = str(n) if n == n_wanted else f"{n} of {n_wanted}"
    return [name, ran, *(str(counts[verdict]) for verdict in shown), minutes]


def _minutes(cases: Sequence[Done]) -> str:
    return f"{sum(one.seconds for one in cases) / 60:.1f}"


def as_plain(found: Found, facts: Facts) -> dict[str, Any]:
    """Everything for a JSON file: the facts, counts, and each case that broke a promise."""
    bad = [
        asdict(one)
        for cases in found.values()
        for one in cases
        if one.outcome.verdict not in HARMLESS
    ]
    classes = {
        name: {
            "verdicts": dict(_counts(cases)),
            "seconds": sum(one.seconds for one in cases),
        }
        for name, cases in found.items()
    }
    return {**asdict(facts), "classes": classes, "broken": bad}
