"""This machine: facts, disturbance, memory, what is kept between processes."""
