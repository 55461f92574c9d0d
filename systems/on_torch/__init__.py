"""PyTorch, as written first and batched by hand."""
