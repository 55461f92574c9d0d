"""Measurement of one trial: parent and worker processes, clock, passes and checks."""
