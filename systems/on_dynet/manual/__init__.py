"""Models in DyNet, batched by hand over the sentences of a mini-batch; one file per model."""
