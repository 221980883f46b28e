# SPDX-License-Identifier: Apache-2.0
"""These tests need torch; no process of theirs may outlive them."""

import gc
import multiprocessing

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def leaves_nothing():
    yield
    gc.collect()
    assert not multiprocessing.active_children()
