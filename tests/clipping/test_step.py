"""The private step as its user meets it: noise, budget, empty batches, freezing, and everything that is refused."""

from __future__ import annotations

import copy
import io
import math

import pytest
import torch
from clipping.worlds import Losses, TinyGPT, norms, per_record
from scipy.stats import chi2
from torch import nn

import engram
from engram import Seed, accounting
from engram.accounting.filters import BudgetSpent
from engram.clipping import NotPrivate, poisson
from engram.clipping.settings import MODES
from engram.clipping.totals import LANES, Totals, source


class Purse:
    """A budget of so many steps."""

    def __init__(self, steps):
        self.left, self.seen = steps, []

    def spend(self, event, count=1):
        if count > self.left:
            raise RuntimeError("spent")
        self.left -= count
        self.seen += [event] * count

    def epsilon(self, delta):
        return len(self.seen) * delta


def network(width=4):
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        return nn.Sequential(nn.Linear(width, 6), nn.Tanh(), nn.Linear(6, 3))


def private_of(model, optimiser=None, **how):
    how = {"noise_multiplier": 0.0, "clip_norm": 1.0, "expected_batch": 4} | how
    return engram.private(model, optimiser or torch.optim.SGD(model.parameters(), 1.0), **how)


def batch(n=5, width=4):
    return torch.randn(n, width, generator=torch.Generator().manual_seed(n))


def weights(model):
    return torch.cat([p.detach().flatten().clone() for p in model.parameters()])


def moved(model, work):
    before = weights(model)
    work()
    return before - weights(model)


# noise


def deviation_is(told, deviation):
    """A two-sided chi-square test that errs once in 10 000."""
    n = told.numel()
    statistic = float(told.double().square().sum()) / deviation**2
    return chi2.ppf(5e-5, n) < statistic < chi2.ppf(1 - 5e-5, n)


@pytest.mark.parametrize("gathered", [0, 1, 3])
def test_the_noise_has_the_stated_deviation_once_a_step(gathered):
    """False alarm once in 10 000; 2/3 and 3/2 of the deviation are rejected. An empty batch is noise too."""
    model = network(400)
    private = private_of(model, noise_multiplier=1.5, clip_norm=2.0, expected_batch=10, simulated=Seed(1))

    def work():
        for _ in range(gathered):
            private.backward(0 * Losses(1)(model(batch(3, 400))))
        private.step()

    told, true = moved(model, work), 1.5 * 2.0 / 10
    assert deviation_is(told, true)
    assert not deviation_is(told, true * 2 / 3)
    assert not deviation_is(told, true * 3 / 2)


def test_noise_differs_from_run_to_run_unless_it_is_simulated():
    def once(**how):
        model = network()
        private = private_of(model, noise_multiplier=1.0, **how)
        return moved(model, private.step)

    assert not torch.equal(once(), once())
    assert torch.equal(once(simulated=Seed(3)), once(simulated=Seed(3)))
    assert not torch.equal(once(simulated=Seed(3)), once(simulated=Seed(4)))


def test_noise_is_the_same_however_many_cores_draw_it_and_no_two_stretches_are_alike():
    def drawn(threads):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return Totals([nn.Parameter(torch.zeros(2**18))]).fresh(1.0, source(torch.device("cpu"), Seed(0)))
        finally:
            torch.set_num_threads(before)

    one, two = drawn(1), drawn(2)
    assert torch.equal(one, two)
    stretches = one.view(LANES, -1)
    assert (torch.corrcoef(stretches) - torch.eye(LANES)).abs().max() < 6 / stretches.shape[1] ** 0.5
    assert abs(float(one.std()) - 1) < 6 / (2 * len(one)) ** 0.5


def test_steps_of_one_run_draw_different_noise_and_leave_the_global_generator_alone():
    model = network()
    private = private_of(model, noise_multiplier=1.0)
    state = torch.random.get_rng_state()
    assert not torch.equal(moved(model, private.step), moved(model, private.step))
    assert torch.equal(state, torch.random.get_rng_state())


def test_simulated_noise_carries_no_epsilon():
    private = private_of(network(), noise_multiplier=1.0, simulated=Seed(1), budget=Purse(3))
    private.step()
    with pytest.raises(NotPrivate, match="carries no epsilon"):
        private.epsilon(1e-5)
    assert private.budget.left == 3


# the step


@pytest.mark.parametrize("mode", MODES)
def test_the_divisor_is_the_stated_number_whatever_the_batch(mode):
    model, x = network(), batch(5)
    gradients = per_record(model, x, Losses(2))
    clipped = (1.0 / norms(gradients)).clamp_max(1)
    true = torch.cat([(g * clipped.view(-1, *[1] * (g.ndim - 1))).sum(0).flatten() for g in gradients.values()]) / 7

    def work():
        private = private_of(model, expected_batch=7, mode=mode)
        private.backward(Losses(2)(model(x)))
        private.step()

    torch.testing.assert_close(moved(model, work).double(), true, rtol=1e-4, atol=1e-6)


def test_an_empty_loss_adds_nothing_and_the_step_still_counts():
    model, purse = network(), Purse(5)
    private = private_of(model, budget=purse)

    def work():
        private.backward(Losses(1)(model(batch(5)[:0])))
        private.step()

    assert not moved(model, work).any()
    assert purse.left == 4


def test_zero_grad_drops_the_batch_and_a_step_clears_it():
    model = network()
    private = private_of(model)
    private.backward(Losses(1)(model(batch())))
    private.zero_grad()
    assert not moved(model, private.step).any()
    private.backward(Losses(1)(model(batch())))
    assert moved(model, private.step).any()
    assert not moved(model, private.step).any()
    assert all(p.grad is None for p in model.parameters())


def test_any_optimiser_and_a_schedule():
    model = network()
    optimiser = torch.optim.AdamW(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, 1, 0.5)
    private = private_of(model, optimiser)
    for _ in range(2):
        private.backward(Losses(1)(model(batch())))
        private.step()
        schedule.step()
    assert optimiser.param_groups[0]["lr"] == 0.025


def test_training_learns_and_without_gradients_it_does_not():
    """The negative control trains on losses of weight zero: only noise moves it."""
    stream = torch.Generator().manual_seed(1)
    x = torch.randn(256, 4, generator=stream)
    y = (x[:, 0] > 0).long()

    def accuracy(scale):
        model = network()
        private = private_of(
            model,
            torch.optim.Adam(model.parameters(), 0.02),
            noise_multiplier=0.5,
            expected_batch=64,
            simulated=Seed(2),
        )
        for part in poisson(256, 0.25, steps=60, simulated=Seed(2)):
            private.backward(scale * nn.functional.cross_entropy(model(x[part]), y[part], reduction="none"))
            private.step()
        return (model(x).argmax(1) == y).float().mean()

    assert accuracy(1.0) > 0.9
    assert accuracy(0.0) < 0.8


# freezing


@pytest.mark.parametrize("mode", MODES)
def test_parameters_may_be_frozen_and_unfrozen_between_steps(mode):
    model, x = network(), batch()
    private = private_of(model, mode=mode, clip_norm=float("inf"))
    for frozen in ([0], [], [2], [0]):
        for i in (0, 2):
            model[i].requires_grad_(i not in frozen)
        before = {n: p.detach().clone() for n, p in model.named_parameters()}
        true = {n: g.sum(0) / 4 for n, g in per_record(model, x, Losses(4)).items()}
        private.backward(Losses(4)(model(x)))
        private.step()
        for n, p in model.named_parameters():
            wanted = true.get(n, torch.zeros_like(p).double())
            torch.testing.assert_close((before[n] - p.detach()).double(), wanted, rtol=1e-4, atol=1e-5)


def test_freezing_within_a_batch_is_refused():
    model = network()
    private = private_of(model)
    private.backward(Losses(1)(model(batch())))
    model[0].requires_grad_(False)
    with pytest.raises(NotPrivate, match="in the middle of a logical batch"):
        private.step()


def test_bias_only_training():
    model = network()
    for n, p in model.named_parameters():
        p.requires_grad_(n.endswith("bias"))
    private = private_of(model)
    private.backward(Losses(1)(model(batch())))
    torch.testing.assert_close(private.norms[:, 0], norms(per_record(model, batch(), Losses(1))), rtol=1e-5, atol=0)


# the budget


def test_a_step_after_the_budget_is_spent_is_refused_and_moves_nothing():
    model = network()
    private = private_of(model, noise_multiplier=1.0, rate=0.1, budget=Purse(2))
    private.step()
    private.step()
    before = weights(model)
    with pytest.raises(RuntimeError, match="spent"):
        private.step()
    assert torch.equal(before, weights(model))
    assert private.epsilon(0.5) == 1.0
    assert private.ledger.steps == 2


def test_each_step_is_charged_as_what_it_was():
    from engram.accounting.events import Gaussian, PoissonSampled

    purse = Purse(9)
    private_of(network(), noise_multiplier=1.25, rate=0.1, budget=purse).step()
    private_of(network(), noise_multiplier=1.25, budget=purse).step()
    assert purse.seen == [PoissonSampled(0.1, Gaussian(1.25)), Gaussian(1.25)]


def test_saving_and_loading_in_the_middle_brings_the_budget_back():
    first = private_of(network(), noise_multiplier=1.0, rate=0.1, budget=Purse(5))
    for _ in range(3):
        first.step()
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    again = private_of(network(), noise_multiplier=1.0, rate=0.1, budget=Purse(5))
    again.load_state_dict(torch.load(file, weights_only=True))
    assert again.ledger.counts == first.ledger.counts
    again.step()
    again.step()
    with pytest.raises(RuntimeError, match="spent"):
        again.step()


def test_states_that_would_lose_spending_are_refused():
    model = network()
    private = private_of(model)
    private.backward(Losses(1)(model(batch())))
    with pytest.raises(NotPrivate, match="half gathered"):
        private.state_dict()
    private.step()
    state = private.state_dict()
    with pytest.raises(NotPrivate, match="load before training"):
        private.load_state_dict(state)
    with pytest.raises(ValueError, match="expected the state_dict"):
        private_of(network()).load_state_dict({"model": 1})
    with pytest.raises(NotPrivate, match="cannot become a private one"):
        private_of(network(), simulated=Seed(1)).load_state_dict(state)


def test_epsilon_is_zero_before_the_first_step_and_infinite_without_noise():
    private = private_of(network())
    assert private.epsilon(1e-5) == 0
    private.step()
    assert private.epsilon(1e-5) == math.inf


def test_epsilon_and_its_limit_come_from_the_accountants():
    model = network()
    private = private_of(model, noise_multiplier=1.0, rate=0.05)
    for _ in range(4):
        private.step()
    assert private.epsilon(1e-5) == accounting.epsilon(private.ledger.event(), 1e-5)
    limited = private_of(network(), noise_multiplier=2.0, epsilon=8.0, delta=1e-5)

    def train():
        for _ in range(50):
            limited.step()

    with pytest.raises(BudgetSpent):
        train()
    assert 0 < limited.epsilon(1e-5) <= 8.0


# what is refused


@pytest.mark.parametrize(
    ("loss", "told"),
    [
        (lambda out: out.square().mean(), "one number a record, shape \\(5,\\), got \\(\\)"),
        (lambda out: out.square().mean().view(1), "got \\(1,\\)"),
        (lambda out: out.square(), "got \\(5, 3\\)"),
        (lambda out: out.square().flatten(), "average within each record"),
        (lambda out: out.detach().square().sum(1), "must depend on a trainable parameter"),
        (lambda out: out.argmax(1), "must be a tensor with one number a record"),
    ],
)
def test_losses_of_another_shape_are_refused(loss, told):
    model = network()
    private = private_of(model)
    with pytest.raises((ValueError, TypeError), match=told):
        private.backward(loss(model(batch())))


@pytest.mark.parametrize("mode", ["book-keeping", "ghost"])
@pytest.mark.parametrize(
    "mixing",
    [
        lambda out: (out - out.mean(0)).square().sum(1),
        lambda out: out.square().sum(1).mean().expand(5),
        lambda out: out.square().sum(1).cumsum(0),
    ],
)
def test_losses_that_mix_records_are_refused(mixing, mode):
    model = network()
    private = private_of(model, mode=mode)
    with pytest.raises(NotPrivate, match="must keep records apart"):
        private.backward(mixing(model(batch())))
    with pytest.raises(NotPrivate, match="batch is incomplete"):
        private.step()


class Places(nn.Module):
    """Adds an embedding of positions that has no batch dimension."""

    def __init__(self):
        super().__init__()
        self.places = nn.Embedding(9, 3)

    def forward(self, x):
        return x + self.places(torch.arange(x.shape[1]))


def test_as_many_records_as_positions_at_once_are_refused_not_guessed():
    """From the shapes alone nobody could tell positions from records."""
    model = Places()
    private = private_of(model)
    with pytest.raises(NotPrivate, match="places must keep records apart"):
        private.backward(Losses(1)(model(torch.ones(4, 4, 3))))


class Sequence(nn.Module):
    """Positions first."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x):
        return self.inner(x.transpose(0, 1)).transpose(0, 1)


@pytest.mark.parametrize(
    ("positions", "told"), [(6, "records of the batch in its first"), (4, "must keep records apart")]
)
def test_positions_first_are_refused(positions, told):
    model = Sequence()
    private = private_of(model)
    with pytest.raises(NotPrivate, match=told):
        private.backward(Losses(1)(model(torch.ones(4, positions, 3))))


class Outside(nn.Module):
    """Uses a layer's weight behind the layer's back."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x):
        return x @ self.inner.weight.T


@pytest.mark.parametrize("mode", ["book-keeping", "ghost"])
def test_a_parameter_used_behind_its_layer_is_refused(mode):
    model = Outside()
    private = private_of(model, mode=mode)
    with pytest.raises(NotPrivate, match=r"inner\.weight is used outside"):
        private.backward(Losses(1)(model(batch())))


@pytest.mark.parametrize(
    ("layer", "told"),
    [
        (
            lambda: nn.BatchNorm1d(4),
            "1 is a BatchNorm1d, which mixes the records of a batch; replace it with GroupNorm",
        ),
        (lambda: nn.BatchNorm1d(4, affine=False), "BatchNorm1d"),
        (lambda: nn.InstanceNorm1d(4, track_running_stats=True), "statistics of the records"),
        (lambda: nn.LSTM(4, 4), "LSTMCell"),
        (lambda: nn.Embedding(3, 4, max_norm=1.0), "max_norm"),
        (lambda: nn.Embedding(3, 4, sparse=True), "sparse"),
    ],
)
def test_layers_that_cannot_be_handled_are_refused_by_name(layer, told):
    model = nn.Sequential(nn.Linear(4, 4), layer())
    with pytest.raises(NotPrivate, match=told):
        private_of(model)
    assert "forward" not in model[0].__dict__


def test_a_layer_without_a_shape_is_refused_by_name():
    model = nn.Sequential(nn.LazyLinear(4))
    with pytest.raises(NotPrivate, match="0 is a LazyLinear, whose parameters have no shape yet"):
        private_of(model, torch.optim.SGD([nn.Parameter(torch.ones(1))], 1.0))


def test_an_unknown_module_with_dropout_is_refused_by_name():
    model = nn.Sequential(nn.Linear(4, 4), nn.MultiheadAttention(4, 1, dropout=0.5, batch_first=True))
    x = torch.ones(3, 2, 4)
    private = private_of(model[1], torch.optim.SGD(model[1].parameters(), 1.0))
    with pytest.raises(NotPrivate, match="MultiheadAttention"):
        private.backward(Losses(1)(model[1](x, x, x)[0]))


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"clip_norm": 0}, "clip_norm must be positive, got 0; use float\\('inf'\\) for no clipping"),
        ({"clip_norm": -1.0}, "clip_norm must be positive"),
        ({"clip_norm": float("nan")}, "clip_norm must be positive"),
        ({"clip_norm": float("inf"), "noise_multiplier": 1.0}, "state a finite clip_norm"),
        ({"noise_multiplier": -1.0}, "noise_multiplier must be at least 0"),
        ({"noise_multiplier": float("nan")}, "noise_multiplier must be at least 0"),
        ({"expected_batch": 0}, "expected_batch must be positive"),
        ({"rate": 1.5}, "rate must lie in"),
        ({"mode": "gost"}, "did you mean ghost"),
        ({"clipping": "flt"}, "did you mean flat"),
        ({"epsilon": 1.0}, "epsilon and delta together"),
    ],
)
def test_wrong_settings_are_refused(how, told):
    with pytest.raises(ValueError, match=told):
        private_of(network(), **how)


def test_an_optimiser_of_other_parameters_is_refused():
    model, other = network(), network()
    with pytest.raises(ValueError, match="parameters of the model only, got 4 of another"):
        private_of(model, torch.optim.SGD(other.parameters(), 1.0))
    with pytest.raises(ValueError, match=r"0\.weight is missing \(2 in all\)"):
        private_of(model, torch.optim.SGD(model[2].parameters(), 1.0))
    with pytest.raises(TypeError, match="LBFGS"):
        private_of(model, torch.optim.LBFGS(model.parameters()))


def test_a_plain_backward_is_refused():
    model = network()
    private_of(model)
    with pytest.raises(NotPrivate, match=r"expected private\.backward"):
        Losses(1)(model(batch())).sum().backward()


@pytest.mark.parametrize("mode", MODES)
def test_a_record_without_a_finite_gradient_stops_the_run(mode):
    model = network()
    private = private_of(model, mode=mode)
    x = batch()
    x[1, 2] = float("inf")
    with pytest.raises(NotPrivate, match="not finite"):
        private.backward(model(x).square().sum(1))


def test_a_second_private_step_on_one_model_is_refused_and_release_allows_it():
    model = network()
    first = private_of(model)
    with pytest.raises(ValueError, match="private already"):
        private_of(model)
    first.release()
    private_of(model)


# the model stays what it was


def test_evaluation_copies_and_state_are_those_of_an_ordinary_model():
    model, x = network(), batch()
    names, before = list(model.state_dict()), model(x)
    private = private_of(model)
    with torch.no_grad():
        assert torch.equal(model(x), before)
    assert torch.equal(model(x), before)
    assert list(model.state_dict()) == names
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin[0].weight.zero_()
        twin[2].weight.zero_()
    assert not torch.equal(twin(x), model(x))
    twin(x).sum().backward()  # an ordinary model
    assert twin[0].weight.grad is not None
    private.release()
    model(x).sum().backward()
    assert model[0].weight.grad is not None


@pytest.mark.parametrize("mode", ["book-keeping", "ghost"])
def test_activation_checkpointing(mode):
    from torch.utils.checkpoint import checkpoint

    class Checked(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network()

        def forward(self, x):
            return checkpoint(self.inner, x.requires_grad_(), use_reentrant=False)

    model = Checked()
    private = private_of(model, mode=mode)
    private.backward(Losses(1)(model(batch())))
    true = norms(per_record(model.inner, batch(), Losses(1)))
    torch.testing.assert_close(private.norms[:, 0], true, rtol=1e-5, atol=0)


@pytest.mark.parametrize("mode", ["book-keeping", "ghost"])
def test_bfloat16_autocast(mode):
    """Norms as near as bfloat16 is; the clipped sum of one record stays within the bound."""
    model = TinyGPT(width=16)
    x = torch.randint(11, (4, 8), generator=torch.Generator().manual_seed(1))
    true = norms(per_record(model, x, Losses(1)))
    private = private_of(model, mode=mode, expected_batch=1, clip_norm=0.1)
    for i in range(4):
        with torch.autocast("cpu", torch.bfloat16):
            loss = Losses(1)(model(x[i : i + 1]))
        private.backward(loss.float())
        assert private._batch.total().norm() <= 0.1
        private.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = Losses(1)(model(x))
    private.backward(loss.float())
    torch.testing.assert_close(private.norms[:, 0], true, rtol=0.05, atol=0)


def test_parameters_in_bfloat16():
    model, x = network().bfloat16(), batch().bfloat16()
    true = norms(per_record(model, x, Losses(1)))
    private = private_of(model, noise_multiplier=1.0)
    private.backward(Losses(1)(model(x)))
    torch.testing.assert_close(private.norms[:, 0], true, rtol=0.05, atol=0)
    private.step()
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


def test_evaluation_between_forward_and_backward():
    model = network()
    private = private_of(model)
    loss = Losses(1)(model(batch()))
    with torch.no_grad():
        model(batch(9))
    private.backward(loss)
    torch.testing.assert_close(private.norms[:, 0], norms(per_record(model, batch(), Losses(1))), rtol=1e-5, atol=0)


def test_a_compiled_model_gives_the_same_norms():
    model, x = network(), batch()
    true = norms(per_record(model, x, Losses(1)))
    compiled = torch.compile(model, backend="aot_eager")
    private = private_of(compiled, torch.optim.SGD(model.parameters(), 1.0))
    for n in (5, 3):
        private.backward(Losses(1)(compiled(x[:n])))
        torch.testing.assert_close(private.norms[:, 0], true[:n], rtol=1e-5, atol=0)
    private.step()
