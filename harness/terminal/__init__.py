"""Command lines and what is printed while trials run."""
