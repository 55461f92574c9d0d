"""Assignment of vertices to rows of memory, and of gathers to views or copies; NumPy only."""
