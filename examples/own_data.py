#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Data that lies somewhere else: an object with len() and read(i) fetches the bytes, everything after that is native.

    python examples/own_data.py zip photos.zip
    python examples/own_data.py lmdb photos.lmdb             # key -> JPEG bytes, keys like "cat/0001"
    python examples/own_data.py fsspec memory://photos       # anything fsspec opens: s3://, gs://, http://, a zip in a zip …
    python examples/own_data.py huggingface imagefolder/     # a datasets.Dataset with an Image column

read(i) is called from several threads at once; each example keeps what its library wants kept for each thread.
"""
import sys
import threading

import penstock


class Zip:
    def __init__(self, path):
        import zipfile

        self.open, self.local = lambda: zipfile.ZipFile(path), threading.local()
        self.names = sorted(name for name in self.open().namelist() if name.lower().endswith((".jpg", ".jpeg")))
        self.classes = sorted({name.split("/")[-2] for name in self.names})

    def __len__(self):
        return len(self.names)

    def read(self, i):
        if not hasattr(self.local, "zip"):  # a ZipFile has one position for all threads
            self.local.zip = self.open()
        return self.local.zip.read(self.names[i]), self.classes.index(self.names[i].split("/")[-2])


class Lmdb:
    def __init__(self, path):
        import lmdb

        self.env = lmdb.open(path, readonly=True, lock=False)
        with self.env.begin() as view:
            self.names = [bytes(name) for name in view.cursor().iternext(values=False)]
        self.classes = sorted({name.split(b"/")[0] for name in self.names})

    def __len__(self):
        return len(self.names)

    def read(self, i):
        with self.env.begin() as view:
            return view.get(self.names[i]), self.classes.index(self.names[i].split(b"/")[0])


class Fsspec:
    def __init__(self, url):
        import fsspec

        self.files, root = fsspec.core.url_to_fs(url)
        self.names = sorted(name for name in self.files.find(root) if name.lower().endswith((".jpg", ".jpeg")))
        self.classes = sorted({name.split("/")[-2] for name in self.names})

    def __len__(self):
        return len(self.names)

    def read(self, i):
        return self.files.cat_file(self.names[i]), self.classes.index(self.names[i].split("/")[-2])


class HuggingFace:
    """A dataset whose pictures stay encoded: Image(decode=False) gives {"bytes": …, "path": …}."""

    def __init__(self, dataset, image="image", label="label"):
        import datasets

        self.rows, self.image, self.label = dataset.cast_column(image, datasets.Image(decode=False)), image, label

    def __len__(self):
        return len(self.rows)

    def read(self, i):
        row = self.rows[i]
        stored = row[self.image]
        return stored["bytes"] or open(stored["path"], "rb").read(), row[self.label]


def load(kind, where):
    if kind == "huggingface":
        import datasets

        return HuggingFace(datasets.load_dataset("imagefolder", data_dir=where, split="train"))
    return {"zip": Zip, "lmdb": Lmdb, "fsspec": Fsspec}[kind](where)


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("zip", "lmdb", "fsspec", "huggingface"):
        sys.exit(__doc__)
    data = load(sys.argv[1], sys.argv[2])
    loader = penstock.Loader(data, "decode | resize(256) | center_crop(224) | normalize(imagenet)", 32, train=False)
    counts = {}
    for batch in loader:
        for label in batch.label[batch.valid]:
            counts[int(label)] = counts.get(int(label), 0) + 1
    print(f"{len(data)} pictures in {len(loader)} batches; of each class: {counts}")
    print(loader.stats()["bound"])


if __name__ == "__main__":
    main()
