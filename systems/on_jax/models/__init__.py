"""Networks in JAX, a module for trees and one for sentences, and what they are made of."""
