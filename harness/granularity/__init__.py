"""Which graph is scheduled: vertices, operators, as released."""
