"""Files of ranks that say who wrote them: Megatron's args.rank, and the devices of tensors of two files of a rank. The devices are
written without one: torch asks location_tag() for them. Needs torch; run it in this directory."""
import argparse
import os

import torch


def megatron(path):
    g = torch.Generator().manual_seed(1)
    weight = torch.randn(32, 16, generator=g)
    for rank in range(2):
        args = argparse.Namespace(rank=rank, world_size=2, tensor_model_parallel_size=2, pipeline_model_parallel_size=1, num_layers=1)
        os.makedirs(f"{path}/mp_rank_{rank:02}", exist_ok=True)
        model = {"decoder.layers.0.self_attention.linear_qkv.weight": weight[16 * rank:16 * rank + 16].clone()}
        state = {"args": args, "checkpoint_version": 3.0, "iteration": 10, "model": model}
        torch.save(state, f"{path}/mp_rank_{rank:02}/model_optim_rng.pt")


def devices(path):
    """FSDP1: the model says where its shards belong, the optimizer's flat pieces do not."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Shard
    from torch.testing._internal.distributed.fake_pg import FakeStore
    os.makedirs(path, exist_ok=True)
    g = torch.Generator().manual_seed(2)
    weight, moment = torch.randn(4, 8, generator=g), torch.randn(32, generator=g)
    for rank in range(2):
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=2)
        mesh = DeviceMesh("cpu", [0, 1])
        model = {"w": DTensor.from_local(weight[2 * rank:2 * rank + 2].clone(), mesh, [Shard(0)], run_check=False)}
        optimizer = {"state": {0: {"step": torch.tensor(1.0), "exp_avg": moment[16 * rank:16 * rank + 16].clone()}},
                     "param_groups": [{"lr": 0.1, "params": [0]}]}
        torch.serialization.location_tag = lambda storage: f"cuda:{rank}"
        torch.save(model, f"{path}/model_world_size_2_rank_{rank}.pt")
        torch.save(optimizer, f"{path}/optim_world_size_2_rank_{rank}.pt")
        torch.save({"lr_scheduler": None}, f"{path}/extra_state_world_size_2_rank_{rank}.pt")
        torch.distributed.destroy_process_group()


megatron("megatron/iter_0000010")
devices("fsdp1")
