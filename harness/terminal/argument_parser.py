"""The argument parser of the small commands."""

from __future__ import annotations

import argparse
from typing import NoReturn

from harness.errors import ConfigError


class OneLineParser(argparse.ArgumentParser):
    """A wrong command line is one line and exit code 1, as every other error of the user."""

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError instead of printing the usage and leaving with exit code 2."""
        raise ConfigError(f"{message}; see `{self.prog} --help`")
