"""Building blocks of policies: ready lists, levels, bounds, segments."""
