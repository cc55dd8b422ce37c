"""`make audit`: known vulnerabilities (pip-audit) and licences of the installed packages.

Looking up vulnerabilities needs pip-audit and a network connection; without them this part is skipped with a message.
The exit code is 1 if there is a vulnerability, or a licence that is not on the list below.
"""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys

# Permissive licences, and weak copyleft that does not reach code which only imports the package.
ALLOWED = (
    r"MIT|BSD|Apache|ISC|PSF|Python Software Foundation|HPND|Historical Permission|Unlicense|CC0|0BSD|Zlib|MPL|Mozilla"
)
# Packages whose metadata does not state a licence that can be recognised; checked by hand.
KNOWN: dict[str, str] = {}
# The runtime libraries of CUDA, which PyTorch's default build for Linux brings; relatum neither imports nor needs them.
CUDA = re.compile(r"(nvidia|cuda)-")


def licence(package: importlib.metadata.Distribution) -> str:
    """What the metadata says: the SPDX expression, the classifiers, or the first line of the licence field."""
    metadata = package.metadata
    classifiers = [text for text in metadata.get_all("Classifier") or [] if text.startswith("License ::")]
    stated = metadata.get("License-Expression") or "; ".join(text.split(" :: ")[-1] for text in classifiers)
    return stated or (metadata.get("License") or "").strip().split("\n")[0]


def check_licences() -> list[str]:
    """Packages whose licence is unknown or not allowed."""
    problems = []
    for package in importlib.metadata.distributions():
        name = package.metadata["Name"]
        stated = KNOWN.get(name.lower()) or licence(package)
        if CUDA.match(name.lower()):
            continue
        if not re.search(ALLOWED, stated, re.IGNORECASE):
            problems.append(f"{name} {package.version}: licence {stated or 'unknown'!r}")
    return sorted(set(problems))


def check_vulnerabilities() -> int | None:
    """The exit code of pip-audit, or None where it cannot run."""
    command = [sys.executable, "-m", "pip_audit", "--skip-editable", "--progress-spinner", "off", "--timeout", "30"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if "No module named pip_audit" in result.stderr:
        print("vulnerabilities: not checked, pip-audit is not installed (pip install pip-audit)")
        return None
    if result.returncode and re.search(r"Connection|ServiceError|Timeout|Max retries", result.stderr):
        print("vulnerabilities: not checked, the vulnerability service could not be reached")
        return None
    return report(result.stdout + result.stderr, result.returncode)


def report(text: str, code: int) -> int | None:
    """Print what pip-audit found. Packages that it could not look up are not without vulnerabilities: they are named.

    Returns:
        The exit code of pip-audit, or None if it looked up nothing.
    """
    skipped = re.findall(r"could not be audited: (\S+)", text)
    count = len({package.metadata["Name"] for package in importlib.metadata.distributions()})
    if code:
        print(text)
    if len(skipped) >= count - 1:  # all but this package, which is editable
        print(f"vulnerabilities: not checked, the service knows none of the {count} packages")
        return code or None
    if skipped:
        print(f"vulnerabilities: {len(skipped)} of {count} packages could not be checked: {', '.join(skipped)}")
    if not code:
        print(f"vulnerabilities: none known in the other {count - len(skipped)} packages")
    return code


def main() -> int:
    """Print both parts; 0 if nothing is wrong."""
    problems = check_licences()
    names = {package.metadata["Name"].lower() for package in importlib.metadata.distributions()}
    cuda = sum(CUDA.match(name) is not None for name in names)
    print("\n".join(problems) or f"licences: all {len(names) - cuda} packages are permissive or weak copyleft")
    if cuda:
        print(f"licences: {cuda} packages of CUDA, which come with this build of PyTorch, have NVIDIA's licence")
    return int(bool(problems) or bool(check_vulnerabilities()))


if __name__ == "__main__":
    sys.exit(main())
