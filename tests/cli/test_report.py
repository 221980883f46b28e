# SPDX-License-Identifier: Apache-2.0
"""penstock report: the page is whole, alone, and says what the runs say; names do no harm; other files are refused."""
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from conftest import CROP

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = "</title><script>alert(1)</script>\"'&amp;<img src=x onerror=alert(1)>\u202e\u0001"
FEED = {"samples": 1000, "seconds": 2.0, "samples_per_s": 512.25, "cpu_s": 1.5, "stall_share": 0.421, "wait_p50_us": 1500, "wait_p99_us": 9250,
        "encoded_hits": 100, "decoded_hits": 250, "augmented_hits": 50, "disk_hits": 0, "remote_hits": 0,
        "stages": [{"name": "read", "runs": 1000, "seconds": 0.25}, {"name": "decode", "runs": 1000, "seconds": 2.125}],
        "verdict": {"kind": "decode", "text": "decode-bound: 3 more cores would remove the stall"},
        "settings": {"pipeline": "decode | resize(224)", "workers": 2, "batch": 64}}


def page_of(path):
    """The page as XML, which it is beside being HTML: nothing is left open."""
    return ElementTree.fromstring(path.read_text().replace("<!DOCTYPE html>\n", "", 1))


def words(element):
    return " ".join("".join(element.itertext()).split())


def tables(page):
    """{heading: {run: [figures]}}"""
    found = {}
    for section in page.iter("section"):
        table = section.find("table")
        if table is not None:
            found[section.find("h2").text] = {row.find("th").text: [words(cell) for cell in row.iter("td")] for row in table.find("tbody")}
    return found


@pytest.fixture
def report(penstock, tmp_path):
    def run(*args, **runs):
        """report("--title", "x", a={...}): each run becomes a file."""
        paths = []
        for name, content in runs.items():
            paths.append(tmp_path / f"{name}.json")
            paths[-1].write_text(content if isinstance(content, str) else json.dumps(content))
        return penstock("report", *paths, "-o", tmp_path / "out", *args, check=False)

    return run


def test_figures_are_those_of_the_runs(report, tmp_path):
    second, third = {**FEED, "samples_per_s": 1024.75, "stall_share": 0.0}, {"samples_per_s": 12345.6}
    assert report(a=FEED, b=second, c=third).code == 0
    found = tables(page_of(tmp_path / "out"))
    assert found["samples a second"] == {"a.json": ["512.2"], "b.json": ["1025"], "c.json": ["12346"]}
    assert found["time that the consumer waited"] == {"a.json": ["42.1"], "b.json": ["0.0"]}
    assert found["CPU time per sample"]["a.json"] == ["1.500"]
    assert found["time per stage and sample"]["a.json"] == ["0.250", "2.125"]
    assert found["what samples began from"]["a.json"] == ["60.0", "10.0", "25.0", "5.0"]  # no tier gave any
    assert found["waits for a batch"]["a.json"] == ["1.500", "9.250"]
    assert found["Runs"]["b.json"] == ["b.json", "1000", "2", "64", "decode | resize(224)"]
    assert words(page_of(tmp_path / "out")).count("decode-bound: 3 more cores would remove the stall") == 2


def test_every_plot_has_a_title_a_description_and_a_table(report, tmp_path):
    report(a=FEED)
    page = page_of(tmp_path / "out")
    plots = list(page.iter("svg"))
    assert len(plots) == 6
    for section in page.iter("section"):
        for plot in section.iter("svg"):
            named = [element.get("id") for element in (plot.find("title"), plot.find("desc"))]
            assert plot.get("aria-labelledby").split() == named and plot.get("role") == "img"
            assert all(words(element) for element in (plot.find("title"), plot.find("desc"))) and section.find("table") is not None
    ids = [element.get("id") for element in page.iter() if element.get("id")]
    assert len(ids) == len(set(ids))


def test_it_stands_alone(report, tmp_path):
    report(a=FEED)
    text = (tmp_path / "out").read_text()
    assert not re.search(r"https?:|src=|href=|url\(|@import|<script|<link|<iframe", text)
    assert "prefers-color-scheme:dark" in text and "@media print" in text


def test_hostile_names_are_text(report, tmp_path):
    run = {**FEED, "verdict": HOSTILE, "settings": {"pipeline": HOSTILE}, "stages": [{"name": HOSTILE, "seconds": 1}]}
    table = {"table": {HOSTILE: {"samples_per_s": {"median": 1}, "what": HOSTILE}}, "pipeline": HOSTILE}
    assert report("--title", HOSTILE.replace("\u0001", ""), a=run, b=table).code == 0
    page = page_of(tmp_path / "out")
    shown = HOSTILE.replace("\u0001", "?")
    assert not list(page.iter("script")) and not list(page.iter("img"))
    assert shown in tables(page)["samples a second"]
    assert page.find(".//dd").text == shown and page.find(".//code").text == shown
    assert report("--svg", "stages", a=run).code == 0
    assert shown in words(ElementTree.parse(tmp_path / "out").getroot())
    assert report("--table", b=table).code == 0 and (tmp_path / "out").read_text().count("\n") == 3


@pytest.mark.parametrize("content, said", [
    ("", "is not JSON"), ("{", "is not JSON"), ("[]", "holds no run"), ("{}", "holds no run"), ('{"table": {}}', "holds no run"),
    ('{"results": []}', "holds no run"), ('{"results": [1]}', "has no rate"), ('{"samples_per_s": -1}', "has no rate"),
    ('{"samples_per_s": 1e999}', "not JSON"), ('{"table": {"a": 7}}', "has no rate"), ("[" * 100_000, "is not JSON"),
    ('{"table": {"a": {"samples_per_s": {"median": "many"}}}}', "has no rate"),
    (json.dumps({"results": [{"workers": 1, "samples_per_s": 1}] * 65}), "more than 64 runs")])
def test_other_files_are_refused(report, tmp_path, content, said):
    done = report(a=content)
    assert done.code == 1 and said in done.err and not (tmp_path / "out").exists()


def test_a_plot_that_no_run_has_is_told(report, tmp_path):
    done = report("--svg", "waits", a={"table": {"x": {"samples_per_s": {"median": 5}}}})
    assert done.code == 1 and "waits" in done.err and not (tmp_path / "out").exists()
    assert report("--svg", "pie", a=FEED).code == 2


def test_real_runs(penstock, feed, photos, tmp_path):
    done = feed(photos, "--cache", "64M", "--epochs", 2)
    (tmp_path / "feed.json").write_text(done.out)
    (tmp_path / "bench.json").write_text(penstock("bench", photos, "--seconds", 0.2, "--workers", 1, "--pipeline", CROP, "--json").out)
    penstock("report", tmp_path / "feed.json", tmp_path / "bench.json", "-o", tmp_path / "out")
    found = tables(page_of(tmp_path / "out"))
    assert [float(one) for one in found["samples a second"]["feed.json"]] == pytest.approx([done.report["samples_per_s"]], abs=0.6)
    assert set(found["time per stage and sample"]) == {"feed.json", "bench.json, 1 worker"}
    assert [float(one) for one in found["time per stage and sample"]["feed.json"]] == pytest.approx(
        [1e3 * stage["seconds"] / 96 for stage in done.report["stages"]], abs=6e-4)
    assert found["what samples began from"]["feed.json"][-1] == "%.1f" % (100 * done.report["decoded_hits"] / 96)


def test_the_readme_shows_what_was_measured(penstock, tmp_path):
    run = ROOT / "bench" / "results" / "train-resnet18-h200.json"
    penstock("report", run, "--svg", "throughput", "-o", tmp_path / "picture")
    assert (tmp_path / "picture").read_text() == (ROOT / "docs" / "throughput.svg").read_text()
    penstock("report", run, "--table", "-o", tmp_path / "table")
    assert (tmp_path / "table").read_text() in (ROOT / "README.md").read_text()


def test_training_has_the_gpu_beside_it(report, tmp_path):
    spread = {"median": 0.5, "low": 0.25, "high": 0.75}
    rows = {"rows": {"a": {"what": "fed", "rate": {"median": 100, "low": 90, "high": 110}, "busy": spread, "of_synthetic": spread}, "b": {"rate": {"median": 7}}}}
    assert report("--table", t=rows).code == 0
    lines = (tmp_path / "out").read_text().splitlines()
    assert lines[0] == "| run | samples/s | of synthetic | GPU busy, % |"
    assert lines[2:] == ["| fed | 100 (90–110) | 0.50 (0.25–0.75) | 50 (25–75) |", "| b | 7 | – | – |"]
    assert report(t=rows).code == 0
    assert tables(page_of(tmp_path / "out"))["time that the GPU was busy"] == {"fed": ["50.0", "25.0", "75.0"]}


def test_bench_makes_one(penstock, photos, tmp_path):
    done = penstock("bench", photos, "--seconds", 0.2, "--workers", 1, "--pipeline", CROP, "--json", "--report", tmp_path / "out")
    rate = json.loads(done.out)["results"][0]["samples_per_s"]
    (figures,) = tables(page_of(tmp_path / "out"))["samples a second"].values()
    assert [float(one) for one in figures] == pytest.approx([rate], abs=0.6)
    refused = penstock("bench", photos, "--report", tmp_path / "no" / "out", check=False)
    assert refused.code == 1 and "no/out" in refused.err and not refused.out


def test_it_goes_to_standard_output(penstock, report, tmp_path):
    assert report("--table", a=FEED).code == 0
    done = penstock("report", tmp_path / "a.json", "--table", "-o", "-", cwd=tmp_path)
    assert done.out == (tmp_path / "out").read_text() and done.out.startswith("| run |") and not (tmp_path / "-").exists()


def test_runs_of_one_name_are_told_apart(report, tmp_path):
    table = {"table": {"x": {"what": "Penstock", "samples_per_s": {"median": 5, "min": 4, "max": 6}}}}
    report(a=table, b=table)
    names = list(tables(page_of(tmp_path / "out"))["samples a second"].items())
    assert [figures for _, figures in names] == [["5.0", "4.0", "6.0"]] * 2 and names[0][0] != names[1][0]
