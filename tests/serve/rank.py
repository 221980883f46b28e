# SPDX-License-Identifier: Apache-2.0
"""One rank, as a launcher starts it: python rank.py FOLDER EPOCHS PAUSE. Says where its samples come from, then waits for a line
on standard input, then takes the epochs, PAUSE seconds between two batches. JSON, one object a line."""
import json
import sys
import threading

import penstock

folder, epochs, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
loader = penstock.Loader(folder, "decode | random_resized_crop(32) | hflip", 4, engine="auto", memory="64M", cache=0)
ticks = iter(loader)
first = next(ticks)
print(json.dumps({"served": loader.engine.settings["served"], "workers": loader.engine.settings["workers"]}), flush=True)
sys.stdin.readline()
never = threading.Event()
taken = []
for epoch in range(epochs):
    ids = []
    for batch in [first] if epoch == 0 else []:
        ids += batch.ids[batch.valid].tolist()
    for batch in ticks:
        ids += batch.ids[batch.valid].tolist()
        never.wait(pause)
    taken.append(ids)
    ticks = iter(loader) if epoch + 1 < epochs else ticks
print(json.dumps({"ids": taken}), flush=True)
loader.close()
