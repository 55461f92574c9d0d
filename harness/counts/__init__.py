"""Batch counts of policies: requests, counting and records."""
