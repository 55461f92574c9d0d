"""PyTorch: as written first, batched by hand, and with its own fused LSTM."""
