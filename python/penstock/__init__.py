# SPDX-License-Identifier: Apache-2.0
"""Penstock feeds training samples to GPUs.

    import penstock
    loader = penstock.Loader("photos/", "decode | random_resized_crop(224) | hflip | normalize(imagenet)", 64)
    for x, y in loader:
        ...

Batches are numpy arrays over the engine's own memory, or torch tensors with ``device=``: no copy is made, and an array keeps its
batch alive. Importing this package needs neither numpy nor torch.
"""

from . import ops
from ._batch import Batch
from ._dataset import Dataset, Field
from ._loader import Loader, merge_states
from ._penstock import (
    CODES,
    DataError,
    Engine,
    Error,
    PipelineError,
    SettingError,
    StateError,
    datasets,
    evict,
    pull,
    settings,
    version,
)
from ._pipeline import Pipeline, check_pipeline, python

__version__ = version()

__all__ = [
    "Batch",
    "CODES",
    "DataError",
    "Dataset",
    "Engine",
    "Error",
    "Field",
    "Loader",
    "Pipeline",
    "PipelineError",
    "SettingError",
    "StateError",
    "check_pipeline",
    "datasets",
    "evict",
    "merge_states",
    "ops",
    "pull",
    "python",
    "settings",
]
