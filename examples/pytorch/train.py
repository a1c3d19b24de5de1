"""Trains a small network on all processes of a job. It goes on from the checkpoint in the
folder CHECKPOINTS, if there is one."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = int(os.environ.get("STEPS", "200"))


def main():
    gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if gpu else "gloo")  # by MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cpu")
    if gpu:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)

    torch.manual_seed(0)  # the same network everywhere
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    folder = os.path.expanduser(os.environ.get("CHECKPOINTS", "~/checkpoints"))
    saved, begin = os.path.join(folder, "last.pt"), 0
    if os.path.exists(saved):
        state = torch.load(saved, map_location=device, weights_only=True)
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        begin = state["step"]
    model = DistributedDataParallel(net, device_ids=[device.index] if gpu else None)

    data = torch.Generator().manual_seed(1 + rank)  # other data on each process
    for step in range(begin, STEPS):
        x = torch.randn(512, 64, generator=data).to(device)
        loss = torch.nn.functional.mse_loss(model(x), x.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()  # which averages the gradients of all processes
        optimizer.step()
        if rank == 0 and (step + 1) % 50 == 0:
            print(f"step {step + 1} on {world} processes: loss {loss.item():.4f}", flush=True)
            os.makedirs(folder, exist_ok=True)
            torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}, saved + ".new")
            os.replace(saved + ".new", saved)  # whole, or not at all
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
