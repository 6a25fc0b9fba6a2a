"""Two processes, one private step: the same clipped sum as in one, and the noise only once."""

from __future__ import annotations

import os
import tempfile

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from clipping.worlds import Losses, TinyGPT
from torch import nn

import engram
from engram import Seed
from engram.clipping import NotPrivate

RECORDS = 6


def world(kind):
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        model = TinyGPT(tied=True)
    return model, torch.randint(11, (RECORDS, 7), generator=torch.Generator().manual_seed(1)), kind


def stepped(model, wrapped, x, rows, **how):
    """How far the parameters move in two steps, the second of an uneven batch."""
    optimiser = torch.optim.SGD(model.parameters(), 1.0)
    how = {"noise_multiplier": 0.0, "clip_norm": 0.5, "expected_batch": RECORDS} | how
    private = engram.private(wrapped, optimiser, **how)
    before = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
    for own in (rows, rows[1:]):
        if len(own):
            out = wrapped(x[own])
            private.backward((out.tanh() * Losses(3).weights(out)[own].to(out.dtype)).flatten(1).sum(1))
        private.step()
    return before - torch.cat([p.detach().flatten() for p in model.parameters()])


def one_rank(rank, folder):
    os.environ.update(GLOO_SOCKET_IFNAME="lo", MASTER_ADDR="127.0.0.1")
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.set_num_threads(1)
    rows = torch.tensor([[0, 2], [1, 3, 4, 5]][rank]) if rank else torch.tensor([0, 2])
    moves = {}
    for name, how in CASES.items():
        model, x, _ = world(name)
        if rank:
            with torch.no_grad():
                model.last.weight.add_(1)  # DDP, and the private step, begin from the first rank's weights
        moves[name] = stepped(model, nn.parallel.DistributedDataParallel(model), x, rows, **how)
    model, x, _ = world("noise")
    noisy = {"noise_multiplier": 2.0, "simulated": Seed(7)}
    moves["noise"] = stepped(model, nn.parallel.DistributedDataParallel(model), x, rows[:0], **noisy)
    moves["refusal"] = refusal_of_split_parameters()
    torch.save(moves, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def refusal_of_split_parameters():
    from torch.distributed.fsdp import fully_shard

    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (2,)))
    optimiser = torch.optim.SGD(model.parameters(), 1.0)
    try:
        engram.private(model, optimiser, noise_multiplier=0.0, clip_norm=1.0, expected_batch=1)
    except NotPrivate as refusal:
        return str(refusal)
    return "accepted"


CASES = {"book-keeping": {}, "ghost": {"mode": "ghost"}, "per-layer": {"clipping": "per-layer"}}


@pytest.fixture(scope="module")
def told():
    with tempfile.TemporaryDirectory() as folder:
        processes.start_processes(one_rank, (folder,), nprocs=2, start_method="spawn")
        yield [torch.load(f"{folder}/{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize("name", CASES)
def test_two_processes_move_as_one(told, name):
    torch.testing.assert_close(told[0][name], told[1][name], rtol=0, atol=0)
    model, x, _ = world(name)
    optimiser = torch.optim.SGD(model.parameters(), 1.0)
    how = {"noise_multiplier": 0.0, "clip_norm": 0.5, "expected_batch": RECORDS} | CASES[name]
    private = engram.private(model, optimiser, **how)
    before = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
    for rows in (torch.arange(6), torch.tensor([2, 3, 4, 5])):
        out = model(x[rows])
        private.backward((out.tanh() * Losses(3).weights(out)[rows].to(out.dtype)).flatten(1).sum(1))
        private.step()
    moved = before - torch.cat([p.detach().flatten() for p in model.parameters()])
    torch.testing.assert_close(told[0][name], moved, rtol=0, atol=1e-6)


def test_the_noise_is_added_once(told):
    """With two noises the deviation would be sqrt(2) times as large; 5 standard errors apart from both."""
    assert torch.equal(told[0]["noise"], told[1]["noise"])
    n = told[0]["noise"].numel()
    deviation = 2.0 * 0.5 / RECORDS * 2**0.5  # two steps
    ratio = float(told[0]["noise"].std()) / deviation
    assert abs(ratio - 1) < 5 / (2 * n) ** 0.5 < 0.15
    assert abs(ratio / 2**0.5 - 1) > 5 / (2 * n) ** 0.5


def test_fully_sharded_parameters_are_refused_by_name(told):
    assert "0 is a" in told[0]["refusal"]
    assert "split between devices (FSDP)" in told[0]["refusal"]


def test_data_parallel_is_refused():
    model = nn.Linear(2, 2)
    with pytest.raises(TypeError, match="use DistributedDataParallel"):
        engram.private(
            nn.DataParallel(model),
            torch.optim.SGD(model.parameters(), 1.0),
            noise_multiplier=0,
            clip_norm=1.0,
            expected_batch=1,
        )
