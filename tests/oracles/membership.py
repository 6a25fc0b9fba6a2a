"""Slow, literal transcriptions of the membership papers: one loop a sum, one line an equation."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma, polygamma
from scipy.stats import norm, t


def lira_online(phi, told, member):
    """Carlini et al. 2022, Algorithm 1: phi[record], told[model, record], member[model, record]."""
    scores = []
    for x in range(len(phi)):
        ins = [told[f][x] for f in range(len(told)) if member[f][x]]
        outs = [told[f][x] for f in range(len(told)) if not member[f][x]]
        p_in = norm.logpdf(phi[x], np.mean(ins), np.std(ins))
        p_out = norm.logpdf(phi[x], np.mean(outs), np.std(outs))
        scores.append(p_in - p_out)
    return np.array(scores)


def lira_online_fixed(phi, told, member):
    """The same with one variance for all IN scores, and one for all OUT scores, each about its record's own mean."""
    ins = [[told[f][x] for f in range(len(told)) if member[f][x]] for x in range(len(phi))]
    outs = [[told[f][x] for f in range(len(told)) if not member[f][x]] for x in range(len(phi))]
    s_in = math.sqrt(np.mean([(v - np.mean(c)) ** 2 for c in ins for v in c]))
    s_out = math.sqrt(np.mean([(v - np.mean(c)) ** 2 for c in outs for v in c]))
    return np.array(
        [
            norm.logpdf(phi[x], np.mean(ins[x]), s_in) - norm.logpdf(phi[x], np.mean(outs[x]), s_out)
            for x in range(len(phi))
        ]
    )


def lira_offline_cdf(phi, told, member):
    """Section V: 1 - Pr[Z > phi], Z ~ N(mu_out, s_out^2), as -log of what is subtracted."""
    scores = []
    for x in range(len(phi)):
        outs = [told[f][x] for f in range(len(told)) if not member[f][x]]
        scores.append(-norm.logsf(phi[x], np.mean(outs), np.std(outs)))
    return np.array(scores)


def lira_offline_density(phi, told, member):
    scores = []
    for x in range(len(phi)):
        outs = [told[f][x] for f in range(len(told)) if not member[f][x]]
        scores.append(-norm.logpdf(phi[x], np.mean(outs), np.std(outs)) - 0.5 * math.log(2 * math.pi))
    return np.array(scores)


def rmia(p, told, member, gamma, offline_a=None):
    """Zarifzadeh et al. 2024, equations 3 and 4: p[record], told[model, record]."""

    def prior(x):
        ins = [told[f][x] for f in range(len(told)) if member[f][x]]
        outs = [told[f][x] for f in range(len(told)) if not member[f][x]]
        if offline_a is None:
            return (np.mean(ins) + np.mean(outs)) / 2
        p_in = offline_a * np.mean(outs) + 1 - offline_a
        return (p_in + np.mean(outs)) / 2

    def likelihood_ratio(x, z):
        if x == z:
            return 0.0
        return math.log(p[x]) - math.log(prior(x)) - math.log(p[z]) + math.log(prior(z))

    n = len(p)
    return np.array([sum(likelihood_ratio(x, z) >= math.log(gamma) for z in range(n)) / n for x in range(n)])


def taylor_softmax(probabilities, label, order=4, margin=0.6, temperature=2.0):
    """The soft-margin Taylor softmax of one record, from its probabilities."""
    logits = np.log(probabilities)
    logits = (logits - logits.mean()) / temperature

    def apx(a):
        return sum(a**i / math.factorial(i) for i in range(order + 1))

    own = apx(logits[label] - margin)
    return own / (own + sum(apx(c) for k, c in enumerate(logits) if k != label))


def bavaria(phi, told, member, predictive):
    """Posterior predictive of a normal with flat mean and inverse gamma variance, its prior by Smyth's moments."""

    def side(chosen):
        n = [int(sum(chosen[f][x] for f in range(len(told)))) for x in range(len(phi))]
        values = [[told[f][x] for f in range(len(told)) if chosen[f][x]] for x in range(len(phi))]
        s2 = [np.var(v, ddof=1) for v in values]
        e = [math.log(s) - digamma((k - 1) / 2) + math.log((k - 1) / 2) for s, k in zip(s2, n, strict=True)]
        spread = np.var(e, ddof=1) - np.mean([polygamma(1, (k - 1) / 2) for k in n])
        d0 = 2 * brentq(lambda half: polygamma(1, half) - spread, 1e-6, 1e8)
        s0 = math.exp(np.mean(e) + digamma(d0 / 2) - math.log(d0 / 2))
        for x in range(len(phi)):
            df = d0 + n[x] - 1
            variance = (d0 * s0 + (n[x] - 1) * s2[x]) / df
            scale = math.sqrt(variance * (1 + 1 / n[x]))
            law = t(df, np.mean(values[x]), scale) if predictive == "student" else norm(np.mean(values[x]), scale)
            yield law.logpdf(phi[x])

    return np.array(list(side(member))) - np.array(list(side(~member)))


def area(values, member):
    """Every pair of a member and a non-member: 1 if the member scores higher, 1/2 if equal."""
    pairs = [(m > o) + 0.5 * (m == o) for m in values[member] for o in values[~member]]
    return sum(pairs) / len(pairs)


def tpr_at(values, member, fpr):
    """The best true positive rate over all thresholds whose false positive rate is low enough."""
    best = 0.0
    for threshold in [*sorted(set(values)), np.inf]:
        claimed = values >= threshold
        if claimed[~member].mean() <= fpr + 1e-12:
            best = max(best, claimed[member].mean())
    return best


def best_balanced_accuracy(values, member):
    return max(((values > c)[member].mean() + (values <= c)[~member].mean()) / 2 for c in [-np.inf, *values])


def softmin_threshold(told, member, temperature):
    """Sablayrolles et al. 2019: tau(x) = -T log of the mean of exp(-loss / T) over models without x."""
    found = []
    for x in range(len(told[0])):
        outs = [told[f][x] for f in range(len(told)) if not member[f][x]]
        if temperature == math.inf:
            found.append(np.mean(outs))
        else:
            found.append(-temperature * math.log(np.mean([math.exp(-v / temperature) for v in outs])))
    return np.array(found)


def entropy(answer):
    """Salem et al. 2019: -sum p log p."""
    return -sum(p * math.log(p) for p in answer)


def modified_entropy(answer, label):
    """Song, Mittal 2021, equation 9: -(1 - F_y) log F_y - sum over i other than y of F_i log(1 - F_i)."""
    total = -(1 - answer[label]) * math.log(answer[label])
    for i in range(len(answer)):
        if i != label:
            total -= answer[i] * math.log(1 - answer[i])
    return total


def margin(answer, label):
    """Carlini et al. 2022, section IV-C in its stable form: log f_y - log of the sum of f over all other classes."""
    return math.log(answer[label]) - math.log(sum(answer[i] for i in range(len(answer)) if i != label))
