"""Programs that make a constant anew wherever they use it, which DyNet does not batch."""
