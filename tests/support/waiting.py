"""Program that only waits to be ended."""

import time

time.sleep(600)
