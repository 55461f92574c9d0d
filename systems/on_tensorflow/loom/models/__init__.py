"""Models as looms: their type shapes, their cells as batched ops, and what is done with outputs."""
