#!/usr/bin/python3
"""Prints where this Python looks for packages beneath a prefix, relative to it: packages_dir.py PREFIX

Of Debian's Python: lib/python3/dist-packages for /usr, lib/python3.11/dist-packages for /usr/local, and
lib/python3.11/site-packages for ~/.local. Beneath other prefixes it looks nowhere, unless PYTHONPATH says so; for them
lib/python3/dist-packages.
"""
import os
import site
import sys

FOLDERS = [os.path.relpath(folder, sys.argv[1]) for folder in (*site.getsitepackages(), site.getusersitepackages())]
# Beneath /usr there is /usr/local as well.
print(next((folder for folder in FOLDERS if folder.startswith("lib/")), "lib/python3/dist-packages"))
