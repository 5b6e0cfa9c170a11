// swift-tools-version:6.3
import PackageDescription

// SendPort, its ring and its waiters as they are, under ThreadSanitizer: `run` says why in a package of their own.
let package = Package(
  name: "thread-sanitizer",
  targets: [
    .target(name: "BindruneWire"),
    .target(name: "BindruneATT"),
    .target(name: "Bindrune", dependencies: ["BindruneATT", "BindruneWire"]),
    .executableTarget(name: "threads", dependencies: ["Bindrune", "BindruneWire"]),
  ],
  swiftLanguageModes: [.v6]
)
