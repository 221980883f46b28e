#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The baseline of bench/volumes.py: MLPerf's 3D U-Net data path in PyTorch, written again from the reference (preprocess_dataset.py
and data_loading/pytorch_loader.py), with its names, its order of operations and its costs.

    volumes_torch.py prepare --data NIFTI --to NPY [--jobs J]          the offline script; the reference has one process
    volumes_torch.py train --data NPY [--epochs E] [--workers N] [--search cached]

One JSON line. `--search cached` looks every label volume through beforehand, outside the measurement, and keeps the boxes: what
is left is the loader.
"""
import argparse
import glob
import json
import multiprocessing
import os
import random
import resource
import sys
import time

import numpy as np
import scipy.ndimage as ndimage
import torch
from torch.utils.data import DataLoader, Dataset

sys.dont_write_bytecode = True
import common

TARGET_SPACING = [1.6, 1.2, 1.2]
PATCH = (128, 128, 128)


# ---- the offline script -----------------------------------------------------------------------------------------------------


def resample(image, label, spacing):
    if spacing == TARGET_SPACING:
        return image, label
    spacing, target = np.array(spacing), np.array(TARGET_SPACING)
    shape = (spacing / target * image.shape[1:]).astype(int).tolist()
    image = torch.nn.functional.interpolate(torch.from_numpy(image)[None], size=shape, mode="trilinear", align_corners=True)
    label = torch.nn.functional.interpolate(torch.from_numpy(label)[None], size=shape, mode="nearest")
    return image.squeeze(0).numpy(), label.squeeze(0).numpy()


def pad_to_min_shape(image, label):
    shape = image.shape[1:]
    bounds = [max(0, p - s) for p, s in zip(PATCH, shape)]
    if any(bounds):
        paddings = [(0, 0)] + [(b // 2, b - b // 2) for b in bounds]
        image, label = np.pad(image, paddings, mode="edge"), np.pad(label, paddings, mode="edge")
    return image, label


def prepare_case(job):
    import nibabel

    folder, to = job
    image, label = nibabel.load(folder + "/imaging.nii.gz"), nibabel.load(folder + "/segmentation.nii.gz")
    spacing = image.header["pixdim"][1:4].tolist()
    image = np.expand_dims(image.get_fdata().astype(np.float32), 0)
    label = np.expand_dims(label.get_fdata().astype(np.uint8), 0)
    image, label = resample(image, label, spacing)
    image = (np.clip(image, -79.0, 304.0) - 101.0) / 76.9
    image, label = pad_to_min_shape(image, label)
    name = os.path.join(to, os.path.basename(folder))
    np.save(name + "_x.npy", image.astype(np.float32), allow_pickle=False)
    np.save(name + "_y.npy", label.astype(np.uint8), allow_pickle=False)


def spent():
    """CPU seconds of this process and of children that have ended."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def prepare(args):
    cases = sorted(glob.glob(os.path.join(args.data, "case_*")))
    os.makedirs(args.to, exist_ok=True)
    torch.set_num_threads(1)
    begin, cpu = time.perf_counter(), spent()
    jobs = [(case, args.to) for case in cases]
    if args.jobs == 1:
        for job in jobs:
            prepare_case(job)
    else:
        with multiprocessing.Pool(args.jobs) as pool:
            pool.map(prepare_case, jobs, 1)
    return {"seconds": time.perf_counter() - begin, "samples": len(cases), "cpu": spent() - cpu}


# ---- the loader -------------------------------------------------------------------------------------------------------------


def parts_of(label, cl):
    found = ndimage.find_objects(ndimage.label(label == cl)[0])
    found = [part for part in found if part is not None]
    volumes = [np.prod([s.stop - s.start for s in part]) for part in found]
    return [found[i] for i in np.argsort(volumes)[-2:]]


class RandBalancedCrop:
    def __init__(self, patch_size, oversampling):
        self.patch_size, self.oversampling = patch_size, oversampling

    def __call__(self, data):
        image, label = data["image"], data["label"]
        if random.random() < self.oversampling:
            low, high = self.rand_foreg(label, data.get("parts"))
        else:
            low = [self.randrange(s - p) for s, p in zip(image.shape[1:], self.patch_size)]
            high = [first + p for first, p in zip(low, self.patch_size)]
        at = (slice(None), *(slice(a, b) for a, b in zip(low, high)))
        data.update({"image": image[at], "label": label[at]})
        return data

    @staticmethod
    def randrange(max_range):
        return 0 if max_range == 0 else random.randrange(max_range)

    def adjust(self, part, label, idx):
        diff = self.patch_size[idx - 1] - (part[idx].stop - part[idx].start)
        sign = -1 if diff < 0 else 1
        diff = abs(diff)
        ladj = self.randrange(diff)
        hadj = diff - ladj
        low = max(0, part[idx].start - sign * ladj)
        high = min(label.shape[idx], part[idx].stop + sign * hadj)
        diff = self.patch_size[idx - 1] - (high - low)
        if diff > 0 and low == 0:
            high += diff
        elif diff > 0:
            low -= diff
        return low, high

    def rand_foreg(self, label, kept):
        if kept is not None:
            parts = kept[random.choice(list(kept))]
        else:
            parts = parts_of(label, np.random.choice(np.unique(label[label > 0])))
        part = parts[random.randrange(len(parts))]
        ends = [self.adjust(part, label, idx) for idx in (1, 2, 3)]
        return [low for low, _ in ends], [high for _, high in ends]


def rand_flip(data):
    for axis in (1, 2, 3):
        if random.random() < 1 / 3:
            data["image"] = np.flip(data["image"], axis=axis).copy()
            data["label"] = np.flip(data["label"], axis=axis).copy()


def cast(data):
    data["image"], data["label"] = data["image"].astype(np.float32), data["label"].astype(np.uint8)


def random_brightness(data):
    if random.random() < 0.1:
        factor = np.random.uniform(low=1 - 0.3, high=1 + 0.3, size=1)
        data["image"] = (data["image"] * (1 + factor)).astype(data["image"].dtype)


def gaussian_noise(data):
    if random.random() < 0.1:
        scale = np.random.uniform(low=0.0, high=0.1)
        noise = np.random.normal(loc=0, scale=scale, size=data["image"].shape).astype(data["image"].dtype)
        data["image"] = data["image"] + noise


class PytTrain(Dataset):
    def __init__(self, folder, cached):
        self.images = sorted(glob.glob(os.path.join(folder, "*_x.npy")))
        self.labels = sorted(glob.glob(os.path.join(folder, "*_y.npy")))
        self.rand_crop = RandBalancedCrop(PATCH, 0.4)
        self.parts = [self.search(name) for name in self.labels] if cached else None

    @staticmethod
    def search(name):
        label = np.load(name)
        return {cl: parts_of(label, cl) for cl in np.unique(label[label > 0])}

    def __len__(self):
        return len(self.images)

    def __getitem__(self, idx):
        data = {"image": np.load(self.images[idx]), "label": np.load(self.labels[idx])}
        if self.parts:
            data["parts"] = self.parts[idx]
        data = self.rand_crop(data)
        for step in (rand_flip, cast, random_brightness, gaussian_noise):
            step(data)
        return data["image"], data["label"]


def train(args):
    data = PytTrain(args.data, args.search == "cached")
    begin, cpu = time.perf_counter(), common.cpu_seconds()
    loader = DataLoader(data, batch_size=args.batch, shuffle=True, num_workers=args.workers, persistent_workers=True, drop_last=True)
    epochs, samples = [], 0
    for _ in range(args.epochs):
        since = time.perf_counter()
        for image, label in loader:
            samples += len(image)
        epochs.append(time.perf_counter() - since)
    return {"seconds": time.perf_counter() - begin, "samples": samples, "epochs": epochs, "cpu": common.cpu_seconds() - cpu,
            "torch": torch.__version__}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["prepare", "train"])
    parser.add_argument("--data", required=True)
    parser.add_argument("--to")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--search", choices=["anew", "cached"], default="anew")
    args = parser.parse_args()
    print(json.dumps(prepare(args) if args.what == "prepare" else train(args)))


if __name__ == "__main__":
    main()
