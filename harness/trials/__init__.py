"""Trials: settings, inputs, and the hash of the measured code."""
