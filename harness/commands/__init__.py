"""What is typed: one command a file, which calls what lies below."""
