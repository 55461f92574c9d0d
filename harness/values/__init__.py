"""Inputs, graphs and schedules: immutable values that are validated when built."""
