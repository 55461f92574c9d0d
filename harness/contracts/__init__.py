"""Contracts of policies, models, systems and datasets, and their lookup by name."""
