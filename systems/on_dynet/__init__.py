"""Real DyNet, from its wheel or its source."""
