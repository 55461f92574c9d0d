"""Frameworks and ways to use them, one adapter each."""
