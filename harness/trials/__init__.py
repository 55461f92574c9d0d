"""One trial: its settings, its inputs, its code's hash."""
