"""The driver of Tests/Kernel/run: makes the guest, boots it, and tells how its cases went."""

import argparse, fnmatch, itertools, os, platform, re, shutil, signal, subprocess, sys, tempfile, threading, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import checks
from debian import Failure, Unavailable, run
from guest import Guest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bindrune-kernel"
PROGRAMS = ["bindrune", "bindruned", "InteropPeripheral", "KernelCentral", "KernelChannel", "KernelNotifier", "HeartRateCentral", "HeartRatePeripheral"]
SUITES = {"bookworm": "Linux 6.1, BlueZ 5.66", "trixie": "Linux 6.12, BlueZ 5.82"}
BOOT_LIMIT = 120  # seconds until the guest is ready; 3 where the machine is idle
CASE_LIMIT = 60  # seconds; a case that needs more says so in its first line: `# up to 120 s: …`
HANG_MARGIN = 30  # seconds beyond a case's limit, which the guest enforces itself, until it counts as hung

started = time.monotonic()


def say(text):
    print(f"# {time.monotonic() - started:5.1f} s  {text}", file=sys.stderr, flush=True)


def main():
    options = arguments()
    cases = find_cases(options.case)
    if options.list:
        for case in cases:
            print(f"{case.name:34} {case.about}")
        return 0
    if not cases:
        print("no such case; --list names them", file=sys.stderr)
        return 2
    try:
        if platform.machine() != "x86_64" or not Path("/usr/bin/dpkg-deb").exists():
            raise Unavailable("this is not Debian for amd64")
        install_missing({"qemu-system-x86_64": "qemu-system-x86", "xz": "xz-utils", "strip": "binutils"})
        programs = static_programs(build=not options.skip_build)
        guest = Guest(CACHE / options.suite, options.suite, say)
        guest.ensure()
        return report(options, cases, guest, programs)
    except Unavailable as reason:
        print(reason)
        return 77
    except Failure as reason:
        print(reason, file=sys.stderr)
        return 1


def arguments():
    suites = ", ".join(f"{name} ({what})" for name, what in SUITES.items())
    parser = argparse.ArgumentParser(
        prog="Tests/Kernel/run", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Runs Bindrune's cases on a real Linux kernel under qemu, with BlueZ as the peer.",
        epilog=f"""What is downloaded and built of the guest stays in
{CACHE}
and is made again when that folder is removed. A failing case leaves its log, traces and what every program in it said
in the output folder, with the guest's console and kernel messages.""")
    parser.add_argument("--suite", choices=SUITES, default="bookworm", help=f"Debian's release: {suites}; default bookworm")
    parser.add_argument("--case", action="append", metavar="PATTERN", default=[], help="only the cases whose name has this in it or matches it (*, ?); several add up")
    parser.add_argument("--list", action="store_true", help="name the cases and end")
    parser.add_argument("--skip-build", action="store_true", help="take the programs as they were built last")
    parser.add_argument("--output", type=Path, metavar="DIR", help="where logs and traces go (default: SUITE/output in the cache)")
    return parser.parse_args()


# The cases


class Case:
    """A function `case_NAME() { # what it shows` of cases/FILE.sh, called FILE/NAME."""

    def __init__(self, file, function, about, limit):
        self.file, self.function, self.about, self.limit = file, function, about, limit
        self.name = f"{file.stem}/{function.removeprefix('case_').replace('_', '-')}"

    def matches(self, patterns):
        return not patterns or any(pattern in self.name or fnmatch.fnmatch(self.name, pattern) for pattern in patterns)


def find_cases(patterns):
    cases = []
    for file in sorted((HERE / "cases").glob("*.sh")):
        for function, about in re.findall(r"^(case_\w+)\(\) \{ *(?:# *(.*))?$", file.read_text(), re.M):
            limit = re.match(r"up to (\d+) s: ", about)
            cases.append(Case(file, function, about, int(limit[1]) if limit else CASE_LIMIT))
    return [case for case in cases if case.matches(patterns)]


# What the run needs of this machine


def install_missing(programs):
    missing = [package for program, package in programs.items() if not shutil.which(program)]
    if not missing:
        return
    if os.geteuid() != 0:
        raise Unavailable(f"missing, and not root: {' '.join(missing)}")
    say(f"installing {' '.join(missing)}")
    run("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", "update")
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    run("apt-get", "-qq", "-y", "-o", "DPkg::Lock::Timeout=300", "install", "--no-install-recommends", *missing)


def static_programs(build):
    """The programs under test, which need nothing of the guest."""
    # A folder of its own, or the other flags would have everything built anew in the usual one, back and forth.
    scratch = ROOT / ".build" / "static"
    if build:
        say("building " + ", ".join(PROGRAMS))
        run(ROOT / "Scripts" / "static")
    found = [scratch / "release" / name for name in PROGRAMS]
    absent = [path.name for path in found if not path.exists()]
    if absent:
        raise Failure(f"{', '.join(absent)} not built: leave --skip-build out")
    return found


# Boots


class Boot:
    """One life of the guest: runs `cases` in order and calls `ended` with each and its verdict, None where it passed.
    `remaining` are those that it did not come to."""

    is_over = threading.Event()  # this run: a boot that goes on ends its guest

    def __init__(self, guest, cases, share, ended):
        self.guest, self.share, self.ended = guest, share, ended
        self.remaining = list(cases)
        self.current, self.deadline = None, time.monotonic() + BOOT_LIMIT
        # A boot's own files are called after its cases' file; after a crash there is a second one.
        self.name = next(name for number in itertools.count(1) if not (share / f"{(name := f'{cases[0].file.stem}-{number}')}-console.txt").exists())
        (share / f"{self.name}-plan").write_text("".join(f"{case.name} {case.file.name} {case.function} {case.limit}\n" for case in cases))
        (share / f"{self.name}-progress").write_text("")

    def run(self):
        console = (self.share / f"{self.name}-console.txt").open("wb")
        qemu = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT)
        try:
            with (self.share / f"{self.name}-progress").open() as progress:
                while not Boot.is_over.is_set():
                    has_ended = qemu.poll() is not None
                    for line in progress:
                        self.told(line.split())
                    if has_ended:
                        return self.broken(f"the guest ended: see {self.name}-console.txt") if self.remaining else None
                    if time.monotonic() > self.deadline:
                        return self.broken("the guest hung" if self.current else f"the guest was not ready in {BOOT_LIMIT} s")
                    time.sleep(0.1)
        finally:
            qemu.kill()
            qemu.wait()
            console.close()

    def command(self):
        # Nested virtualisation that only opens /dev/kvm does not boot this kernel.
        has_kvm = os.access("/dev/kvm", os.W_OK) and re.search(r"^flags.*\b(vmx|svm)\b", Path("/proc/cpuinfo").read_text(), re.M)
        return ["qemu-system-x86_64", "-machine", "pc", "-accel", "kvm" if has_kvm else "tcg", "-cpu", "host" if has_kvm else "max",
                "-m", "1024", "-nodefaults", "-nographic", "-serial", "stdio", "-no-reboot", "-kernel", self.guest.kernel,
                "-initrd", self.guest.initrd, "-append", f"console=ttyS0 panic=-1 loglevel=4 boot_name={self.name}",
                "-virtfs", f"local,path={self.share},mount_tag=share,security_model=none", "-device", "virtio-rng-pci"]

    def told(self, words):
        match words:
            case ["ready", release]:
                say(f"{self.name}: the guest is up, Linux {release}")
                self.deadline = time.monotonic() + HANG_MARGIN
            case ["begin", _]:
                self.current = self.remaining.pop(0)
                self.deadline = time.monotonic() + self.current.limit + HANG_MARGIN
            case ["end", _, status]:
                case, self.current = self.current, None
                self.deadline = time.monotonic() + HANG_MARGIN
                self.ended(case, self.verdict(case, int(status)))

    def verdict(self, case, status):
        folder = self.share / "results" / case.name
        if status == 137:
            return f"not done after {case.limit} s"
        if status != 0:
            why = folder / "why"
            return why.read_text(errors="replace").strip() if why.exists() else f"its script ended with status {status}"
        check = getattr(checks, case.name.replace("/", "_").replace("-", "_"), None)
        return check(folder) if check else None

    def broken(self, why):
        """The case that ran fails; without one, all that remain do."""
        victims = [self.current] if self.current else self.remaining
        if not self.current:
            self.remaining = []
        for case in victims:
            self.ended(case, why)


def report(options, cases, guest, programs):
    folder = options.output or guest.directory / "output"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    counts = {True: 0, False: 0}

    def ended(case, why):
        counts[why is None] += 1
        print(f"PASS {case.name}" if why is None else f"FAIL {case.name}: {why}", flush=True)
        log = folder / "results" / case.name / "log"
        if why is not None and log.exists():
            for line in log.read_text(errors="replace").splitlines()[-12:]:
                print("     | " + line[:300], flush=True)

    for name in ["guest", "cases"]:
        shutil.copytree(HERE / name, folder / name)
    (folder / "bin").mkdir()
    for path in programs:
        run("strip", "-o", folder / "bin" / path.name, path)  # the guest has them in its memory
    (folder / "results").mkdir()
    say(f"{', '.join(guest.about())}: {len(cases)} cases")
    files = [[case for case in cases if case.file == file] for file in dict.fromkeys(case.file for case in cases)]

    def boot_until_done(waiting):
        while waiting and not Boot.is_over.is_set():
            boot = Boot(guest, waiting, folder, ended)
            boot.run()
            waiting = boot.remaining

    # A guest has one processor, and this machine may have more: a file beside another, the longest first.
    with ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as executor:
        try:
            for future in [executor.submit(boot_until_done, file) for file in sorted(files, key=len, reverse=True)]:
                future.result()
        finally:
            Boot.is_over.set()
    shutil.rmtree(folder / "bin")
    if counts[False]:
        say(f"logs and traces: {folder}")
    print(f"{counts[True]} passed, {counts[False]} failed")
    return 0 if counts[True] and not counts[False] else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
