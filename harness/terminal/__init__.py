"""Command-line parsing, exit handling and progress output."""
