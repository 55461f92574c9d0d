"""TensorFlow 2: sentences unrolled and in loops, Fold re-implemented, and one tree at a time."""

import os
import sys

from systems.on_tensorflow.without_jax import WithoutJax

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read once, when TensorFlow is imported
sys.meta_path.insert(0, WithoutJax)
