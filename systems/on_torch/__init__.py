"""PyTorch systems: eager, manually batched, with its fused LSTM, compiled, and TorchFold."""
