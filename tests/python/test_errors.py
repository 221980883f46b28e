# SPDX-License-Identifier: Apache-2.0
"""What is raised for what, and what it says."""

import re

import penstock
import pytest
from conftest import CROP
from test_loader import ids_of

WHOLE = "decode | resize(20) | center_crop(16)"


def damage(folder, name: str = "bee/002.jpg"):
    path = folder / name
    path.write_bytes(path.read_bytes()[:300])
    return path


def test_a_typo_in_the_pipeline_names_the_word(photos):
    with pytest.raises(penstock.PipelineError) as caught:
        penstock.Loader(photos, "decode | random_rezised_crop(16)", 8)
    error = caught.value
    assert isinstance(error, ValueError) and isinstance(error, penstock.Error)
    assert error.code == penstock.CODES["EPIPELINE"] and error.offset == 9
    assert "random_rezised_crop" in str(error) and "random_resized_crop" in str(error)
    with pytest.raises(penstock.PipelineError):
        penstock.check_pipeline("decode | hflop")


def test_a_missing_path_is_a_data_error(tmp_path):
    with pytest.raises(penstock.DataError, match="nowhere"):
        penstock.Dataset(tmp_path / "nowhere")


def test_an_empty_folder_is_a_data_error(tmp_path):
    with pytest.raises(penstock.DataError):
        penstock.Dataset(tmp_path)


def test_a_damaged_sample_raises_with_its_place(own_photos):
    damage(own_photos)
    loader = penstock.Loader(own_photos, WHOLE, 4, shuffle=False)
    with pytest.raises(penstock.DataError) as caught:
        list(loader)
    error = caught.value
    assert error.code == penstock.CODES["ECORRUPT"] and error.stage == "decode"
    assert error.key.endswith("bee/002.jpg") and error.id == 7
    assert "bee/002.jpg" in str(error)


def test_skip_passes_over_damaged_samples_and_lists_them(own_photos):
    damage(own_photos)
    loader = penstock.Loader(own_photos, WHOLE, 4, on_error="skip:1", epochs=1)
    assert sorted(ids_of(loader)) == [i for i in range(15) if i != 7]
    (bad,) = loader.engine.bad()
    assert isinstance(bad, penstock.DataError) and bad.id == 7 and bad.key.endswith("bee/002.jpg")
    assert loader.stats()["skipped"] == 1


def test_more_bad_samples_than_allowed_raise(own_photos):
    damage(own_photos)
    damage(own_photos, "cat/000.jpg")
    with pytest.raises(penstock.DataError) as caught:
        list(penstock.Loader(own_photos, WHOLE, 4, on_error="skip:1"))
    assert caught.value.code == penstock.CODES["ETOOMANYBAD"]


@pytest.mark.parametrize(
    "options",
    [
        dict(on_error="ignore"),
        dict(on_error="skip"),
        dict(on_error="skip:-1"),
        dict(on_error="raise:3"),
        dict(rank=2, world=2),
        dict(rank=-1),
        dict(repeat=0),
        dict(run=0),
        dict(run=4, shuffle=False),
        dict(sampler="random"),
        dict(sampler="weighted"),
        dict(weights=[1.0], sampler="shuffle"),
        dict(weights=[1.0]),
        dict(sampler=[1, 2], subset=[1]),
        dict(drop_last=True, ends="pad"),
        dict(order="fast"),
        dict(ends="never"),
        dict(workers=-1),
        dict(memory=1),
    ],
    ids=repr,
)
def test_wrong_settings_are_value_errors(photos, options):
    with pytest.raises(ValueError):
        penstock.Loader(photos, CROP, 8, **options)


def test_wrong_batch_sizes_are_value_errors(photos):
    for size in (0, -1, 2**30):
        with pytest.raises(ValueError):
            penstock.Loader(photos, CROP, size)


def test_numbers_out_of_range_and_of_wrong_type_are_refused(photos):
    for seed in (-1, 2**64):
        with pytest.raises(penstock.SettingError, match=f"seed={seed} is out of range"):
            penstock.Loader(photos, CROP, 8, seed=seed)
    with pytest.raises(penstock.SettingError, match="epoch=-1"):
        penstock.Loader(photos, CROP, 8).set_epoch(-1)
    for wrong in (dict(seed=1.5), dict(epochs="two"), dict(sampler=[1.5]), dict(engine=3)):
        with pytest.raises(TypeError):
            penstock.Loader(photos, CROP, 8, **wrong)


def test_arguments_of_another_kind_are_named(photos):
    for data in (None, [1, 2], 3):
        with pytest.raises(TypeError, match="data is a path or an object"):
            penstock.Loader(data, CROP, 8)
    for pipeline in (None, 3, ["decode", 3]):
        with pytest.raises(TypeError, match="a pipeline is a text"):
            penstock.Loader(photos, pipeline, 8)
    with pytest.raises(TypeError, match="batch_size='8' is not a whole number"):
        penstock.Loader(photos, CROP, "8")
    with pytest.raises(penstock.SettingError, match="batch_size=1099511627776"):
        penstock.Loader(photos, CROP, 2**40)


def test_what_the_users_functions_raise_names_the_sample(photos):
    def transform(sample):
        raise ValueError("mine")

    for options, note in (
        ({"transform": transform}, r"in transform= of sample 0 \(ant/000.jpg\)"),
        ({"collate": transform}, r"in collate= of samples \[0, 1, 2, 3\]"),
    ):
        with pytest.raises(ValueError, match="mine") as caught:
            next(iter(penstock.Loader(photos, CROP, 4, shuffle=False, **options)))
        assert any(re.fullmatch(note, line) for line in caught.value.__notes__)


def test_ids_outside_the_dataset_are_refused(photos):
    for ids in ([0, 60], [-1]):
        with pytest.raises(penstock.Error):
            penstock.Loader(photos, CROP, 2, sampler=ids)


def test_unknown_splits_and_fields_are_refused(photos):
    with pytest.raises(penstock.Error, match="test"):
        penstock.Loader(photos, CROP, 8, split="test")
    with pytest.raises(penstock.Error, match="mask"):
        penstock.Loader(photos, CROP, 8, fields="image,mask")


def test_workers_beside_an_engine_are_refused(photos):
    with penstock.Engine(workers=1) as engine, pytest.raises(penstock.SettingError):
        penstock.Loader(photos, CROP, 8, engine=engine, workers=2)


def test_an_error_made_by_hand_has_every_attribute():
    error = penstock.DataError("by hand")
    assert (error.code, error.stage, error.key, error.offset, error.id) == (0, "", "", None, None)


def test_reading_what_is_not_there(photos):
    data = penstock.Dataset(photos)
    for id, field in ((60, "image"), (-1, "image"), (0, "mask")):
        with pytest.raises(penstock.Error):
            data.read(id, field)
