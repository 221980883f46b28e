# SPDX-License-Identifier: Apache-2.0
"""Plain PyTorch models of the shape of three of MLPerf's, and their losses, for bench/train_shapes.py.

A model here is a module whose `forward` takes a batch and gives the loss. What is computed has the shape and cost of the
original (layers, widths, what the loss touches); none of it is meant to learn well. No loss waits for the GPU.
"""
import math
import zlib

import torch
from torch import nn
from torch.nn import functional as F


def twice(before, after, step=1):
    """Two 3D convolutions, each normalised; the first may halve the volume."""
    layers = []
    for width, stride in ((before, step), (after, 1)):
        layers += [nn.Conv3d(width, after, 3, stride, 1, bias=False), nn.InstanceNorm3d(after, affine=True),
                   nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet3D(nn.Module):
    """3D U-Net of MLPerf: widths 32, 64, 128, 256, 320, 320, three classes, Dice and cross entropy in equal parts."""

    CLASSES = 3

    def __init__(self, width=32, levels=6):
        super().__init__()
        widths = [min(width << level, 10 * width) for level in range(levels)]
        self.down = nn.ModuleList([twice(widths[i - 1] if i else 1, w, 2 if i else 1) for i, w in enumerate(widths)])
        pairs = list(zip(widths[:0:-1], widths[-2::-1]))
        self.up = nn.ModuleList([nn.ConvTranspose3d(below, above, 2, 2) for below, above in pairs])
        self.join = nn.ModuleList([twice(2 * above, above) for _, above in pairs])
        self.last = nn.Conv3d(widths[0], self.CLASSES, 1)

    def scores(self, x):
        kept = []
        for down in self.down:
            x = down(x)
            kept.append(x)
        kept.pop()
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([up(x), kept.pop()], 1))
        return self.last(x)

    def forward(self, image, mask):
        scores, mask = self.scores(image).float(), mask[:, 0].long()
        shares, wanted = scores.softmax(1), F.one_hot(mask, self.CLASSES).movedim(-1, 1)
        both, each = (shares * wanted).sum((0, 2, 3, 4)), (shares + wanted).sum((0, 2, 3, 4))
        return F.cross_entropy(scores, mask) + 1 - ((2 * both + 1) / (each + 1))[1:].mean()


def conv(before, after, kernel=3, step=1, pad=1, dilation=1):
    return nn.Sequential(nn.Conv2d(before, after, kernel, step, pad, dilation), nn.ReLU(inplace=True))


class Ssd300(nn.Module):
    """SSD300 with VGG-16: six maps, 8,732 boxes; objects are matched on the GPU, three negatives for a positive."""

    SIZE = 300
    MAPS, BOXES = (38, 19, 10, 5, 3, 1), (4, 6, 6, 6, 4, 4)
    SCALES = (0.07, 0.15, 0.33, 0.51, 0.69, 0.87, 1.05)

    def __init__(self, width=64, classes=81):
        super().__init__()
        w, self.classes = width, classes
        layers, before = [], 3
        for after in (w, w, 0, 2 * w, 2 * w, 0, 4 * w, 4 * w, 4 * w, 0, 8 * w, 8 * w, 8 * w):
            layers.append(conv(before, after) if after else nn.MaxPool2d(2, 2, ceil_mode=True))
            before = after or before
        self.body = nn.Sequential(*layers)
        self.norm = nn.Parameter(torch.full((1, 8 * w, 1, 1), 20.0))
        self.deeper = nn.ModuleList([
            nn.Sequential(nn.MaxPool2d(2, 2), *(conv(8 * w, 8 * w) for _ in range(3)), nn.MaxPool2d(3, 1, 1),
                          conv(8 * w, 16 * w, pad=6, dilation=6), conv(16 * w, 16 * w, 1, pad=0)),
            nn.Sequential(conv(16 * w, 4 * w, 1, pad=0), conv(4 * w, 8 * w, step=2)),
            nn.Sequential(conv(8 * w, 2 * w, 1, pad=0), conv(2 * w, 4 * w, step=2)),
            nn.Sequential(conv(4 * w, 2 * w, 1, pad=0), conv(2 * w, 4 * w, pad=0)),
            nn.Sequential(conv(4 * w, 2 * w, 1, pad=0), conv(2 * w, 4 * w, pad=0))])
        channels = (8 * w, 16 * w, 8 * w, 4 * w, 4 * w, 4 * w)
        self.heads = nn.ModuleList([nn.Conv2d(c, n * (4 + classes), 3, padding=1) for c, n in zip(channels, self.BOXES)])
        self.register_buffer("anchors", self.make_anchors())

    def make_anchors(self):
        """Middles and sides, of 1, in the order in which the heads give them."""
        made = []
        for place, (cells, boxes) in enumerate(zip(self.MAPS, self.BOXES)):
            scale, following = self.SCALES[place], self.SCALES[place + 1]
            sides = [(scale, scale), (math.sqrt(scale * following),) * 2]
            for ratio in (2, 3)[:(boxes - 2) // 2]:
                by = math.sqrt(ratio)
                sides += [(scale * by, scale / by), (scale / by, scale * by)]
            at = (torch.arange(cells) + 0.5) / cells
            y, x = at.view(-1, 1, 1).expand(cells, cells, boxes), at.view(1, -1, 1).expand(cells, cells, boxes)
            sides = torch.tensor(sides).expand(cells, cells, boxes, 2)
            made.append(torch.cat([torch.stack((x, y), -1), sides], -1).reshape(-1, 4))
        return torch.cat(made)

    def predict(self, images):
        x = self.body(images)
        maps = [F.normalize(x, dim=1) * self.norm]
        for deeper in self.deeper:
            x = deeper(x)
            maps.append(x)
        made = [head(one).permute(0, 2, 3, 1) for head, one in zip(self.heads, maps)]
        made = torch.cat([one.reshape(len(images), -1, 4 + self.classes) for one in made], 1).float()
        return made[..., :4], made[..., 4:]

    def wanted(self, boxes, labels):
        """Class and box for each anchor: of the object it covers by half, or whose best anchor it is; 0: of none."""
        low, high = self.anchors[:, :2] - self.anchors[:, 2:] / 2, self.anchors[:, :2] + self.anchors[:, 2:] / 2
        shared = torch.minimum(high[:, None], boxes[:, None, :, 2:]) - torch.maximum(low[:, None], boxes[:, None, :, :2])
        inside = shared.clamp(min=0).prod(-1)
        areas = (boxes[..., 2:] - boxes[..., :2]).prod(-1)[:, None] + self.anchors[:, 2:].prod(-1)[:, None]
        iou = (inside / (areas - inside).clamp(min=1e-9)).masked_fill(labels[:, None] == 0, -1)
        best, which = iou.max(2)
        forced = iou.argmax(1).masked_fill(labels == 0, best.shape[1])  # padding points behind the last anchor
        best, which = F.pad(best, (0, 1)), F.pad(which, (0, 1))
        best.scatter_(1, forced, 2.0)
        which.scatter_(1, forced, torch.arange(labels.shape[1], device=labels.device).expand_as(forced).contiguous())
        best, which = best[:, :-1], which[:, :-1]
        classes = labels.gather(1, which).masked_fill(best < 0.5, 0)
        return classes, boxes.gather(1, which[..., None].expand(-1, -1, 4))

    def forward(self, images, boxes, labels):
        """boxes: corners in pixels, padded to the most of the batch; labels: padded with 0."""
        if labels.shape[1] == 0:
            boxes, labels = boxes.new_zeros(len(images), 1, 4), labels.new_zeros(len(images), 1)
        offsets, scores = self.predict(images)
        with torch.no_grad():
            classes, boxes = self.wanted(boxes.float() / self.SIZE, labels.long())
            middles, sides = (boxes[..., :2] + boxes[..., 2:]) / 2, (boxes[..., 2:] - boxes[..., :2]).clamp(min=1e-4)
            at, wide = self.anchors[:, :2], self.anchors[:, 2:]
            far = torch.cat([(middles - at) / wide * 10, (sides / wide).log() * 5], -1)
        there = classes > 0
        count = there.sum(1, keepdim=True)
        regress = (F.smooth_l1_loss(offsets, far, reduction="none").sum(-1) * there).sum()
        each = F.cross_entropy(scores.flatten(0, 1), classes.flatten(), reduction="none").view_as(there)
        with torch.no_grad():
            ranks = each.masked_fill(there, 0).sort(1, descending=True)[1].argsort(1)
            used = there | (ranks < 3 * count)
        return (regress + (each * used).sum()) / count.sum().clamp(min=1)


class Rnnt(nn.Module):
    """RNN-T of MLPerf: two and three LSTMs of 1,024 with two frames stacked in between, a prediction net of two LSTMs of
    512, a joint of 512. The loss takes the blank's and the next piece's probability at every frame and piece, as the
    transducer's does, but sums them without following paths, which is a small part of the work."""

    def __init__(self, hidden=1024, joint=512, pieces=1024, features=240):
        super().__init__()
        self.first = nn.LSTM(features, hidden, 2, batch_first=True)
        self.second = nn.LSTM(2 * hidden, hidden, 3, batch_first=True)
        self.embed = nn.Embedding(pieces, joint)
        self.predict = nn.LSTM(joint, joint, 2, batch_first=True)
        self.left, self.right, self.last = nn.Linear(hidden, joint), nn.Linear(joint, joint), nn.Linear(joint, pieces)

    def forward(self, frames, lengths, pieces, sizes):
        heard = self.first(F.pad(frames, (0, 0, 0, frames.shape[1] % 2)))[0]
        heard = self.second(heard.reshape(len(heard), heard.shape[1] // 2, -1))[0]
        said = self.predict(self.embed(F.pad(pieces, (1, 0))))[0]
        scores = self.last(F.relu(self.left(heard)[:, :, None] + self.right(said)[:, None]))
        whole = scores.float().logsumexp(-1)
        following = F.pad(pieces, (0, 1))[:, None, :, None].expand(-1, scores.shape[1], -1, -1)
        each = 2 * whole - scores[..., 0] - scores.gather(-1, following)[..., 0]
        heard_too = torch.arange(scores.shape[1], device=frames.device) < (lengths[:, None] + 1) // 2
        said_too = torch.arange(scores.shape[2], device=frames.device) <= sizes[:, None]
        used = heard_too[:, :, None] & said_too[:, None]
        return (each * used).sum() / used.sum()


def pieces_of(texts, kinds):
    """Texts as numbers of word pieces, of three letters each, padded with 0, and how many each has."""
    cut = [[text[at:at + 3].encode() for at in range(0, len(text), 3)] for text in texts]
    made = [torch.tensor([zlib.crc32(piece) % (kinds - 1) + 1 for piece in one]) for one in cut]
    return nn.utils.rnn.pad_sequence(made, batch_first=True), torch.tensor([len(one) for one in made])
