"""Processes of workers: start, contain, supervise and end them."""
