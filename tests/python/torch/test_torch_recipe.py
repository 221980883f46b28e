# SPDX-License-Identifier: Apache-2.0
"""A reference recipe runs with the import line changed."""

import pytest
import recipe
import torch
import torch.utils.data

RECIPES = [
    [],
    ["--repeated"],
    ["--mix", "--workers", "0"],
    ["--auto", "ta_wide", "--erase", "0.5", "--mix", "--repeated"],
]


@pytest.mark.parametrize("extra", RECIPES, ids=" ".join)
def test_recipe_runs(photos, extra, capsys):
    train, test = recipe.main([str(photos), *extra])
    assert capsys.readouterr().out.count("epoch") == 2
    assert type(train).__module__ == "penstock.torch._loader"
    assert test.stats()["path"] == "native"
    if "--auto" not in extra:
        assert train.stats()["path"] == "native", train.explain()


def test_recipe_runs_with_torchs_own_loader(photos):
    """The script itself is fair: it runs with torch's loader too."""
    train, _ = recipe.main([str(photos), "--loader", "torch.utils.data", "--mix", "--repeated"])
    assert type(train) is torch.utils.data.DataLoader
