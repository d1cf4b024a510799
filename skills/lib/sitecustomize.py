"""Let scripts import the packages that this installation has for skills, behind all others. Python runs it first."""

import os
import sys

PACKAGES = "/mnt/skill-packages"

if os.path.isdir(PACKAGES):
    sys.path.append(PACKAGES)
