"""Pictures with matplotlib: curves, bars, tables, graphs, state machines."""
