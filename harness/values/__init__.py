"""Inputs, graphs, schedules: values that check themselves."""
