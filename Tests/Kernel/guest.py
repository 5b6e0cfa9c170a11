"""The guest: a Debian kernel and an initramfs with BlueZ, made from Debian's own packages without being root.

    directory/
      packages/*.deb      as downloaded, with everything they depend on
      vmlinuz initrd.gz   what qemu boots
      about               the versions, a line each
"""

import gzip, hashlib, os, re, shutil, stat, subprocess, tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent

# What the guest needs of Debian, and the programs that are taken out of it. btvirt is BlueZ's emulated controller.
PACKAGES = ["bluez", "bluez-test-tools", "busybox-static", "coreutils", "dbus-bin", "dbus-daemon", "libcap2-bin", "util-linux"]
PROGRAMS = ["bluetoothctl", "bluetoothd", "btmgmt", "btmon", "btvirt", "busybox", "dbus-daemon", "dbus-send", "gatttool",
            "hciconfig", "hcitool", "setcap", "setpriv", "stdbuf", "unshare"]

# In the order in which they are loaded, each after what it depends on. Without drbg as a source of random numbers
# ecdh_generic fails its own test, and bluetooth.ko refuses to load; cmac, ecb and algif_* are for btvirt's encryption.
MODULES = ["virtio_pci", "9pnet_virtio", "9p", "virtio-rng", "sha512_generic", "sha256_generic", "hmac", "ctr", "drbg",
           "ecdh_generic", "cmac", "ecb", "algif_hash", "algif_skcipher", "bluetooth", "hci_vhci", "uhid"]

FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nmessagebus:x:100:100::/run:/bin/false\nnobody:x:65534:65534::/:/bin/false\n",
    "etc/group": "root:x:0:\nmessagebus:x:100:\nbluetooth:x:102:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\n",
    "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
    # With its defaults bluetoothd powers every adapter, and then no user channel can be opened.
    "etc/bluetooth/main.conf": "[Policy]\nAutoEnable=false\n",
    "etc/bluetooth/default.conf": "",
}


class Unavailable(Exception):
    """This machine cannot do it, by what it is; the words say why."""


class Failure(Exception):
    """It should have worked; the words say what did not."""


class Guest:
    def __init__(self, directory, suite, say):
        self.directory, self.suite, self.say = directory, suite, say
        self.kernel, self.initrd = directory / "vmlinuz", directory / "initrd.gz"

    def ensure(self):
        """Downloads and builds what is not there yet, or was made from another text of this file."""
        self.directory.mkdir(parents=True, exist_ok=True)
        stamp = self.directory / "stamp"
        text = b"".join(path.read_bytes() for path in [Path(__file__), HERE / "guest" / "init"])
        version = hashlib.sha256(text).hexdigest()
        if stamp.exists() and stamp.read_text() == version:
            return
        stamp.unlink(missing_ok=True)
        packages = self.directory / "packages"
        wanted = self.directory / "wanted"
        if not (wanted.exists() and wanted.read_text() == " ".join(PACKAGES)):
            wanted.unlink(missing_ok=True)
            self.say(f"downloading {self.suite}'s kernel and BlueZ")
            count, size = download(self.suite, packages)
            wanted.write_text(" ".join(PACKAGES))
            self.say(f"downloaded {count} packages, {size >> 20} MB")
        self.say("building the guest")
        build(packages, self.directory)
        stamp.write_text(version)
        self.say("built the guest: " + ", ".join(self.about()))

    def about(self):
        return (self.directory / "about").read_text().splitlines()


# The packages


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


def download(suite, packages):
    """Fetches PACKAGES, the kernel and all they depend on, by an apt whose own state knows of nothing installed."""
    state = Path(tempfile.mkdtemp(prefix="bindrune-apt-"))
    try:
        for folder in ["lists/partial", "archives/partial"]:
            (state / folder).mkdir(parents=True)
        (state / "status").touch()
        (state / "sources.list").write_text(repositories(suite))
        options = {
            "Dir::Etc::sourcelist": state / "sources.list", "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::preferences": "/dev/null", "Dir::Etc::preferencesparts": "/dev/null",
            "Dir::State::lists": state / "lists", "Dir::State::status": state / "status", "Dir::Cache": state,
            "Dir::Cache::archives": state / "archives", "APT::Architecture": "amd64", "APT::Architectures": "amd64",
            "APT::Sandbox::User": output("id", "-un").strip(), "APT::Keep-Downloaded-Packages": "true",
            "Acquire::Languages": "none", "Acquire::Retries": "3", "Debug::NoLocking": "true",
        }
        options = [argument for name, value in options.items() for argument in ("-o", f"{name}={value}")]
        run("apt-get", *options, "-qq", "--error-on=any", "update")
        described = output("apt-cache", *options, "show", "--no-all-versions", "linux-image-amd64")
        kernel = re.search(r"^Depends: (linux-image-\S+)", described, re.M)
        if not kernel:
            raise Failure(f"{suite} has no kernel linux-image-amd64")
        run("apt-get", *options, "-qq", "-y", "--download-only", "--no-install-recommends", "install", *PACKAGES)
        # Of the kernel only the package itself: what makes an initramfs on an installed system is not needed.
        run("apt-get", *options, "-qq", "download", kernel[1], cwd=state / "archives")
        shutil.rmtree(packages, ignore_errors=True)
        packages.mkdir(parents=True)
        found = sorted((state / "archives").glob("*.deb"))
        for path in found:
            shutil.move(path, packages / path.name)
        return len(found), sum(path.stat().st_size for path in packages.iterdir())
    finally:
        shutil.rmtree(state, ignore_errors=True)


# The initramfs


def build(packages, directory):
    unpacked = Path(tempfile.mkdtemp(prefix="unpacked-", dir=directory))
    try:
        for package in packages.iterdir():
            run("dpkg-deb", "--extract", package, unpacked)
        tree = Tree()
        for folder in ["dev", "etc/dbus-1/system.d", "host", "proc", "root", "run", "sys", "tmp", "var/lib/bluetooth", "var/lib/dbus"]:
            tree.folder(folder)
        tree.link("usr", ".")
        tree.link("sbin", "bin")
        tree.link("var/run", "../run")
        for path, text in FILES.items():
            tree.file(path, text.encode())
        tree.file("init", (HERE / "guest" / "init").read_bytes(), 0o755)
        add_programs(tree, unpacked)
        add_dbus(tree, unpacked)
        release = add_modules(tree, unpacked)
        with gzip.GzipFile(directory / "initrd.gz", "wb", compresslevel=1, mtime=0) as file:
            file.write(tree.archive())
        shutil.copy(next(unpacked.glob(f"boot/vmlinuz-{release}")), directory / "vmlinuz")
        version = {path.name.split("_")[0]: path.name.split("_")[1] for path in packages.iterdir()}
        (directory / "about").write_text(f"Linux {release}\nBlueZ {version['bluez'].replace('%3a', ':')}\n")
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)


def add_programs(tree, unpacked):
    """The programs and the libraries that they need, as the dynamic linker among the packages finds them."""
    folders = [path for path in unpacked.glob("**/x86_64-linux-gnu") if path.is_dir()]
    linker = next(path for folder in folders for path in folder.glob("ld-linux-x86-64.so.2"))
    libraries = {linker.name: linker}
    for name in PROGRAMS:
        found = [path for path in unpacked.glob(f"**/{name}")
                 if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o100]
        if not found:
            raise Failure(f"the packages have no {name}")
        tree.file(f"bin/{name}", found[0].read_bytes(), 0o755)
        listed = subprocess.run([linker, "--library-path", ":".join(map(str, folders)), "--list", found[0]], capture_output=True, text=True)
        for needed, path in re.findall(r"(\S+) => (/\S+)", listed.stdout):
            libraries[needed] = Path(path)
        if "not found" in listed.stdout:
            raise Failure(f"{name} needs a library that the packages do not have:\n{listed.stdout}")
    for name, path in libraries.items():
        tree.file(f"lib/x86_64-linux-gnu/{name}", path.resolve().read_bytes(), 0o755)
    tree.link("lib64", "lib/x86_64-linux-gnu")
    plugin = "libexec/coreutils/libstdbuf.so"  # of stdbuf
    tree.file(plugin, (unpacked / "usr" / plugin).read_bytes())


def add_dbus(tree, unpacked):
    tree.file("share/dbus-1/system.conf", next(unpacked.glob("usr/share/dbus-1/system.conf")).read_bytes())
    policy = next(path for path in unpacked.glob("**/dbus-1/system.d/bluetooth.conf"))
    tree.file("etc/dbus-1/system.d/bluetooth.conf", policy.read_bytes())


def add_modules(tree, unpacked):
    """The kernel's modules, and the list in which each stands after those that it depends on."""
    modules = next(path for path in unpacked.glob("**/lib/modules/*") if path.is_dir())
    files = {module_name(path): path for path in modules.glob("**/*.ko*")}
    order = []

    def want(name):
        path = files.get(name.replace("-", "_"))
        if path is None or path in [entry[0] for entry in order]:
            return  # built into the kernel, or already there
        code = output("xz", "-dc", path, text=False) if path.suffix == ".xz" else path.read_bytes()
        depends = re.search(rb"\0depends=([^\0]*)\0", code)
        for dependency in depends[1].decode().split(",") if depends else []:
            want(dependency)
        order.append((path, code))

    for name in MODULES:
        want(name)
    for path, code in order:
        tree.file(f"lib/modules/{module_name(path)}.ko", code)
    tree.file("etc/modules", "".join(f"/lib/modules/{module_name(path)}.ko\n" for path, _ in order).encode())
    return modules.name


def module_name(path):
    return path.name.split(".ko")[0].replace("-", "_")


class Tree:
    """A file tree in memory, and its cpio archive in the form "newc", which the kernel unpacks."""

    def __init__(self):
        self.entries = {}

    def folder(self, path):
        if path not in ("", "."):
            self.folder(os.path.dirname(path))
            self.entries.setdefault(path, (stat.S_IFDIR | 0o755, b""))

    def file(self, path, content, mode=0o644):
        self.folder(os.path.dirname(path))
        self.entries[path] = (stat.S_IFREG | mode, content)

    def link(self, path, target):
        self.folder(os.path.dirname(path))
        self.entries[path] = (stat.S_IFLNK | 0o777, target.encode())

    def archive(self):
        parts = []
        for number, (path, (mode, content)) in enumerate([*self.entries.items(), ("TRAILER!!!", (0, b""))], 1):
            name = path.encode() + b"\0"
            links = 2 if stat.S_ISDIR(mode) else 1
            fields = [number, mode, 0, 0, links, 0, len(content), 0, 0, 0, 0, len(name), 0]
            header = b"070701" + b"".join(b"%08X" % field for field in fields)
            for part in (header + name, content):
                parts += [part, b"\0" * (-len(part) % 4)]
        return b"".join(parts)


# Programs of this machine


def run(*command, **options):
    """`command`, quietly; what it said is told if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "LC_ALL": "C"}, **options)
    if done.returncode != 0:
        words = done.stdout.decode(errors="replace").strip().splitlines()[-20:]
        raise Failure(f"{command[0]} failed with status {done.returncode}:\n" + "\n".join(words))


def output(*command, text=True):
    return subprocess.run(command, check=True, capture_output=True, text=text, env={**os.environ, "LC_ALL": "C"}).stdout
