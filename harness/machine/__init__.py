"""This machine: facts, disturbance, memory, compiled code."""
