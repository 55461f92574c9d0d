"""Machine: facts, noise, memory, regular files, directories and caches."""
