# SPDX-License-Identifier: Apache-2.0
"""The drop-in front: ``from penstock.torch import DataLoader`` instead of ``from torch.utils.data import DataLoader``.

Every argument of torch's DataLoader has the same meaning and place. What Penstock can do natively (photos in an
ImageFolder through torchvision's transforms) it does in its own threads; everything else runs as the user wrote it.
``loader.explain()`` says which is which. This subpackage needs torch; ``import penstock`` does not.
"""

from ._accelerate import prepare
from ._detection import detection_collate
from ._loader import DataLoader

__all__ = ["DataLoader", "detection_collate", "prepare"]
