"""PyTorch systems: eager, manually batched, with its fused LSTM, compiled, TorchFold and PyG."""
