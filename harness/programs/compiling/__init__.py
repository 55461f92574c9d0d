"""Programs that wait, as machine code: written by a subclass of the compiler's own writer."""
