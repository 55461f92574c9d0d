"""Real DyNet, wheel or source build."""
