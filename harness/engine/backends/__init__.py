"""Ways to execute plans, a folder each."""
