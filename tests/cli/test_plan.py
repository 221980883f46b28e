# SPDX-License-Identifier: Apache-2.0
"""penstock plan: what it prints, its JSON, its picture, and what it refuses. Speeds are never compared with the clock: what is
asserted holds between numbers of one plan."""
import json
import xml.etree.ElementTree as ElementTree

import pytest

CROP = "decode | random_resized_crop(32) | hflip | normalize(imagenet)"
QUICK = ("--seconds", 0.1)
FORMS = {"encoded", "decoded", "augmented"}


@pytest.fixture(scope="module")
def plan(penstock):
    """plan(data, ...) with --json."""

    def run(data, *args, pipeline=CROP, cache="4M"):
        return json.loads(penstock("plan", data, "--pipeline", pipeline, "--cache", cache, *QUICK, "--json", *args).out)

    return run


def check_point(point, jobs):
    assert set(point["share"]) == FORMS and sum(point["share"].values()) <= 1 + 1e-9
    assert sum(point["from"].values()) + point["from_disk"] + point["from_source"] == pytest.approx(1)
    assert len(point["job_samples_per_s"]) == jobs
    assert sum(point["job_samples_per_s"]) == pytest.approx(point["samples_per_s"], rel=1e-6)
    assert 0 < point["samples_per_s"] <= point["capacity_per_s"] * (1 + 1e-6) and point["first_epoch_samples_per_s"] > 0
    assert point["limit"] in ("cores", "source", "memory", "consumers", "disk tier")
    assert 0 < point["preparations_per_delivery"] <= 1


def test_json_holds_inputs_winner_corners_and_what_would_help(plan, photos):
    found = plan(photos, "--paper")
    inputs = found["inputs"]
    assert plan(photos, "--cores", 3)["inputs"]["cores"] == 3
    assert inputs["samples"] == 48 and inputs["measured"] > 0 and inputs["bad"] == 0 and inputs["jobs"] == 1
    assert inputs["cache_bytes"] == 4 << 20 and inputs["source"] in ("cold", "warm")
    sizes = [path.stat().st_size for path in photos.rglob("*.jpg")]
    assert inputs["bytes"]["encoded"] == pytest.approx(sum(sizes) / len(sizes), rel=0.4)
    assert 32 * 32 * 3 < inputs["bytes"]["augmented"] < 32 * 32 * 3 + 1024
    assert inputs["out_bytes"] == 32 * 32 * 3 * 4
    for key in ("read_s", "crop_s", "full_s", "augment_s", "finish_s", "source_bytes_s", "memory_bytes_s"):
        assert inputs[key] > 0, key
    for point in (found["best"], *found["corners"].values(), found["no_cache"], found["paper"]["by_our_count"]):
        check_point(point, 1)
        assert point["capacity_per_s"] <= found["best"]["capacity_per_s"] * (1 + 1e-6)
    for form in FORMS:
        assert found["corners"][form]["share"] == {name: name == form for name in FORMS}
    assert set(found["corners"]) == FORMS and not any(found["no_cache"]["share"].values())
    assert found["no_cache"]["from_source"] == pytest.approx(1)
    # The published equations know no sharing: they keep augmented samples for one job, too, which has no use for any.
    assert found["paper"]["by_our_count"]["share"]["augmented"] > 0.5 and found["best"]["share"]["augmented"] == 0
    assert found["worth"]["cpu"] + found["worth"]["source"] == pytest.approx(1)
    assert set(found["more"]) == {"cache_bytes", "cache_gain", "cores", "cores_gain", "source_times", "source_gain"}
    assert min(found["more"][key] for key in ("cache_gain", "cores_gain", "source_gain")) > -1e-3


def test_a_disk_tier_is_planned_for(penstock, plan, photos, tmp_path):
    slow = "decode | delay(2) | random_resized_crop(32) | hflip"
    found = plan(photos, "--disk", f"{tmp_path / 'tier'}:64M", pipeline=slow, cache="0")
    disk = found["inputs"]["disk"]
    assert disk["bytes"] == 64 << 20 and disk["form"] == "decoded" and disk["entry_bytes"] % 4096 == 0
    check_point(found["no_cache"], 1)
    assert found["no_cache"]["from_disk"] == pytest.approx(1) and found["no_cache"]["source_s"] == 0
    half = plan(photos, "--disk", f"{tmp_path / 'tier'}:1M", pipeline=slow, cache="0")
    fits = (1 << 20) / half["inputs"]["disk"]["entry_bytes"] / 48
    assert half["no_cache"]["from_disk"] == pytest.approx(min(1, fits))
    assert list(tmp_path.iterdir()) == []
    text = penstock("plan", photos, "--pipeline", slow, "--cache", "4M", *QUICK, "--disk", f"{tmp_path / 'tier'}:64M").out
    assert "disk tier, getting a sample back" in text and "of them fit" in text and "disk tier 100.0 %" not in text
    wrong = penstock("plan", photos, "--pipeline", slow, "--cache", "4M", "--disk", "nowhere", check=False)
    assert wrong.code != 0 and "DIR:BYTES" in wrong.err


def test_one_job_gets_no_augmented_entries_and_several_do(plan, photos):
    alone, four = plan(photos, "--source-rate", "100G"), plan(photos, "--jobs", 4, "--source-rate", "100G")
    assert alone["best"]["share"]["augmented"] == 0 and alone["best"]["preparations_per_delivery"] == 1
    assert four["best"]["share"]["augmented"] > 0 and four["best"]["preparations_per_delivery"] < 0.5
    check_point(four["best"], 4)


def test_a_slow_source_makes_encoded_bytes_worth_keeping(plan, photos):
    slow = plan(photos, "--source-rate", "10K", cache="1M")
    assert slow["best"]["limit"] == "source" and slow["inputs"]["source"] == "given"
    assert slow["worth"]["source"] == pytest.approx(1) and slow["best"]["share"]["encoded"] > 0.9
    assert slow["more"]["source_gain"] > 0.5 and abs(slow["more"]["cores_gain"]) < 1e-3 and slow["more"]["cache_gain"] > 0.1
    fast = plan(photos, "--source-rate", "100G", cache="1M")
    tier = plan(photos, "--source-rate", "10K", "--remote-rate", "50K", cache="0")
    assert tier["best"]["limit"] == "remote tier" and tier["best"]["from_remote"] == 1
    assert tier["best"]["samples_per_s"] == pytest.approx(50e3 / tier["inputs"]["bytes"]["decoded"], rel=0.05)
    assert fast["best"]["limit"] in ("cores", "memory") and fast["worth"]["source"] == 0


def test_consumers_bound_what_jobs_get(plan, photos):
    found = plan(photos, "--consumer-rate", "1,2,3.5")
    assert found["inputs"]["jobs"] == 3 and found["inputs"]["consumer"] == [1, 2, 3.5]
    assert found["best"]["job_samples_per_s"] == pytest.approx([1, 2, 3.5]) and found["best"]["limit"] == "consumers"
    same = plan(photos, "--consumer-rate", 2, "--jobs", 2)
    assert same["best"]["job_samples_per_s"] == pytest.approx([2, 2])


def test_a_pipeline_without_randomness_keeps_what_is_delivered(plan, photos):
    found = plan(photos, "--source-rate", "100G", pipeline="decode | resize(40) | center_crop(32)", cache="1M")
    assert found["inputs"]["bytes"]["decoded"] < 32 * 32 * 3 + 1024
    assert found["best"]["from"]["decoded"] == pytest.approx(1)


def test_text_names_everything(penstock, photos):
    out = penstock("plan", photos, "--pipeline", CROP, "--cache", "1M", "--jobs", 2, "--paper", *QUICK).out
    for words in ("decoded to augmented", "source", "best:", "all encoded", "all augmented", "no cache", "what would help",
                  "1.0 MiB more cache", "2 cores more", "Seneca's equations", "preparations per delivery"):
        assert words in out, words


def test_svg_is_well_formed_and_labelled(penstock, photos, tmp_path):
    path = tmp_path / "splits.svg"
    penstock("plan", photos, "--pipeline", CROP, "--cache", "1M", "--jobs", 2, "--svg", path, *QUICK)
    root = ElementTree.parse(path).getroot()
    name = "{http://www.w3.org/2000/svg}"
    assert root.tag == name + "svg"
    cells = root.findall(name + "polygon")
    assert len(cells) == 41 * 42 // 2 and all(cell.find(name + "title").text for cell in cells)
    words = " ".join(element.text for element in root.iter(name + "text"))
    for word in ("all encoded", "all decoded", "all augmented", "samples/s", "best:", "1.0 MiB", "2 jobs"):
        assert word in words, word
    # One colour means that nothing was drawn.
    assert len({cell.get("fill") for cell in cells}) > 10


def test_no_cache_is_a_plan_too(plan, photos):
    found = plan(photos, cache=0)
    assert found["best"]["samples_per_s"] == pytest.approx(found["no_cache"]["samples_per_s"])
    assert found["best"]["from_source"] == pytest.approx(1)


def test_bad_samples_are_counted_and_data_without_good_ones_is_refused(penstock, plan, photo, tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "broken.jpg").write_text("no picture\n")
    done = penstock("plan", tmp_path, "--pipeline", CROP, "--cache", "1M", *QUICK, check=False)
    assert done.code == 1 and "could be prepared" in done.err
    (folder / "good.jpg").write_bytes(photo.read_bytes())
    found = plan(tmp_path)
    assert found["inputs"]["bad"] > 0 and found["inputs"]["measured"] > found["inputs"]["bad"]


@pytest.mark.parametrize("args, word", [
    ((), "--pipeline"),
    (("--pipeline", CROP), "--cache"),
    (("--pipeline", CROP, "--cache", "much"), "much"),
    (("--pipeline", CROP, "--cache", "1M", "--jobs", "65"), "65"),
    (("--pipeline", CROP, "--cache", "1M", "--consumer-rate", "fast"), "fast"),
    (("--pipeline", CROP, "--cache", "1M", "--consumer-rate", "-3"), "-3"),
    (("--pipeline", CROP, "--cache", "1M", "--consumer-rate", ""), "empty"),
    (("--pipeline", CROP, "--cache", "1M", "--consumer-rate", "1,2", "--jobs", "3"), "3 jobs"),
    (("--pipeline", CROP, "--cache", "1M", "--cores", "-1"), "-1"),
    (("--pipeline", CROP, "--cache", "1M", "--seconds", "0"), "0"),
])
def test_wrong_arguments_are_named(penstock, photos, args, word):
    done = penstock("plan", photos, *args, check=False)
    assert done.code == 2 and word in done.err and not done.out


def test_a_wrong_pipeline_and_an_impossible_picture_are_said_first(penstock, photos, tmp_path):
    done = penstock("plan", photos, "--pipeline", "decode | rezize(3)", "--cache", "1M", check=False)
    assert done.code == 1 and "resize" in done.err
    done = penstock("plan", photos, "--pipeline", CROP, "--cache", "1M", "--svg", tmp_path / "no" / "x.svg", check=False)
    assert done.code == 1 and "x.svg" in done.err
