# SPDX-License-Identifier: Apache-2.0
"""A source of limited bandwidth and processes of limited memory, by the kernel's own means. Needs root, loop devices, mkfs.ext4
and the cgroup controllers memory and blkio of version 1.

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


class Group:
    """A cgroup that reads from `device` at no more than `bandwidth` bytes a second and has no more than `limit` bytes of memory;
    None: no limit."""

    def __init__(self, device, bandwidth=None, limit=None):
        self.folders = [os.path.join(CGROUPS, controller, "penstock-bench-%d" % os.getpid())
                        for controller in ("memory", "blkio")]
        self.memory, self.blkio = self.folders
        self.device, self.most_held = device, {"all": 0}
        for folder in self.folders:
            if not os.path.isdir(os.path.dirname(folder)):
                sys.exit("%s: no such cgroup controller; this bench needs version 1 of them" % os.path.dirname(folder))
            os.mkdir(folder)
        if limit:
            write(os.path.join(self.memory, "memory.limit_in_bytes"), "%d" % limit)
        if bandwidth:
            write(os.path.join(self.blkio, "blkio.throttle.read_bps_device"), "%s %d" % (device, bandwidth))

    def enter(self):
        for folder in self.folders:
            write(os.path.join(folder, "cgroup.procs"), "%d" % os.getpid())

    def look(self):
        """Notes what is held beside the page cache of files."""
        used = int(text_of(os.path.join(self.memory, "memory.usage_in_bytes")))
        stat = {key: int(value) for key, value in
                (line.split() for line in text_of(os.path.join(self.memory, "memory.stat")).splitlines())}
        held = used - stat["cache"] + stat["shmem"]
        if held > self.most_held["all"]:
            self.most_held = {"all": held, "anonymous": stat["rss"], "shared": stat["shmem"],
                              "kernel": used - stat["cache"] - stat["rss"]}

    def figures(self):
        read = [line.split() for line in text_of(os.path.join(self.blkio, "blkio.throttle.io_service_bytes")).splitlines()]
        return {"bytes_read": sum(int(words[2]) for words in read if words[:2] == [self.device, "Read"]),
                "most_beside_page_cache": self.most_held,
                "most": int(text_of(os.path.join(self.memory, "memory.max_usage_in_bytes")))}

    def close(self):
        """Ends what a failed run left."""
        for pid in text_of(os.path.join(self.memory, "cgroup.procs")).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        for folder in self.folders:
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
