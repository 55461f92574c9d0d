"""One trial: parent, worker process, clock, passes, check."""
