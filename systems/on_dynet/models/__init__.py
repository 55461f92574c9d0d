"""Models in DyNet, a file each."""
