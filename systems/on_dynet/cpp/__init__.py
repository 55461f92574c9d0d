"""DyNet through its C++ interface: a small library builds graphs from arrays."""
