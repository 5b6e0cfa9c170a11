#!/usr/bin/env python3
"""Installs RootCanal, Android's virtual controllers, from PyPI in a folder, and prints the path of its program.

rootcanal.py FOLDER     status 0, or 77 and one sentence where it cannot be had

To be run by the Python of the environment that it is to be installed in. RootCanal needs glibc 2.39 or later: where this
machine's is older, Debian 13's libraries are unpacked beside it; nothing of the machine is changed.
"""
import importlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.append(str(HERE.parent / 'Kernel'))
import debian  # noqa: E402

VERSION, GLIBC, SUITE, LIBRARIES = '1.13.0', (2, 39), 'trixie', ['libc6', 'libstdc++6', 'libgcc-s1']


def installed():
    try:
        return importlib.metadata.version('rootcanal') == VERSION
    except importlib.metadata.PackageNotFoundError:
        return False


def needs_libraries():
    return tuple(int(part) for part in os.confstr('CS_GNU_LIBC_VERSION').split()[1].split('.')[:2]) < GLIBC


def prepare(folder):
    """The program, which listens on 127.0.0.1 only."""
    if (platform.system(), platform.machine()) != ('Linux', 'x86_64'):
        raise debian.Unavailable(f'it has no program for {platform.system()} on {platform.machine()}')
    program = folder / f'rootcanal-{VERSION}'
    if program.exists() and installed():
        return program
    print(f'# installing RootCanal {VERSION} into {folder}', file=sys.stderr, flush=True)
    if not installed():
        debian.run(sys.executable, '-m', 'pip', 'install', '-q', '--disable-pip-version-check', f'rootcanal=={VERSION}')
        importlib.invalidate_caches()
    binary = importlib.metadata.distribution('rootcanal').locate_file('rootcanal/bin/linux-x86_64/rootcanal')
    binary.chmod(0o755)
    compiler = next((found for found in map(shutil.which, ['cc', 'gcc', 'clang']) if found), None)
    if not compiler:
        raise debian.Unavailable('there is no C compiler here: install gcc')
    loopback = folder / 'loopback.so'
    debian.run(compiler, '-shared', '-fPIC', '-O1', '-o', loopback, HERE / 'loopback.c', '-ldl')
    command = f'LD_PRELOAD={loopback} exec {binary}'
    if needs_libraries():
        libraries = folder / 'libraries'
        shutil.rmtree(libraries, ignore_errors=True)
        with debian.apt(SUITE) as apt:
            apt.fetch_alone(*LIBRARIES)
            for package in apt.fetched:
                debian.run('dpkg-deb', '--extract', package, libraries)
        libraries /= 'usr/lib/x86_64-linux-gnu'
        command = f'exec {libraries}/ld-linux-x86-64.so.2 --preload {loopback} --library-path {libraries} {binary}'
    program.write_text(f'#!/bin/sh\n{command} "$@"\n')
    program.chmod(0o755)
    return program


if __name__ == '__main__':
    try:
        print(prepare(Path(sys.argv[1]).resolve()))
    except (debian.Unavailable, debian.Failure, OSError, subprocess.CalledProcessError) as reason:
        print(f'RootCanal {VERSION} cannot be had here: {str(reason).splitlines()[-1]}', file=sys.stderr)
        sys.exit(77)
