"""Backends that execute plans, one directory each."""
