# SPDX-License-Identifier: Apache-2.0
"""A source of limited bandwidth and processes of limited memory, by the kernel's own means. Needs root, loop devices, mkfs.ext4
and cgroups with the controllers memory and blkio (version 1) or memory and io (version 2).

`Source`: photos on an ext4 file system of their own, on a loop device over a file in a tmpfs. So a read comes from RAM outside every
limit, and how fast it may come is set by the throttle of the reader's cgroup; what was read lies in the ordinary page cache.
`Group`: a cgroup for one run; its page cache counts, as cgroups have it, with the memory of its processes.
"""
import contextlib
import glob
import math
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

CGROUPS = "/sys/fs/cgroup"
CLASSES = 20
FORK = multiprocessing.get_context("fork")


def tool(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit("%s: %s" % (" ".join(command), done.stderr.strip() or "status %d" % done.returncode))
    return done.stdout.strip()


def text_of(path):
    with open(path, encoding="ascii") as handle:
        return handle.read()


def write(path, text):
    with open(path, "w", encoding="ascii") as handle:
        handle.write(text)


def photos_in(folder):
    found = sorted(path for path in glob.glob(os.path.join(folder, "**", "*"), recursive=True)
                   if path.lower().endswith((".jpg", ".jpeg")) and os.path.isfile(path))
    if not found:
        sys.exit("%s: no JPEG files" % folder)
    return found


class Source:
    """`samples` photos, every one with bytes of its own, in class folders under `data`."""

    def __init__(self, photos, samples):
        if os.geteuid():
            sys.exit("loop devices and cgroups are for root only")
        paths = photos_in(photos)
        sizes = [os.path.getsize(path) for path in paths]
        self.samples = samples
        self.bytes = sum(sizes[number % len(paths)] for number in range(samples))
        on_disk = sum(-(-sizes[number % len(paths)] // 4096) * 4096 for number in range(samples))
        self.top = tempfile.mkdtemp(prefix="penstock-limited-")
        self.ram, self.mount = os.path.join(self.top, "ram"), os.path.join(self.top, "source")
        self.data = os.path.join(self.mount, "data")
        self.loop = None
        try:
            self._make(on_disk)
            self._fill(paths)
            self.fresh()
        except BaseException:
            self.close()
            raise

    def _make(self, on_disk):
        size = math.ceil(on_disk * 1.05) + self.samples * 512 + (32 << 20)
        os.mkdir(self.ram)
        os.mkdir(self.mount)
        tool("mount", "-t", "tmpfs", "-o", "size=%d" % (size + (16 << 20)), "penstock-limited", self.ram)
        image = os.path.join(self.ram, "image")
        with open(image, "wb") as handle:
            os.posix_fallocate(handle.fileno(), 0, size)
        tool("mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-m", "0", "-N", str(self.samples + 1000), image)
        self.loop = tool("losetup", "--find", "--show", image)
        self.device = text_of("/sys/block/%s/dev" % os.path.basename(self.loop)).strip()
        tool("mount", "-o", "noatime", self.loop, self.mount)

    def _fill(self, paths):
        for label in range(CLASSES):
            os.makedirs(os.path.join(self.data, "c%03d" % label))
        for number in range(self.samples):
            shutil.copyfile(paths[number % len(paths)],
                            os.path.join(self.data, "c%03d" % (number % CLASSES), "%06d.jpg" % number))

    def fresh(self):
        """Mounts anew: nothing of it is left in the page cache."""
        tool("umount", self.mount)
        tool("mount", "-o", "ro,noatime", self.loop, self.mount)

    def close(self):
        for command in (["umount", self.mount], self.loop and ["losetup", "-d", self.loop], ["umount", self.ram]):
            for _ in range(100 if command else 0):  # a process that was killed lets go a moment later
                if subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0:
                    break
                time.sleep(0.05)
        if not os.path.ismount(self.ram):
            shutil.rmtree(self.top, ignore_errors=True)


def stat_of(path):
    return {key: int(value) for key, value in (line.split() for line in text_of(path).splitlines())}


class GroupV1:
    """A cgroup of version 1: a folder for each controller."""

    def __init__(self, device, bandwidth, limit):
        self.device = device
        self.folders = [os.path.join(CGROUPS, controller, "penstock-bench-%d" % os.getpid())
                        for controller in ("memory", "blkio")]
        self.memory, self.blkio = self.folders
        for folder in self.folders:
            if not os.path.isdir(os.path.dirname(folder)):
                sys.exit("%s: no such cgroup controller" % os.path.dirname(folder))
            os.mkdir(folder)
        if limit:
            write(os.path.join(self.memory, "memory.limit_in_bytes"), "%d" % limit)
        if bandwidth:
            write(os.path.join(self.blkio, "blkio.throttle.read_bps_device"), "%s %d" % (device, bandwidth))

    def held(self):
        used = int(text_of(os.path.join(self.memory, "memory.usage_in_bytes")))
        stat = stat_of(os.path.join(self.memory, "memory.stat"))
        return {"all": used - stat["cache"] + stat["shmem"], "anonymous": stat["rss"], "shared": stat["shmem"],
                "kernel": used - stat["cache"] - stat["rss"]}

    def bytes_read(self):
        rows = [line.split() for line in text_of(os.path.join(self.blkio, "blkio.throttle.io_service_bytes")).splitlines()]
        return sum(int(words[2]) for words in rows if words[:2] == [self.device, "Read"])

    def most(self):
        return int(text_of(os.path.join(self.memory, "memory.max_usage_in_bytes")))


class GroupV2:
    """A cgroup of version 2: one folder."""

    def __init__(self, device, bandwidth, limit):
        self.device = device
        self.memory = os.path.join(CGROUPS, "penstock-bench-%d" % os.getpid())
        self.folders = [self.memory]
        write(os.path.join(CGROUPS, "cgroup.subtree_control"), "+memory +io")
        os.mkdir(self.memory)
        if limit:
            write(os.path.join(self.memory, "memory.max"), "%d" % limit)
        if bandwidth:
            write(os.path.join(self.memory, "io.max"), "%s rbps=%d" % (device, bandwidth))

    def held(self):
        used = int(text_of(os.path.join(self.memory, "memory.current")))
        stat = stat_of(os.path.join(self.memory, "memory.stat"))
        return {"all": used - stat["file"] + stat["shmem"], "anonymous": stat["anon"], "shared": stat["shmem"],
                "kernel": used - stat["file"] - stat["anon"]}

    def bytes_read(self):
        for line in text_of(os.path.join(self.memory, "io.stat")).splitlines():
            words = line.split()
            if words[0] == self.device:
                return int(dict(word.split("=") for word in words[1:]).get("rbytes", 0))
        return 0

    def most(self):
        return int(text_of(os.path.join(self.memory, "memory.peak")))


class Group:
    """A cgroup that reads from `device` at no more than `bandwidth` bytes a second and has no more than `limit` bytes of memory;
    None: no limit."""

    def __init__(self, device, bandwidth=None, limit=None):
        kind = GroupV2 if os.path.exists(os.path.join(CGROUPS, "cgroup.controllers")) else GroupV1
        self.group, self.most_held = kind(device, bandwidth, limit), {"all": 0}

    def enter(self):
        for folder in self.group.folders:
            write(os.path.join(folder, "cgroup.procs"), "%d" % os.getpid())

    def look(self):
        """Notes what is held beside the page cache of files."""
        held = self.group.held()
        if held["all"] > self.most_held["all"]:
            self.most_held = held

    def figures(self):
        return {"bytes_read": self.group.bytes_read(), "most_beside_page_cache": self.most_held, "most": self.group.most()}

    def close(self):
        """Ends what a failed run left."""
        for pid in text_of(os.path.join(self.group.memory, "cgroup.procs")).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        for folder in self.group.folders:
            for _ in range(200):  # a process that ended leaves its cgroup a moment later
                try:
                    os.rmdir(folder)
                    break
                except OSError:
                    time.sleep(0.05)


def run_inside(group, function, *args):
    """Runs a function in a process of its own inside the group; returns what it returns."""
    here, there = FORK.Pipe(duplex=False)

    def run():
        group.enter()
        there.send(function(*args))

    process = FORK.Process(target=run)
    process.start()
    there.close()
    while not here.poll(0.1):
        group.look()
    try:
        result = here.recv()
    except EOFError:
        process.join()
        sys.exit("a run inside the cgroup ended with status %s" % process.exitcode)
    process.join()
    return result
