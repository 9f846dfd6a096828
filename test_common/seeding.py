"""Sets every random number generator that a model may draw from."""

import random


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and Torch.

    Args:
        seed: any non-negative integer below 2**32.
    """
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
