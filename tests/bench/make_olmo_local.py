"""make_olmo_local.py OUT GIB: the weights of an OLMo `local` checkpoint of eight ranks: flat parameters of one module per layer, cut in
eight wherever that falls, with the classes of the installed torch."""
import os
import sys

import torch
from torch.distributed.fsdp._flat_param import _ShardParamInfo

RANKS = 8
WIDTH, INNER = 2048, 5461


def layer():
    return {"attn.weight": (3 * WIDTH, WIDTH), "out.weight": (WIDTH, WIDTH), "up.weight": (INNER, WIDTH), "down.weight": (WIDTH, INNER), "norm.weight": (WIDTH + 1,)}


def main():
    out, size = sys.argv[1], float(sys.argv[2])
    shapes = layer()
    numels = [torch.Size(s).numel() for s in shapes.values()]
    whole = sum(numels)
    piece = -(-whole // RANKS)
    layers = max(1, round(size * 2**30 / 4 / whole))
    os.makedirs(os.path.join(out, "model"))
    for rank in range(RANKS):
        begin, end = rank * piece, min(whole, (rank + 1) * piece)
        infos, at = [], 0
        for numel in numels:
            first, last = max(at, begin), min(at + numel, end)
            infos.append(_ShardParamInfo(True, first - begin, last - first, first - at, last - at - 1) if first < last else _ShardParamInfo(False, None, None, None, None))
            at += numel
        modules = []
        for i in range(layers):
            data = torch.empty(piece)
            data[:end - begin] = torch.rand(end - begin)
            data[end - begin:] = 0
            modules.append({"name": "layers.%d" % i, "handles": [{
                "flat_param.data": data, "flat_param._fqns": tuple(shapes), "flat_param._shapes": tuple(torch.Size(s) for s in shapes.values()),
                "flat_param._numels": tuple(numels), "flat_param._shard_numel_padded": piece - (end - begin), "flat_param._shard_param_infos": infos}]})
        torch.save({"modules": modules}, os.path.join(out, "model/rank%d.pt" % rank))
    with open(os.path.join(out, "metadata.yaml"), "w", encoding="ascii") as f:
        f.write("world_size: %d\n" % RANKS)
    with open(os.path.join(out, "config.yaml"), "w", encoding="ascii") as f:
        f.write("run_name: bench\n")


if __name__ == "__main__":
    main()
