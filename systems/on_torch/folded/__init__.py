"""Models as modules that torchfold applies: a method for each kind of node, a file each."""
