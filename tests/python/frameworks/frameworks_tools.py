# SPDX-License-Identifier: Apache-2.0
"""What the tests with real frameworks share."""

import os
import socket
import subprocess
import sys

from torchvision import datasets, transforms


def folder(root):
    steps = [transforms.Resize(20), transforms.CenterCrop(16), transforms.ToTensor()]
    return datasets.ImageFolder(str(root), transforms.Compose(steps))


def labels_of(loader):
    return [label for _, labels in loader for label in labels.tolist()]


def torchrun(ranks, words):
    """Runs a program as so many ranks on this machine; 0 ranks: as it is. It must end well."""
    if ranks:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        launch = ["-m", "torch.distributed.run", f"--nproc_per_node={ranks}", f"--master_port={port}"]
        words = [*launch, "--master_addr=127.0.0.1", *words]
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), OMP_NUM_THREADS="1")
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
