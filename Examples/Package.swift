// swift-tools-version:6.2
import PackageDescription

let package = Package(
  name: "examples",
  dependencies: [.package(name: "bindrune", path: "..")],
  targets: [
    .executableTarget(name: "HeartRateMonitor", dependencies: [.product(name: "Bindrune", package: "bindrune")]),
    .executableTarget(name: "Thermometer", dependencies: [.product(name: "Bindrune", package: "bindrune")]),
  ]
)
