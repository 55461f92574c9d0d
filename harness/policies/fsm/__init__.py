"""ED-Batch's state machines: states, learning, files."""
