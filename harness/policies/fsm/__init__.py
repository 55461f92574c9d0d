"""State machines of ED-Batch: their states, learning and files."""
