# SPDX-License-Identifier: Apache-2.0
"""Runs torchvision's reference training script (references/classification/train.py of its repository) on the CPU.

    reference_program.py SCRIPTS torch|penstock RESULT [arguments of train.py]

The script is run as it is, but for the line that names the loader. What stands in for CUDA and NCCL is put into torch, not
into the script. RESULT gets what the run gave, with torch.save: losses, predictions on the validation set, and what each
loader says of itself. Under torchrun each rank writes RESULT.<rank>.
"""

import argparse
import os
import pathlib
import sys

import torch
import torch.distributed
import torch.utils.data

import penstock
import penstock.torch

THEIRS, OURS = "torch.utils.data.DataLoader(", "penstock.torch.DataLoader("


def stand_in_for_cuda():
    """gloo and the CPU where the script asks for NCCL and a GPU, which it does whenever it runs distributed."""
    begin, parallel = torch.distributed.init_process_group, torch.nn.parallel.DistributedDataParallel
    torch.cuda.set_device = lambda device: None
    torch.distributed.init_process_group = lambda backend, **options: begin("gloo", **options)
    torch.nn.parallel.DistributedDataParallel = lambda model, device_ids: parallel(model)


def reduce_on_cpu(value):
    tensor = torch.as_tensor(value)
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.all_reduce(tensor)
    return tensor


def load_script(folder, kind):
    """train.py as a module's names, its loader of the kind asked for."""
    text = (folder / "train.py").read_text()
    assert text.count(THEIRS) == 2, "train.py of another time: it does not make two loaders"
    if kind == "penstock":
        text = text.replace(THEIRS, OURS)
        text = text.replace("import torch.utils.data\n", "import torch.utils.data, penstock.torch\n")
    sys.path.insert(0, str(folder))
    names = {"__name__": "train", "__file__": str(folder / "train.py")}
    exec(compile(text, names["__file__"], "exec"), names)
    names["utils"].reduce_across_processes = reduce_on_cpu
    return names


class Record:
    """Notes what passes through the criterion of each loop, and the loader of each."""

    def __init__(self, names):
        self.losses, self.outputs, self.targets = {"train": [], "test": []}, [], []
        self.loaders = {}
        train, test = names["train_one_epoch"], names["evaluate"]

        def train_one_epoch(model, criterion, optimizer, data_loader, *rest):
            self.loaders["train"] = data_loader
            return train(model, self.noted(criterion, "train"), optimizer, data_loader, *rest)

        def evaluate(model, criterion, data_loader, **rest):
            self.loaders["test"] = data_loader
            return test(model, self.noted(criterion, "test"), data_loader, **rest)

        names.update(train_one_epoch=train_one_epoch, evaluate=evaluate)

    def noted(self, criterion, which):
        def call(output, target):
            loss = criterion(output, target)
            self.losses[which].append(loss.item())
            if which == "test":
                self.outputs.append(output.clone())
                self.targets.append(target.clone())
            else:
                self.soft = target.is_floating_point()
            return loss

        return call

    def result(self):
        ours = {which: loader for which, loader in self.loaders.items() if type(loader) is penstock.torch.DataLoader}
        return {
            "losses": self.losses,
            "outputs": torch.cat(self.outputs),
            "targets": torch.cat(self.targets),
            "soft": getattr(self, "soft", None),
            "paths": {which: loader.stats()["path"] for which, loader in ours.items()},
            "explain": {which: loader.explain() for which, loader in ours.items()},
        }


def main():
    folder, kind, result = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    torch.manual_seed(11)
    torch.set_num_threads(1)
    stand_in_for_cuda()
    torch.serialization.add_safe_globals([argparse.Namespace])
    names = load_script(folder, kind)
    record = Record(names)
    args = names["get_args_parser"]().parse_args(["--device", "cpu", *sys.argv[4:]])
    names["main"](args)
    if "RANK" in os.environ:
        result += "." + os.environ["RANK"]
    torch.save(record.result(), result)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
