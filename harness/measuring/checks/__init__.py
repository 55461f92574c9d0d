"""Checks of results, before and after timing, and of timed work."""
