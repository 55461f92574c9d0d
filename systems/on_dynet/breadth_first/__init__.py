"""Models in DyNet whose branches inside one instance go on together, by hand; a file each."""
