"""Networks in JAX, a file for each model, named as the model."""
