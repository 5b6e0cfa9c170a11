"""The guest: a Debian kernel and an initramfs with BlueZ, made from Debian's own packages without being root.

    directory/
      packages/*.deb      as downloaded, with everything they depend on
      vmlinuz initrd.gz   what qemu boots
      about               the versions, a line each
"""

import gzip, hashlib, os, re, shutil, stat, subprocess, tempfile
from pathlib import Path

from debian import Failure, apt, output, run

HERE = Path(__file__).resolve().parent

# The guest's Debian packages, and the programs used from them. btvirt is BlueZ's emulated controller.
PACKAGES = ["bluez", "bluez-test-tools", "busybox-static", "coreutils", "dbus-bin", "dbus-daemon", "libcap2-bin", "util-linux"]
PROGRAMS = ["bluetoothctl", "bluetoothd", "btmgmt", "btmon", "btvirt", "busybox", "dbus-daemon", "dbus-send", "gatttool",
            "hciconfig", "hcitool", "setcap", "setpriv", "stdbuf", "unshare"]

# In the order in which they are loaded, each after what it depends on. Without drbg as a source of random numbers
# ecdh_generic fails its own test, and bluetooth.ko refuses to load; cmac, ecb and algif_* are for btvirt's encryption.
MODULES = ["virtio_pci", "9pnet_virtio", "9p", "virtio-rng", "sha512_generic", "sha256_generic", "hmac", "ctr", "drbg",
           "ecdh_generic", "cmac", "ecb", "algif_hash", "algif_skcipher", "bluetooth", "hci_vhci", "uhid"]

FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nmessagebus:x:100:100::/run:/bin/false\nnobody:x:65534:65534::/:/bin/false\n",
    "etc/group": "root:x:0:\nmessagebus:x:100:\nbluetooth:x:102:\nbindrune:x:103:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\n",
    "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
    # With its defaults bluetoothd powers every adapter, and then no user channel can be opened.
    "etc/bluetooth/main.conf": "[Policy]\nAutoEnable=false\n",
    "etc/bluetooth/default.conf": "",
}


class Guest:
    def __init__(self, directory, suite, say):
        self.directory, self.suite, self.say = directory, suite, say
        self.kernel, self.initrd = directory / "vmlinuz", directory / "initrd.gz"

    def ensure(self):
        """Downloads and builds everything that is missing, or was made by another version of this file."""
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


def download(suite, packages):
    """Fetches PACKAGES, the kernel and all they depend on."""
    with apt(suite) as debian:
        kernel = re.search(r"^Depends: (linux-image-\S+)", debian.described("linux-image-amd64"), re.M)
        if not kernel:
            raise Failure(f"{suite} has no kernel linux-image-amd64")
        debian.fetch(*PACKAGES)
        # Of the kernel only the package itself, without the tools that make an initramfs on an installed system.
        debian.fetch_alone(kernel[1])
        shutil.rmtree(packages, ignore_errors=True)
        packages.mkdir(parents=True)
        for path in debian.fetched:
            shutil.move(path, packages / path.name)
        found = list(packages.iterdir())
        return len(found), sum(path.stat().st_size for path in found)


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
