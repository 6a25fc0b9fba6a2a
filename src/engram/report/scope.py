"""What the audit covers and what it leaves out: the questions, the adversary, and what was not tried."""

from __future__ import annotations

from engram.attacks import ATTACKS
from engram.defences import DEFENCES
from engram.report import words
from engram.report.dossier import UNDEFENDED, Dossier
from engram.report.page import Child, Safe, bullets, section, table, tag, terms

WANTS = {
    "Gradients": "The records behind the update, and their labels.",
    "Informed": "The one training record of each model that it does not hold.",
}


def questions(told: Dossier) -> Safe:
    """The five questions, and which of them this run asked. A question not asked is a question not answered."""
    asked = told.questions()
    rows = [
        [q.asks, q.leaks, "asked" if q.name in asked else tag("span", "not asked", class_="muted")]
        for q in words.QUESTIONS
    ]
    guards = f"asked of {words.listed(told.defences)}" if told.defences else tag("span", "not asked", class_="muted")
    rows.append(["What would have stopped it?", "defences", guards])
    return section(
        "questions",
        "What was asked",
        tag("p", "Five things a model can give away, and what would prevent it. The verdict speaks of what was asked."),
        table(["Question", "What leaks", "In this run"], rows, class_="plain"),
    )


def threat(told: Dossier) -> Safe:
    """Who the adversary is: what it may ask, what it knows, how much it asked."""
    t = told.target
    access = str(t.get("access", ""))
    knowledge = sorted({str(one.about["knowledge"]) for one in told.told if one.about.get("knowledge")})
    budget = t.get("budget")
    return section(
        "threat",
        "Who the adversary is",
        tag(
            "p",
            "Every number below is what this adversary achieves. It never sees the truth; that is joined afterwards. ",
            "Another adversary, with more access or more knowledge, may do better.",
        ),
        terms(
            [
                ("May ask", f"{access}. {words.ACCESS.get(access, '')}".strip()),
                ("Budget", f"{words.count(budget, 'query', 'queries')}" if budget else "Any number of queries."),
                (
                    "Knows",
                    [tag("span", k[:1].upper() + k[1:] + ".", class_="line") for k in knowledge] or _unmeasured(t),
                ),
                ("Asked", _asked(told)),
                ("Wants", WANTS.get(access, "To say of each candidate record whether the model was trained on it.")),
            ],
            class_="facts",
        ),
    )


def _unmeasured(target: object) -> str:
    return "The candidate records and their labels." if target else words.NULL


def _asked(told: Dossier) -> Child:
    queries = {one.attack: int(one.about.get("queries", 0)) for one in told.told if one.defence == UNDEFENDED}
    if not queries:
        return None
    least, most = min(queries.values()), max(queries.values())
    span = words.count(most, "query", "queries") if least == most else f"{least:,} to {most:,} queries"
    return f"{span} by each attack, of {words.count(told.target.get('records', 0), 'candidate record')}."


def untried(told: Dossier) -> Safe:
    """What the verdict does not rest on, and why not."""
    refused = [_refusal(f.attack, f.defence, f.reason) for f in told.refused()]
    attacks = sorted(set(ATTACKS) - set(told.run.about.get("attacks", {})))
    guards = sorted(set(DEFENCES) - set(told.defences))
    asked = told.questions()
    silent = [q.asks for q in words.QUESTIONS if q.name not in asked]
    return section(
        "untried",
        "What was not tried",
        bullets(
            [
                *refused,
                f"Attacks that were not in the plan: {words.listed(attacks)}." if attacks else None,
                f"Defences that were not in the plan: {words.listed(guards)}." if guards else None,
                f"Questions that were not asked: {' '.join(silent)}" if silent else None,
                f"Adversaries with more than {str(told.target.get('access', 'this access')).lower()}.",
                "Other models of the same training: the audit is of this one.",
            ]
        ),
    )


def _refusal(attack: str, defence: str, reason: str) -> Child:
    behind = f", behind {defence}" if defence else ""
    return [tag("b", attack), f"{behind} could not be tried: {reason}."]
