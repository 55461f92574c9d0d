"""What stands in a recorder's log: one list of numbers, entry behind entry.

A call of a block is its kind, FIRST_KIND and on, then its operands, and then its numbers (see
harness.programs.call_text). All else that counts is an event:

    RESUME fiber            what follows is of this fiber
    FORK first n            it goes on as the n fibers from `first` on, and waits for them; what
                            follows is of `first`
    END parent              it ends, and `parent` is at least as deep
    PHASE                   its next phase begins
    GHOSTS n                n blocks that are not there
    ROUND                   what follows is of the next round
    OPEN, BRANCH, CLOSE     branches that wait for nothing: before them, behind each, behind all
    CHAIN kind n first ...  n calls, each on what the one before returned; for each of the kind's
                            numbers those of all calls
"""

from __future__ import annotations

RESUME, FORK, END, PHASE, GHOSTS, ROUND, OPEN, BRANCH, CLOSE, CHAIN = range(10)
FIRST_KIND = 10
NO_NUMBER = -1  # where a call gives none
