#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Volumes are read as nibabel and numpy read them: NIfTI-1 and -2 of every type, byte order and scaling, plain and in gzip, to the
bit of get_fdata() as float32; NPY and NPZ of every type and order; windows of all of them; masks.

Arguments: path of volume_tool. Prints what was compared; exits 1 at the end if anything differed.
"""
import gzip
import os
import random
import subprocess
import sys
import tempfile

import nibabel
import numpy

sys.dont_write_bytecode = True
SEED = 11
TYPES = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"]
SHAPES = [(7,), (5, 9), (33, 4, 35), (1, 40, 3), (6, 5, 4, 3), (4, 3, 2, 1, 1)]
SCALINGS = [None, (1, 0), (0.0, 5), (2.5, 0), (0.1, -1024), (-3, 0.7), (float("nan"), 1), (1e-3, 1e6)]
failures = []
counts = {}


class Tool:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def decode(self, path, kind="image", window=(0,) * 6):
        """(array, units), or the error line."""
        self.process.stdin.write(("%s\t%s\t%s\n" % (path, kind, " ".join(map(str, window)))).encode())
        self.process.stdin.flush()
        head = self.process.stdout.readline().decode().rstrip("\n")
        if head.startswith("error"):
            return head
        words = head.split()
        kind = numpy.dtype({"u8": "u1", "i16": "<i2", "f32": "<f4"}[words[0]])
        shape = tuple(map(int, words[1:5]))
        raw = self.process.stdout.read(int(numpy.prod(shape)) * kind.itemsize)
        return numpy.frombuffer(raw, kind).reshape(shape), tuple(map(float, words[5:8]))


def compare(what, name, got, want):
    """want: floats of the wanted shape. Equal means equal bits, but for NaN."""
    counts[what] = counts.get(what, 0) + 1
    if isinstance(got, str):
        failures.append("%s %s: %s" % (what, name, got))
        return
    have = got[0].astype(numpy.float32) if want.dtype == numpy.float32 else got[0]
    if have.shape != want.shape or have.dtype != want.dtype:
        failures.append("%s %s: %s %s where %s %s is wanted" %
                        (what, name, have.dtype, have.shape, want.dtype, want.shape))
    elif not numpy.array_equal(have, want, equal_nan=have.dtype.kind == "f"):
        failures.append("%s %s: %d voxels differ" % (what, name, (have != want).sum()))
    elif have.dtype.kind == "f" and (numpy.signbit(have) != numpy.signbit(want)).any():
        failures.append("%s %s: signs of zeros differ" % (what, name))


def numbers(rng, kind, shape):
    """The whole range of a type, its ends included."""
    kind = numpy.dtype(kind)
    if kind.kind == "f":
        out = rng.normal(0, 1000, shape).astype(kind)
        out.flat[0] = -0.0
        if out.size > 3:
            out.flat[1:4] = numpy.nan, numpy.inf, -numpy.inf
        return out
    ends = numpy.iinfo(kind)
    out = rng.integers(ends.min, ends.max, shape, dtype=kind.newbyteorder("="), endpoint=True)
    out.flat[0], out.flat[-1] = ends.min, ends.max
    return out.astype(kind)


def as_volume(array):
    """nibabel's array as {channels, planes, rows, columns}."""
    array = array.reshape((array.shape + (1, 1, 1))[:max(3, array.ndim)])
    if array.ndim == 5:
        array = array[..., 0]
    return numpy.moveaxis(array, 3, 0) if array.ndim == 4 else array[None]


def random_window(rng, shape):
    sizes = [rng.randint(1, n) for n in shape[1:]]
    starts = [rng.randint(0, n - s) for n, s in zip(shape[1:], sizes)]
    return starts + sizes, tuple(slice(a, a + s) for a, s in zip(starts, sizes))


def write_nifti(path, array, version, scaling, zooms):
    image = {1: nibabel.Nifti1Image, 2: nibabel.Nifti2Image}[version]
    header = image.header_class(endianness=">" if array.dtype.str[0] == ">" else "<")
    header.set_data_shape(array.shape)
    header.set_data_dtype(array.dtype)
    header["pixdim"][1:4] = zooms
    header["vox_offset"] = 352 if version == 1 else 544
    header["magic"] = b"n+1" if version == 1 else b"n+2"
    if scaling:
        header["scl_slope"], header["scl_inter"] = scaling
    data = header.binaryblock + b"\0" * 4 + array.tobytes(order="F")
    with (gzip.open if path.endswith(".gz") else open)(path, "wb") as handle:
        handle.write(data)


def check_nifti(tool, folder, rng):
    source = numpy.random.default_rng(SEED)
    for version in (1, 2):
        for order in "<>":
            for kind in TYPES:
                for n, scaling in enumerate(SCALINGS):
                    array = numbers(source, order + kind, SHAPES[n % len(SHAPES)])
                    ending = (".nii", ".nii.gz")[n % 2 == 1]
                    path = os.path.join(folder, "%d%s%s%d%s" % (version, "lb"[order == ">"], kind, n, ending))
                    write_nifti(path, array, version, scaling, (3.1, 0.78, 1.25))
                    with numpy.errstate(over="ignore", invalid="ignore"):
                        image = nibabel.load(path)
                        want = as_volume(image.get_fdata().astype(numpy.float32))
                    got = tool.decode(path)
                    compare("NIfTI-%d%s" % (version, ending[4:]), path, got, want)
                    zooms = tuple(float(z) for z in image.header["pixdim"][1:4])
                    if not isinstance(got, str) and got[1] != zooms:
                        failures.append("%s: %s where %s mm are wanted" % (path, got[1], zooms))
                    window, part = random_window(rng, want.shape)
                    compare("windows", path, tool.decode(path, "image", window), want[(slice(None),) + part])


def check_written(tool, folder):
    """Files that nibabel itself writes, scaled by itself, with an extension."""
    source = numpy.random.default_rng(SEED)
    for kind in ("u1", "i2", "f4"):
        image = nibabel.Nifti1Image(source.normal(0, 100, (9, 8, 7)), numpy.diag([2, 3, 4, 1]))
        image.set_data_dtype(kind)
        image.header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", b"made by a test"))
        path = os.path.join(folder, "written-%s.nii.gz" % kind)
        nibabel.save(image, path)
        want = as_volume(nibabel.load(path).get_fdata().astype(numpy.float32))
        compare("written by nibabel", path, tool.decode(path), want)
    colours = source.integers(0, 255, (9, 8, 7, 3), dtype="u1")
    packed = colours.copy().view([("R", "u1"), ("G", "u1"), ("B", "u1")]).reshape((9, 8, 7))
    path = os.path.join(folder, "colours.nii.gz")
    nibabel.save(nibabel.Nifti1Image(packed, numpy.eye(4)), path)
    compare("colours", path, tool.decode(path), numpy.moveaxis(colours, 3, 0))


def check_masks(tool, folder):
    source = numpy.random.default_rng(SEED)
    for kind in TYPES:
        labels = source.integers(0, 100, (9, 8, 33)).astype(kind)
        path = os.path.join(folder, "mask-%s.nii.gz" % kind)
        write_nifti(path, labels, 1, None, (1, 1, 1))
        compare("masks", path, tool.decode(path, "mask"), labels[None].astype("u1"))
        path = os.path.join(folder, "mask-%s.npy" % kind)
        numpy.save(path, labels)
        compare("masks", path, tool.decode(path, "mask"), labels[None].astype("u1"))


def check_numpy(tool, folder, rng):
    source = numpy.random.default_rng(SEED)
    for kind in TYPES + ["f2"]:
        for order in "<>":
            for shape in ((5, 33, 40), (3, 4, 5, 6), (1, 1, 1)):
                for memory in "CF":
                    array = numpy.asarray(numbers(source, order + kind, shape), order=memory)
                    want = array.reshape((1,) * (4 - array.ndim) + array.shape)
                    want = want.astype(numpy.float64).astype(numpy.float32)
                    path = os.path.join(folder, "array")
                    numpy.save(path + ".npy", array)
                    numpy.savez(path + "-stored.npz", other=array[:1], image=array)
                    numpy.savez_compressed(path + "-packed.npz", array, array[:1])
                    window, part = random_window(rng, want.shape)
                    for ending in (".npy", "-stored.npz", "-packed.npz"):
                        name = "%s%s %s %s" % (order, kind, shape, memory)
                        compare(ending.lstrip("-"), name, tool.decode(path + ending), want)
                        compare("windows", name, tool.decode(path + ending, "image", window),
                                want[(slice(None),) + part])


def main():
    tool, rng = Tool(sys.argv[1]), random.Random(SEED)
    with tempfile.TemporaryDirectory() as folder:
        check_nifti(tool, folder, rng)
        check_written(tool, folder)
        check_masks(tool, folder)
        check_numpy(tool, folder, rng)
    for what, count in sorted(counts.items()):
        print("%-20s %5d compared" % (what, count))
    for failure in failures[:40]:
        print("FAIL " + failure)
    print("seed %d: %d failures" % (SEED, len(failures)))
    return 1 if failures or not counts else 0


if __name__ == "__main__":
    sys.exit(main())
