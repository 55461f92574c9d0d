"""Networks, one a file, free of any framework."""
