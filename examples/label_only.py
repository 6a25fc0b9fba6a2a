"""A service that answers with a label and nothing else, before and behind MemGuard, which changes nothing for it.

engram audit examples/label_only.py --defences memguard --report report.html
"""

from dataclasses import replace

import engram
from engram.target import embedded

target = replace(embedded(), access=engram.Labels, name="digits, labels only")
