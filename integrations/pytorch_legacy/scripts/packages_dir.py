#!/usr/bin/python3
"""Prints where this Python looks for packages beneath a prefix, relative to it: packages_dir.py PREFIX

For Debian's Python: lib/python3/dist-packages for /usr, lib/python3.11/dist-packages for /usr/local, and
lib/python3.11/site-packages for ~/.local. For other prefixes lib/python3/dist-packages, where Python looks only if PYTHONPATH
names it.
"""

import os
import site
import sys

FOLDERS = [
    os.path.relpath(folder, sys.argv[1]) for folder in (*site.getsitepackages(), site.getusersitepackages())
]
# For /usr, folders of /usr/local begin with local/: they are skipped.
print(next((folder for folder in FOLDERS if folder.startswith("lib/")), "lib/python3/dist-packages"))
