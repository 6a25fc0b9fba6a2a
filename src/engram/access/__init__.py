"""What an adversary may ask. A handle has only its own calls, counts them, and never holds the truth.

    Probabilities  the model answers with a probability for every class; hence also with a label
    Labels         it answers with a label, and with nothing else
    Weights        the adversary holds the model, and works on a copy of it
    Informed       it holds released weights and all training records but one, and knows how they were trained
    Gradients      nothing is asked: a participant shared an update of the model's weights, and no record is known

Each carries `Knowledge`: what this adversary knows besides. Shadow models are the adversary's own work: it trains them
from the recipe it knows, so whoever attacks a defended model copies the defence.
"""

from engram.access.answers import Labels, Probabilities
from engram.access.gradients import Gradients
from engram.access.handle import Answer, Candidates, Handle, Knowledge, Lab, OutOfQueries, Rehearsal, Unknown, Unsuited
from engram.access.informed import Informed, Release, Shadows
from engram.access.weights import Weights

IMPLIES: dict[type[Handle], tuple[type[Handle], ...]] = {
    Labels: (Labels,),
    Probabilities: (Probabilities, Labels),
    Weights: (Weights, Probabilities, Labels),
    Informed: (Informed,),
    Gradients: (Gradients,),
}

__all__ = [
    "IMPLIES",
    "Answer",
    "Candidates",
    "Gradients",
    "Handle",
    "Informed",
    "Knowledge",
    "Lab",
    "Labels",
    "OutOfQueries",
    "Probabilities",
    "Rehearsal",
    "Release",
    "Shadows",
    "Unknown",
    "Unsuited",
    "Weights",
]
