// swift-tools-version:6.3
import PackageDescription

// A package of its own, so that packages that depend on Bindrune do not build it, and so that the measured caller is in
// another package and module than the codec, like an application.
let package = Package(
  name: "benchmarks",
  dependencies: [.package(name: "bindrune", path: "..")],
  targets: [
    .executableTarget(
      name: "Bench",
      dependencies: [
        "BindruneHCI", "BindruneL2CAP", "BindruneATT", "BindruneSMP", "BindruneGATT", "BindruneGAP",
        "BindruneSimulator", "Bindrune", "BindruneTrace",
      ].map {
        .product(name: $0, package: "bindrune")
      },
      swiftSettings: [.strictMemorySafety(), .treatAllWarnings(as: .error)]),
    .executableTarget(
      name: "FacadeBench", dependencies: ["CoreBluetooth", "Bindrune"].map { .product(name: $0, package: "bindrune") }),
    // By the wall clock, with threads: not for callgrind, and not built with Bench.
    .executableTarget(
      name: "HostBench",
      dependencies: ["Bindrune", "BindruneSimulator"].map { .product(name: $0, package: "bindrune") }),
  ],
  swiftLanguageModes: [.v6]
)
