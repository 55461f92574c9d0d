"""Networks in JAX, with one module for trees and one for sentences, and their common parts."""
