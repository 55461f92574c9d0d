"""From conf/ and what was typed to trials and counts."""
