# SPDX-License-Identifier: Apache-2.0
"""These tests need torch; nothing of theirs may outlive them."""

import gc
import multiprocessing
import os

import pytest

torch = pytest.importorskip("torch")


def shared_files():
    try:
        return set(os.listdir("/dev/shm"))
    except FileNotFoundError:
        return set()


@pytest.fixture(autouse=True)
def leaves_nothing():
    before = shared_files()
    yield
    gc.collect()
    assert not multiprocessing.active_children()
    assert not {name for name in shared_files() - before if not name.startswith(("torch_", "sem."))}
