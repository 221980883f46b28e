# SPDX-License-Identifier: Apache-2.0
"""What is shown of jobs agrees with what they delivered: the view and the metrics, beside ledgers of real jobs."""
import http.client
import json
import os
import re
import shutil
import signal
import tempfile
import time
from pathlib import Path

import pytest
from conftest import LIMIT_S, make_photos, rows
from looking import UnixConnection, fetch, look, metrics, value

DELAYED = "decode | delay(ms=4) | random_resized_crop(32)"


def until(what, limit=LIMIT_S):
    begin = time.monotonic()
    while not (found := what()):
        assert time.monotonic() - begin < limit
        time.sleep(0.02)
    return found


def ended(daemon):
    """The metrics once no job is left."""
    return until(lambda: (seen := metrics(daemon.dir)) and value(seen, "penstock_engine_jobs") == 0 and seen)


def test_sums_agree_with_the_ledger_exactly(serve, client, photos):
    daemon = serve("--workers", 2, "--cache", "64MiB")
    clients = [client("--engine", daemon.address, "--epochs", 3), client("--engine", daemon.address, "--epochs", 2, "--seed", 9)]
    for one in clients:
        one.end()
    taken = [rows(one.ledger) for one in clients]
    deliveries, seen = sum(map(len, taken)), ended(daemon)
    assert deliveries == 5 * 96
    name = photos.name
    assert value(seen, "penstock_dataset_samples_total", dataset=name) == deliveries
    assert value(seen, "penstock_dataset_batches_total", dataset=name) == sum(len({row[:2] for row in one}) for one in taken)
    assert value(seen, "penstock_dataset_jobs_total", dataset=name) == 2
    assert value(seen, "penstock_dataset_preparations_total", dataset=name) == deliveries  # nothing is shared
    hits = value(seen, "penstock_cache_hits_total", form="decoded")
    assert hits > 0 and hits + value(seen, "penstock_dataset_misses_total", dataset=name) == deliveries
    assert hits == value(seen, "penstock_dataset_hits_total", dataset=name, form="decoded")
    entries, evicted = (value(seen, f"penstock_cache_{what}", form="decoded") for what in ("inserts_total", "evictions_total"))
    assert entries - evicted == value(seen, "penstock_cache_entries", form="decoded")
    assert value(seen, "penstock_source_requests_total", kind="files") == deliveries - hits


def test_shared_preparations_agree_with_the_ledger(serve, client, photos):
    daemon = serve("--workers", 2, "--cache", "64MiB")
    args = ("--engine", daemon.address, "--epochs", 2, "--sampling", "opportunistic", "--order", "ready")
    clients = [client(*args), client(*args)]
    for one in clients:
        one.end()
    taken = [row for one in clients for row in rows(one.ledger)]
    seen = ended(daemon)
    prepared = value(seen, "penstock_dataset_preparations_total", dataset=photos.name)
    shared = value(seen, "penstock_dataset_shared_total", dataset=photos.name)
    assert prepared == len({row[7] for row in taken})
    assert prepared + shared == len(taken) == value(seen, "penstock_dataset_samples_total", dataset=photos.name)
    assert shared == value(seen, "penstock_cache_hits_total", form="augmented")
    assert value(seen, "penstock_dataset_substitutions_total", dataset=photos.name) <= shared


def test_the_view_of_a_running_job(serve, client, photos):
    daemon = serve("--workers", 2, "--cache", "0")
    one = client("--engine", daemon.address, "--epochs", 1000, pipeline=DELAYED)
    view = until(lambda: (v := look(daemon.dir, True)) and v["jobs"] and v["jobs"][0]["samples"] > 96
                 and any(one["jobs"] for one in v["history"]) and v)
    job, shown = view["jobs"][0], daemon.jobs()[0]
    assert (job["id"], job["pid"], job["uid"]) == (shown["id"], one.child.pid, os.geteuid())
    assert (job["dataset"], job["pipeline"], job["batch"], job["order"]) == (str(photos), DELAYED, 8, "strict")
    assert job["state"] == "running" and job["epoch"] > 0 and job["epoch_samples"] == 96 and job["epoch_done"] <= 96
    assert job["bytes_delivered"] >= job["samples"] * 32 * 32 * 3 and job["samples"] == 8 * job["batches"]
    stages = {stage["name"]: stage for stage in job["stages"]}
    assert list(stages) == ["read", "decode", "delay", "random_resized_crop", "finish", "wait"]
    for stage in stages.values():
        assert len(stage["buckets"]) == len(view["stage_bounds"]) == 15
        assert stage["buckets"] == sorted(stage["buckets"]) and stage["buckets"][-1] <= stage["runs"]
    slow = stages["delay"]
    assert slow["buckets"][view["stage_bounds"].index(0.0025)] == 0 and slow["seconds"] >= 0.004 * slow["runs"]
    assert sum(job["lanes"]["cost_buckets"]) == job["preparations"] >= job["samples"]
    assert view["model"]["predicted"] > 0 and len(view["model"]["triangle"]) == 66
    assert all(abs(sum(row[:3]) - 1) < 1e-9 for row in view["model"]["triangle"])
    assert view["sources"][0]["kind"] == "files" and view["sources"][0]["bytes"] == job["bytes_read"]
    assert 0 <= job["stall_now"] <= 1 and job["rate_now"] > 0 and any(str(job["id"]) in one["jobs"] for one in view["history"])
    one.child.send_signal(signal.SIGINT)
    one.child.communicate(timeout=LIMIT_S)
    seen = ended(daemon)
    assert value(seen, "penstock_dataset_samples_total", dataset=photos.name) >= len(rows(one.ledger))


def test_bad_samples_are_shown_and_in_no_label(serve, client, binary, tmp_path):
    data = make_photos(binary, tmp_path / "some", 24)
    victim = sorted(data.rglob("*.jpg"))[3]
    victim.write_bytes(b"no picture")
    daemon = serve("--workers", 1, "--cache", 0)
    one = client("--engine", daemon.address, "--epochs", 1000, "--on-error", "skip:5", data=data, pipeline=DELAYED)
    bad = until(lambda: look(daemon.dir)["bad"])
    assert bad[0]["key"].endswith(victim.name) and bad[0]["stage"] and bad[0]["message"] and bad[0]["time"] > 1e9
    _, _, text = fetch(daemon.dir, "/metrics")
    assert victim.stem.encode() not in text and str(tmp_path).encode() not in text
    one.kill()


def test_names_are_escaped(serve, client, photos, tmp_path):
    odd = tmp_path / 'we"ird\\na\nme <b> \u00fc\x1b[1m\x9b31m\u202e\u2028\udcff'
    shutil.copytree(photos, odd)
    daemon = serve("--workers", 1, "--cache", 0)
    one = client("--engine", daemon.address, "--epochs", 1000, data=odd, pipeline=DELAYED)
    view = until(lambda: (v := look(daemon.dir)) and v["jobs"] and v)
    assert view["jobs"][0]["dataset"] == str(odd).replace("\udcff", "\ufffd")
    name = 'we"ird\\na?me <b> \u00fc?[1m??31m???????'
    until(lambda: value(metrics(daemon.dir), "penstock_job_samples_total", dataset=name) > 0)
    line = UnixConnection(daemon.dir / "control.sock")
    shown = [fetch(daemon.dir, url)[2] for url in ("/metrics", "/v1/watch")] + [events(line, 1)[0]["data"].encode()]
    for text in shown:  # nothing that a terminal would follow
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202e]", text.decode())
    line.close()
    one.kill()


def events(line, count):
    """Events of the stream as (names, bytes of data)."""
    line.request("GET", "/v1/stream", headers={"Accept": "text/event-stream"})
    answer = line.getresponse()
    if answer.status != 200:
        return answer.status
    assert answer.getheader("Content-Type") == "text/event-stream"
    found = []
    while len(found) < count:
        fields = {}
        while (text := answer.readline().decode()) != "\n":
            assert text, "the stream ended"
            key, _, rest = text.rstrip("\n").partition(": ")
            fields[key] = rest
        found.append(fields)
    return found


def test_the_stream_has_history_once_and_leaves_room_for_others(serve):
    daemon = serve("--workers", 1)
    lines = [UnixConnection(daemon.dir / "control.sock") for _ in range(15)]
    for line in lines:
        first, *rest = events(line, 1)
        assert first["retry"] == "2000" and first["event"] == "view" and "history" in json.loads(first["data"])
    lines.append(UnixConnection(daemon.dir / "control.sock"))
    first, second, third = events(lines[-1], 3)
    assert events(UnixConnection(daemon.dir / "control.sock"), 1) == 503 and daemon.jobs() == []
    assert "history" not in json.loads(second["data"])
    assert json.loads(third["data"])["time"] > json.loads(second["data"])["time"] > json.loads(first["data"])["time"]
    for line in lines:
        line.close()
    code, err = daemon.kill(signal.SIGTERM)
    assert (code, err) == (0, "")


def test_an_embedded_engine_shows_itself(client, tmp_path, environment):
    place = tmp_path / "seen"
    one = client("--epochs", 60, "--watch", place, pipeline=DELAYED)
    until(lambda: (place / "control.sock").exists())
    view = until(lambda: (v := look(place)) and v["jobs"] and v["jobs"][0]["samples"] > 0 and v)
    assert view["jobs"][0]["pid"] == one.child.pid and view["instance"]
    assert value(metrics(place), "penstock_engine_jobs") == 1
    assert fetch(place, "/v1/datasets")[0] == 404 and fetch(place, "/metrics", "POST")[0] == 405
    one.end()
    assert not place.exists()  # it was made for this


@pytest.mark.parametrize("there", [False, True])
def test_an_interrupted_one_leaves_nothing_behind(client, tmp_path, there):
    place = tmp_path / "seen"
    if there:
        place.mkdir(0o700)
        (place / "note").write_text("of somebody else")
    one = client("--epochs", 1000, "--watch", place, pipeline=DELAYED)
    until(lambda: (place / "control.sock").exists())
    until(lambda: look(place)["jobs"])
    one.child.send_signal(signal.SIGINT)
    one.child.communicate(timeout=LIMIT_S)
    assert not (place / "control.sock").exists() and place.exists() == there
    assert not there or (place / "note").exists()


def test_signals_are_for_the_program(client, tmp_path):
    """Threads that show an engine have all of them blocked, as workers have."""
    place = tmp_path / "seen"
    one = client("--epochs", 1000, "--watch", place, pipeline=DELAYED)
    until(lambda: (place / "control.sock").exists())
    until(lambda: look(place)["jobs"])
    names = set()
    for task in Path(f"/proc/{one.child.pid}/task").iterdir():
        blocked = int(re.search(r"^SigBlk:\s*(\w+)", (task / "status").read_text(), re.MULTILINE).group(1), 16)
        if int(task.name) != one.child.pid:
            names.add((task / "comm").read_text().strip())
            assert all(blocked >> number - 1 & 1 for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)), task
    assert "pst-look" in names and any(name.startswith("MHD") for name in names), names
    one.kill()


def test_auto_wants_a_folder_of_its_own(client, tmp_path):
    (tmp_path / "penstock").mkdir()
    (tmp_path / "penstock").chmod(0o777)
    one = client("--epochs", 1, "--watch", "auto", env={"XDG_RUNTIME_DIR": str(tmp_path)})
    assert "others may write" in one.end(1)


def test_auto_is_named_after_the_process_and_goes_with_it(client, tmp_path):
    env = {"XDG_RUNTIME_DIR": str(tmp_path), "PENSTOCK_WATCH": "auto"}
    killed = client("--epochs", 1000, env=env, pipeline=DELAYED)
    left = tmp_path / "penstock" / str(killed.child.pid)
    until(lambda: (left / "control.sock").exists())
    killed.kill()
    os.utime(left / "lock", (0, 0))  # not made just now
    one = client("--epochs", 60, env=env, pipeline=DELAYED)
    place = tmp_path / "penstock" / str(one.child.pid)
    until(lambda: (place / "control.sock").exists())
    until(lambda: look(place)["jobs"])
    assert not left.exists()  # what the killed one left
    one.end()
    assert not place.exists()


def test_nothing_is_shown_unless_asked(client, tmp_path):
    one = client("--epochs", 2, env={"XDG_RUNTIME_DIR": str(tmp_path)})
    one.end()
    assert not list(tmp_path.glob("penstock*"))


def test_a_folder_of_another_is_refused(client, serve, tmp_path):
    daemon = serve("--workers", 1)
    one = client("--epochs", 1, "--watch", daemon.dir)
    assert "another" in one.end(1)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_another_user_sees_nothing_of_it(client):
    with tempfile.TemporaryDirectory() as top:
        os.chmod(top, 0o755)
        place = Path(top, "seen")
        one = client("--epochs", 1000, "--watch", place, pipeline=DELAYED)
        until(lambda: (place / "control.sock").exists())
        os.chmod(place, 0o755)
        os.chmod(place / "control.sock", 0o666)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setuid(65534)
                fetch(place, "/v1/watch")
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                code = 0  # he got as far as the socket
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert look(place)["jobs"]
        one.kill()


def test_a_loader_shows_itself(photos, tmp_path):
    penstock = pytest.importorskip("penstock")
    loader = penstock.Loader(str(photos), "decode | random_resized_crop(32)", 8, workers=1, watch=tmp_path / "seen")
    taken = sum(len(batch["id"]) for batch in loader)
    job = look(tmp_path / "seen")["jobs"][0]
    assert (taken, job["samples"], job["batches"], job["pid"]) == (96, 96, 12, os.getpid())
    loader.close()
    assert not (tmp_path / "seen").exists()
