"""`bench`: measure one trial, a sweep (-m), or the grid of a paper artefact (experiment=NAME)."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

from harness.errors import BenchError
from harness.planning.admit import admit
from harness.terminal.command_line import parse, plan
from harness.terminal.measurement import complain, measure_all

USAGE, FAULT, INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when every trial left a record, 1 for wrong input, 2 for a fault of the harness."""
    typed = sys.argv[1:] if arguments is None else list(arguments)
    try:
        planned = plan(parse(typed), typed)
        for one in planned:
            admit(one.spec)
        return 0 if measure_all(planned) else USAGE
    except BenchError as error:
        complain(error)
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has seen enough, as in `bench --help | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception:
        traceback.print_exc()
        print("bench: a fault of the harness; please report the lines above", file=sys.stderr)
        return FAULT


if __name__ == "__main__":
    sys.exit(main())
