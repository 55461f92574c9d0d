"""Bricks of the sequence models: rows, LSTMs by hand and fused, output layers."""
