"""A real photo for tests of corruptions."""

from __future__ import annotations

from functools import cache

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_image


@cache
def photo(height: int = 224, width: int = 224) -> np.ndarray:
    """The middle of scikit-learn's photograph of a Chinese temple."""
    image = Image.fromarray(load_sample_image("china.jpg")).crop((100, 0, 527, 427))
    return np.array(image.resize((width, height), Image.Resampling.LANCZOS))
