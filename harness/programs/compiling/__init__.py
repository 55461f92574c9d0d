"""Programs that wait, translated into compiled code that records them: see docs/programs.md."""
