# SPDX-License-Identifier: Apache-2.0
"""Another user at the daemon: let in only if allowed, and given only what he may read himself. Needs root."""
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from conftest import Client, Daemon, make_photos, rows

SERVER, GUEST, GROUP = 47001, 47002, 47003

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be several users")


@pytest.fixture(scope="module")
def ground(binary):
    """A folder that every user may come to, with the binary and photos that belong to the daemon's user."""
    with tempfile.TemporaryDirectory(prefix="penstock-rights-") as name:
        path = Path(name)
        path.chmod(0o755)
        make_photos(binary, path / "photos", 24)
        for item in [path / "photos", *(path / "photos").rglob("*")]:
            os.chown(item, SERVER, SERVER)
            item.chmod(0o755 if item.is_dir() else 0o644)
        yield path


@pytest.fixture
def world(ground, binary, environment, tmp_path):
    """start(*args) a daemon as its user; feed(uid, *args) as another; both with folders of their own."""
    if subprocess.run([binary, "--version"], user=GUEST, group=GUEST, extra_groups=[], capture_output=True).returncode:
        pytest.skip("another user cannot run the binary where it lies")
    spot = Path(tempfile.mkdtemp(dir=ground))
    spot.chmod(0o755)
    started = []

    def env_of(uid):
        home = spot / f"home{uid}"
        home.mkdir(exist_ok=True)
        os.chown(home, uid, uid)
        return {**environment, "XDG_CACHE_HOME": str(home), "XDG_RUNTIME_DIR": str(home)}

    class World:
        data = ground / "photos"

        def start(self, *args):
            started.append(Daemon(binary, env_of(SERVER), spot / f"home{SERVER}" / "served", *args, user=SERVER, group=SERVER,
                                  extra_groups=[]))
            (spot / f"home{SERVER}").chmod(0o711)
            return started[-1]

        def feed(self, uid, *args, groups=(), data=None, **kwargs):
            env = env_of(uid)
            ledger = Path(env["XDG_CACHE_HOME"]) / f"ledger{len(os.listdir(env['XDG_CACHE_HOME']))}"
            return Client(binary, env, data or self.data, ledger, *args, user=uid, group=uid, extra_groups=list(groups), **kwargs)

        def copy(self):
            data = spot / "data"
            shutil.copytree(self.data, data)
            for item in [data, *data.rglob("*")]:
                os.chown(item, SERVER, SERVER)
            return data

    yield World()
    for daemon in started:
        daemon.kill()
    shutil.rmtree(spot)


def test_strangers_stay_outside(world):
    daemon = world.start()
    feed = world.feed(GUEST, "--engine", daemon.address)
    assert "nobody serves there" in feed.end(1) and not feed.ledger.exists()


def test_guest_with_access_shares(world):
    daemon = world.start("--allow-uid", f"{GUEST},{GUEST + 1}", "--cache", "64M")
    own = world.feed(SERVER, "--engine", daemon.address, pipeline="decode | resize(64) | hflip", batch=4)
    assert own.end() == ""
    guest = world.feed(GUEST, "--engine", daemon.address, "--step-ms", 30, pipeline="decode | resize(64) | hflip", batch=4)
    assert daemon.dir.stat().st_mode & 0o777 == 0o711
    daemon.until(lambda jobs: any(job["uid"] == GUEST and job.get("cache_hits", 0) > 0 for job in jobs))
    assert guest.end() == "" and rows(guest.ledger) == rows(own.ledger)


@pytest.mark.parametrize("how", ["file", "folder", "group", "acl", "link"])
def test_guest_without_access_gets_nothing(world, how):
    """One file that the guest may not read: that sample is refused, by name, whether or not it is in the cache."""
    data = world.copy()
    secret = sorted(data.rglob("*.jpg"))[5]
    groups = ()
    if how == "file":
        secret.chmod(0o600)
    elif how == "folder":
        secret.parent.chmod(0o744)
    elif how == "group":
        os.chown(secret, SERVER, GROUP)
        secret.chmod(0o604)  # the group is kept out, and the guest is in it
        groups = (GROUP,)
    elif how == "acl":
        if subprocess.run(["setfacl", "-m", f"u:{GUEST}:---", str(secret)]).returncode:
            pytest.skip("no ACLs on this file system")
    else:
        shutil.move(secret, data / "class_000" / "zz.jpg")
        os.symlink("zz.jpg", secret)
    daemon = world.start("--allow-uid", GUEST, "--cache", "64M")
    own = world.feed(SERVER, "--engine", daemon.address, data=data, pipeline="decode | resize(64)", batch=4)
    assert own.end() == ""  # its user may read everything, and now it is all in the cache
    guest = world.feed(GUEST, "--engine", daemon.address, "--on-error", "skip:1000", data=data, groups=groups,
                       pipeline="decode | resize(64)", batch=4)
    said = guest.end() if how != "folder" else guest.child.communicate(timeout=120)[1]
    keys = {row[5] for row in rows(guest.ledger)} if guest.ledger.exists() else set()
    assert str(secret.relative_to(data)) not in keys
    if how == "folder":
        assert "permission denied" in said.lower() or not any(key.startswith(secret.parent.name) for key in keys)
    else:
        assert len(keys) == (24 if how == "link" else 23) and "may not read it" in guest.ledger.read_text()


def test_guest_cannot_pass_a_folder_that_is_closed(world):
    data = world.copy()
    data.chmod(0o700)
    daemon = world.start("--allow-uid", GUEST)
    feed = world.feed(GUEST, "--engine", daemon.address, data=data)
    assert feed.child.wait(timeout=120) == 1
