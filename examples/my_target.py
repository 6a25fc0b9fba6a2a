"""Your own model: the model, candidate records, and which of them it was trained on.

engram audit examples/my_target.py --report report.html
"""

import numpy as np

import engram
from engram.data import digits
from engram.models import MLP

records = digits().take(np.arange(1000))  # in your case: engram.dataset(x, y), or engram.data.load("records.npz")
member = np.arange(1000) % 2 == 0  # which records were in the training
recipe = engram.Recipe(MLP(inputs=64, classes=10, width=256), epochs=60)  # how it was trained
model = engram.train.fit(recipe, records.take(member), seed=engram.Seed(1))  # your trained module

target = engram.Target(model, records, member, recipe, name="my digits")
