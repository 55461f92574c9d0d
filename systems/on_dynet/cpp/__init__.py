"""DyNet through its C++ interface: graphs built from arrays by a small library."""
