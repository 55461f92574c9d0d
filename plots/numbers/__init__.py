"""Numbers to be shown: points, series, panels, tables as values."""
