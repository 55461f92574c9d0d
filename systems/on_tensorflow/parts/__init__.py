"""What models in TensorFlow are built of: places of words, LSTM steps, the output layer."""
