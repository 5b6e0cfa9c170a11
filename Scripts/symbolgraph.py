"""The public symbols of modules of this package, from a debug build: what `swift symbolgraph-extract` says."""
import json
import pathlib
import re
import subprocess
import tempfile

root = pathlib.Path(__file__).resolve().parent.parent


def symbols(modules, folder=str(root / ".build/debug/Modules"), more=()):
    """(module, symbol) for each public symbol of the modules, without what Swift makes by itself."""
    target = json.loads(subprocess.check_output(["swiftc", "-print-target-info"]))["target"]["unversionedTriple"]
    flags = ["-I", str(root / "Sources/CBindruneCoreBluetooth/include"), *more]
    for module_map in sorted(root.glob(".build/checkouts/*/Sources/*/include/module.modulemap")):
        if re.search(r"/(CNIO|CCrypto|CSystem|_Atomics|_NumericsShims)", str(module_map)):
            flags += ["-Xcc", f"-fmodule-map-file={module_map}", "-I", str(module_map.parent)]
    for made in sorted((root / ".build/debug").glob("*.build/module.modulemap")):
        flags += ["-Xcc", f"-fmodule-map-file={made}"]
    for module in modules:
        with tempfile.TemporaryDirectory() as output:
            subprocess.run(
                ["swift", "symbolgraph-extract", "-module-name", module, "-target", target, "-I", folder]
                + flags + ["-minimum-access-level", "public", "-skip-synthesized-members", "-output-dir", output],
                check=True, stdout=subprocess.DEVNULL)
            for file in sorted(pathlib.Path(output).glob("*.json")):
                for symbol in json.loads(file.read_text())["symbols"]:
                    yield module, symbol
