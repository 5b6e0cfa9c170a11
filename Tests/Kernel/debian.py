"""Debian's packages, of any release, downloaded without being root; nothing is installed."""

import os, re, shutil, subprocess, tempfile
from contextlib import contextmanager
from pathlib import Path


class Unavailable(Exception):
    """This machine cannot do it; the text says why."""


class Failure(Exception):
    """It should have worked; the text says what failed."""


@contextmanager
def apt(suite):
    """The `Apt` of a release, which is removed afterwards with its files."""
    state = Path(tempfile.mkdtemp(prefix="bindrune-apt-"))
    try:
        yield Apt(suite, state)
    finally:
        shutil.rmtree(state, ignore_errors=True)


class Apt:
    """An apt whose own state has nothing installed."""

    def __init__(self, suite, state):
        self.archives = state / "archives"
        for folder in [state / "lists/partial", self.archives / "partial"]:
            folder.mkdir(parents=True)
        (state / "status").touch()
        (state / "sources.list").write_text(repositories(suite))
        options = {
            "Dir::Etc::sourcelist": state / "sources.list", "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::preferences": "/dev/null", "Dir::Etc::preferencesparts": "/dev/null",
            "Dir::State::lists": state / "lists", "Dir::State::status": state / "status", "Dir::Cache": state,
            "Dir::Cache::archives": self.archives, "APT::Architecture": "amd64", "APT::Architectures": "amd64",
            "APT::Sandbox::User": output("id", "-un").strip(), "APT::Keep-Downloaded-Packages": "true",
            "Acquire::Languages": "none", "Acquire::Retries": "3", "Debug::NoLocking": "true",
        }
        self.options = [argument for name, value in options.items() for argument in ("-o", f"{name}={value}")]
        run("apt-get", *self.options, "-qq", "--error-on=any", "update")

    def described(self, package):
        return output("apt-cache", *self.options, "show", "--no-all-versions", package)

    def fetch(self, *packages):
        """With all that they depend on."""
        run("apt-get", *self.options, "-qq", "-y", "--download-only", "--no-install-recommends", "install", *packages)

    def fetch_alone(self, *packages):
        run("apt-get", *self.options, "-qq", "download", *packages, cwd=self.archives)

    @property
    def fetched(self):
        return sorted(self.archives.glob("*.deb"))


def repositories(suite):
    """apt's sources for `suite`: this machine's own, with the suite's name in the place of its own release's."""
    release = {}
    for line in Path("/etc/os-release").read_text().splitlines():
        name, _, value = line.partition("=")
        release[name] = value.strip('"')
    if release.get("ID") != "debian":
        raise Unavailable("apt's sources here are not Debian's")
    names = [release.get("VERSION_CODENAME"), "oldoldstable", "oldstable", "stable", "testing", "unstable", "sid"]
    targets = output("apt-get", "indextargets", "--no-release-info", "--format", "$(IDENTIFIER) $(COMPONENT) $(RELEASE) $(REPO_URI)")
    found = {}
    for target in targets.splitlines():
        words = target.split(" ")
        if words[:2] != ["Packages", "main"] or len(words) != 4:
            continue
        if words[2] in names:
            found.setdefault(suite, words[3])
        elif re.sub("(-security|/updates)$", "", words[2]) in names:
            found.setdefault(suite + "-security", words[3])
    if suite not in found:
        raise Unavailable("apt here has no source for Debian's main component")
    keyring = next((path for path in Path("/usr/share/keyrings").glob("debian-archive-keyring.[gp][gp][gp]")), None)
    if keyring is None:
        raise Unavailable("the package debian-archive-keyring is missing: install it")
    return "".join(f"deb [arch=amd64 signed-by={keyring}] {uri} {name} main\n" for name, uri in found.items())


# Programs of this machine


def run(*command, **options):
    """Runs `command`; prints its output only if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "LC_ALL": "C"}, **options)
    if done.returncode != 0:
        words = done.stdout.decode(errors="replace").strip().splitlines()[-20:]
        raise Failure(f"{command[0]} failed with status {done.returncode}:\n" + "\n".join(words))


def output(*command, text=True):
    return subprocess.run(command, check=True, capture_output=True, text=text, env={**os.environ, "LC_ALL": "C"}).stdout
