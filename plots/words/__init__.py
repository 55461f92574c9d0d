"""Titles, notes and cells in words."""
