"""The campaign of injected faults: is nothing lost, and nothing wrong, whatever goes wrong?

    python -m scripts.campaign                            # all of it, an hour or more on 2 cores
    python -m scripts.campaign --only kills --share 0.1   # a tenth of one class
    python -m scripts.campaign --minutes 9                # stops in time; the same call goes on

What was done is kept in results/campaign/, a file for each seed. docs/faults.md says what is
promised, and --write puts the table of this campaign there.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from harness.values.places import ROOT
from scripts.campaign_parts.case import HARMLESS, found_classes
from scripts.campaign_parts.done import Done, State
from scripts.campaign_parts.running import Plan, run_cases
from scripts.campaign_parts.table import as_plain, facts_now, is_clean, markdown
from scripts.marked_page import MarkedPage

PAGE = MarkedPage(ROOT / "docs" / "faults.md", "campaign")
FOLDER = ROOT / "results" / "campaign"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when all cases ran and kept what is promised, 1 otherwise."""
    flags = _parser().parse_args(arguments)
    # A shell starts what it puts in the background with SIGINT ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    every = found_classes()
    classes = {name: kind for name, kind in every.items() if name in (flags.only or every)}
    state = State(flags.folder / f"seed-{flags.seed}.jsonl")
    if flags.again:
        state.forget()
    plan = Plan(flags.seed, flags.share, time.monotonic() + flags.minutes * 60)
    found = run_cases(classes, plan, state, tell)
    n_wanted = {name: len(cases) for name, cases in plan.cases(classes).items()}
    facts = facts_now(flags.seed, flags.share, n_wanted)
    table = markdown(found, facts)
    plain = json.dumps(as_plain(found, facts), indent=1)
    flags.folder.mkdir(parents=True, exist_ok=True)
    (flags.folder / f"seed-{flags.seed}.json").write_text(plain, encoding="utf-8")
    if flags.write:
        PAGE.write(table)
    print(table)
    return int(not is_clean(found, n_wanted))


def tell(done: Done) -> None:
    """Say at once what broke a promise."""
    if done.outcome.verdict not in HARMLESS:
        case, outcome = done.case, done.outcome
        what = json.dumps(done.case.does, ensure_ascii=False)[:300]
        where = f"{case.case_class} {case.number}"
        print(f"{where}: {outcome.verdict}: {outcome.words}  {what}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="another seed is another campaign")
    parser.add_argument("--minutes", type=float, default=math.inf, help="no case begins later")
    parser.add_argument("--only", nargs="+", choices=list(found_classes()), metavar="CLASS")
    parser.add_argument("--share", type=_share, default=1.0, help="of the cases of each class")
    parser.add_argument("--again", action="store_true", help="forget what was done with this seed")
    parser.add_argument("--write", action="store_true", help="put the table into docs/faults.md")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where state and JSON are kept")
    return parser


def _share(text: str) -> float:
    share = float(text)
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 1")
    return share


if __name__ == "__main__":
    sys.exit(main())
