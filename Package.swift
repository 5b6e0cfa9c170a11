// swift-tools-version:6.3
import PackageDescription

let settings: [SwiftSetting] = [.strictMemorySafety(), .treatAllWarnings(as: .error)]
// The facade's classes are Apple's: its own types do not show what they are made of.
let facade: [SwiftSetting] = settings + [.enableUpcomingFeature("InternalImportsByDefault")]
// The page of `bindrune trace report`, compiled into the program.
let page: [Resource] = [
  "page.html", "page.css", "model.js", "dom.js", "sequence.js", "detail.js", "timeline.js", "views.js", "main.js",
].map { .embedInCode("Page/\($0)") }
// The pages of `bindrune learn` and their files: links to the course and to Fixtures/Course.
let course: [Resource] =
  ((1...10).map { "page\($0 < 10 ? "0" : "")\($0).md" } + [
    "solutions.md", "belt.exchange", "belt.json", "name.exchange", "name.json", "sensor.btsnoop", "wrong.exchange",
  ]).map { .embedInCode("Teaching/Course/\($0)") }
let nio: [Target.Dependency] = [
  .product(name: "NIOCore", package: "swift-nio"), .product(name: "NIOPosix", package: "swift-nio"),
]
let deque: Target.Dependency = .product(name: "DequeModule", package: "swift-collections")
let containers: Target.Dependency = .product(name: "BasicContainers", package: "swift-collections")
let system: Target.Dependency = .product(name: "SystemPackage", package: "swift-system")

let package = Package(
  name: "bindrune",
  products: [
    .executable(name: "bindrune", targets: ["BindruneTool"]),
    .executable(name: "bindruned", targets: ["BindruneDaemon"]),
    .library(name: "CoreBluetooth", targets: ["CoreBluetooth"]),
    .library(name: "Bindrune", targets: ["Bindrune"]),
    .library(name: "BindruneWire", targets: ["BindruneWire"]),
    .library(name: "BindruneHCI", targets: ["BindruneHCI"]),
    .library(name: "BindruneL2CAP", targets: ["BindruneL2CAP"]),
    .library(name: "BindruneATT", targets: ["BindruneATT"]),
    .library(name: "BindruneSMP", targets: ["BindruneSMP"]),
    .library(name: "BindruneGATT", targets: ["BindruneGATT"]),
    .library(name: "BindruneGAP", targets: ["BindruneGAP"]),
    .library(name: "BindruneSimulator", targets: ["BindruneSimulator"]),
    .library(name: "BindruneTrace", targets: ["BindruneTrace", "BindruneCapture"]),
    .library(name: "BindruneReplay", targets: ["BindruneReplay"]),
  ],
  dependencies: [
    .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
    .package(url: "https://github.com/apple/swift-collections", from: "1.6.0"),
    .package(url: "https://github.com/apple/swift-numerics", from: "1.1.1"),
    .package(url: "https://github.com/apple/swift-system", from: "1.8.1"),
    .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
    .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
    .package(url: "https://github.com/apple/swift-crypto", from: "4.5.2"),
  ],
  targets: [
    .target(name: "BindruneWire", path: "Sources/Wire", swiftSettings: settings),
    .target(
      name: "BindruneToolbox", dependencies: [.product(name: "CryptoExtras", package: "swift-crypto")],
      path: "Sources/Toolbox", swiftSettings: settings),
    .target(name: "CBindruneSystem"),
    .target(
      name: "BindruneSystem", dependencies: ["CBindruneSystem", system], path: "Sources/System", swiftSettings: settings
    ),
    .target(
      name: "BindruneHCI", dependencies: ["BindruneWire", deque, containers], path: "Sources/HCI",
      swiftSettings: settings),
    .target(
      name: "BindruneL2CAP", dependencies: ["BindruneWire", "BindruneHCI", deque, containers], path: "Sources/L2CAP",
      swiftSettings: settings),
    .target(
      name: "BindruneATT", dependencies: ["BindruneWire", deque, containers], path: "Sources/ATT",
      swiftSettings: settings),
    .target(
      name: "BindruneSMP", dependencies: ["BindruneWire", "BindruneToolbox", deque], path: "Sources/SMP",
      swiftSettings: settings),
    .target(
      name: "BindruneGATT",
      dependencies: [
        "BindruneWire", "BindruneATT", "BindruneToolbox", deque, containers,
        .product(name: "RealModule", package: "swift-numerics"),
      ],
      path: "Sources/GATT", swiftSettings: settings),
    .target(
      name: "BindruneGAP",
      dependencies: [
        "BindruneWire", "BindruneToolbox", "BindruneHCI", "BindruneL2CAP", "BindruneATT", "BindruneSMP", "BindruneGATT",
        deque, containers,
      ],
      path: "Sources/GAP", swiftSettings: settings),
    .target(
      name: "BindruneConformance",
      dependencies: [
        "CBindruneSystem", "BindruneWire", "BindruneToolbox", "BindruneHCI", "BindruneL2CAP", "BindruneATT",
        "BindruneSMP", "BindruneGATT", "BindruneGAP", deque,
      ],
      path: "Sources/Conformance", swiftSettings: settings),
    .target(
      name: "BindruneSimulator",
      dependencies: [
        "BindruneWire", "BindruneToolbox", "BindruneHCI", deque, containers,
        .product(name: "HeapModule", package: "swift-collections"),
        .product(name: "RealModule", package: "swift-numerics"),
      ],
      path: "Sources/Simulator", swiftSettings: settings),
    .target(
      name: "BindruneCapture", dependencies: ["BindruneWire", "BindruneHCI"], path: "Sources/Capture",
      swiftSettings: settings),
    .target(
      name: "BindruneTrace",
      dependencies: [
        "BindruneCapture", "BindruneSystem", "BindruneWire", "BindruneToolbox", "BindruneHCI", "BindruneL2CAP",
        "BindruneATT", "BindruneSMP", "BindruneGATT", "BindruneGAP", system,
      ],
      path: "Sources/Trace", swiftSettings: settings),
    .target(
      name: "BindruneReplay",
      dependencies: [
        "BindruneCapture", "BindruneTrace", "BindruneWire", "BindruneToolbox", "BindruneHCI", "BindruneL2CAP",
        "BindruneATT", "BindruneSMP", "BindruneGATT", "BindruneGAP",
      ],
      path: "Sources/Replay", swiftSettings: settings),
    .target(
      name: "BindruneReport",
      dependencies: [
        "BindruneCapture", "BindruneTrace", "BindruneReplay", "BindruneWire", "BindruneToolbox", "BindruneHCI",
        "BindruneL2CAP", "BindruneATT", "BindruneSMP", "BindruneGATT", "BindruneGAP",
      ],
      path: "Sources/Report",
      resources: page, swiftSettings: settings),
    .target(
      name: "BindruneAdapters", dependencies: ["BindruneWire", "BindruneSystem", "CBindruneSystem", system],
      path: "Sources/Adapters", swiftSettings: settings),
    .target(
      name: "BindruneTransport",
      dependencies: [
        "BindruneWire", "BindruneHCI", "BindruneCapture", "BindruneSystem", "BindruneAdapters", "CBindruneSystem",
        system,
      ] + nio,
      path: "Sources/Transport", swiftSettings: settings),
    .target(
      name: "Bindrune",
      dependencies: [
        "BindruneGAP", "BindruneSMP", "BindruneGATT", "BindruneATT", "BindruneL2CAP", "BindruneHCI", "BindruneWire",
        "BindruneSystem", "BindruneAdapters", "BindruneTransport", "BindruneSimulator", system,
        .product(name: "Logging", package: "swift-log"),
      ] + nio,
      swiftSettings: settings),
    // What a tool needs of the daemon: it links no broker for that.
    .target(
      name: "BindruneControl", dependencies: ["BindruneTransport", "BindruneSystem", "BindruneWire", system],
      path: "Sources/Control", swiftSettings: settings),
    .target(
      name: "BindruneBroker",
      dependencies: [
        "BindruneControl", "Bindrune", "BindruneGATT", "BindruneATT", "BindruneHCI", "BindruneSystem",
        "BindruneAdapters", "BindruneTransport", "BindruneWire", "CBindruneSystem", deque, system,
        .product(name: "Logging", package: "swift-log"), .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
      ] + nio,
      path: "Sources/Broker", swiftSettings: settings),
    .target(name: "CBindruneCoreBluetooth"),
    .target(
      name: "CoreBluetooth",
      dependencies: [
        "BindruneBroker", "BindruneSystem", "BindruneTransport", "BindruneGATT", "BindruneWire",
        "CBindruneCoreBluetooth", deque,
      ],
      swiftSettings: facade),
    .executableTarget(
      name: "BindruneTool",
      dependencies: [
        "Bindrune", "BindruneGAP", "BindruneSMP", "BindruneGATT", "BindruneATT", "BindruneL2CAP", "BindruneHCI",
        "BindruneWire", "BindruneSystem", "BindruneAdapters", "BindruneTransport", "BindruneControl",
        "BindruneSimulator", "BindruneConformance", "BindruneCapture", "BindruneTrace", "BindruneReplay",
        "BindruneReport", system, .product(name: "ArgumentParser", package: "swift-argument-parser"),
        .product(name: "Logging", package: "swift-log"),
      ] + nio,
      path: "Sources/Tool", resources: course, swiftSettings: settings),

    .executableTarget(
      name: "BindruneDaemon",
      dependencies: [
        "BindruneBroker", "BindruneControl", "BindruneSystem", "BindruneTransport", "BindruneWire",
        .product(name: "NIOHTTP1", package: "swift-nio"),
        .product(name: "ArgumentParser", package: "swift-argument-parser"),
        .product(name: "Logging", package: "swift-log"),
      ] + nio,
      path: "Sources/Daemon", swiftSettings: settings),

    // The examples, with the settings of a new package. The first four are as they are written for Apple's systems.
    .executableTarget(
      name: "HeartRateCentral", dependencies: ["CoreBluetooth"], path: "Examples/HeartRateCentral",
      swiftSettings: [.treatAllWarnings(as: .error)]),
    .executableTarget(
      name: "HeartRatePeripheral", dependencies: ["CoreBluetooth"], path: "Examples/HeartRatePeripheral",
      swiftSettings: [.treatAllWarnings(as: .error)]),
    .executableTarget(
      name: "DoorLock", dependencies: ["CoreBluetooth"], path: "Examples/DoorLock",
      swiftSettings: [.treatAllWarnings(as: .error)]),
    .executableTarget(
      name: "DoorLockApp", dependencies: ["CoreBluetooth"], path: "Examples/DoorLockApp",
      exclude: ["DoorLockApp.bindrune.json"], swiftSettings: [.treatAllWarnings(as: .error)]),
    .executableTarget(
      name: "HeartRateMonitor", dependencies: ["Bindrune"], path: "Examples/HeartRateMonitor",
      swiftSettings: [.treatAllWarnings(as: .error)]),
    .executableTarget(
      name: "Thermometer", dependencies: ["Bindrune"], path: "Examples/Thermometer",
      swiftSettings: [.treatAllWarnings(as: .error)]),
    .executableTarget(
      name: "CheckFolder", dependencies: ["BindruneTrace"], path: "Examples/CheckFolder",
      swiftSettings: [.treatAllWarnings(as: .error)]),

    // The course's exercises: a program with all layers.
    .executableTarget(
      name: "Workbench",
      dependencies: [
        "BindruneGAP", "BindruneGATT", "BindruneATT", "BindruneSMP", "BindruneL2CAP", "BindruneHCI", "BindruneWire",
        "BindruneToolbox", "BindruneSimulator", "BindruneTrace", "BindruneCapture",
      ],
      path: "Examples/Workbench", swiftSettings: [.treatAllWarnings(as: .error)]),

    // The programs of Tests/Interop/run, which are no tests of `swift test`.
    .executableTarget(
      name: "InteropCentral", dependencies: ["Bindrune"],
      path: "Tests/Interop/Central", swiftSettings: settings),
    .executableTarget(
      name: "InteropPeripheral", dependencies: ["Bindrune", "BindruneGATT"],
      path: "Tests/Interop/Peripheral", swiftSettings: settings),
    .executableTarget(
      name: "InteropSecurity", dependencies: ["Bindrune", "BindruneGATT", "BindruneSMP"],
      path: "Tests/Interop/Security",
      swiftSettings: settings),
    .executableTarget(
      name: "InteropGAP", dependencies: ["Bindrune"], path: "Tests/Interop/GAP", swiftSettings: settings),

    // The same of Tests/Kernel/run.
    .executableTarget(
      name: "KernelCentral", dependencies: ["Bindrune", .product(name: "Logging", package: "swift-log")],
      path: "Tests/Kernel/Central", swiftSettings: settings),
    .executableTarget(name: "KernelNotifier", path: "Tests/Kernel/Notifier"),
    .executableTarget(name: "KernelChannel", path: "Tests/Kernel/Channel"),

    // A process for the tests of BondFile, which kill it.
    .executableTarget(
      name: "BondWriter", dependencies: ["Bindrune"], path: "Tests/BondWriter", swiftSettings: settings),
    // A process for the tests of a channel's streams: theirs has no main run loop.
    .executableTarget(
      name: "StreamProgram", dependencies: ["CoreBluetooth"], path: "Tests/StreamProgram", swiftSettings: settings),

    .target(
      name: "TestSupport",
      dependencies: [
        "BindruneWire", "BindruneToolbox", "BindruneHCI", "BindruneL2CAP", "BindruneATT", "BindruneSMP", "BindruneGATT",
        "BindruneGAP", "BindruneSimulator",
      ] + nio,
      path: "Tests/TestSupport", swiftSettings: settings),
    .testTarget(
      name: "WireTests", dependencies: ["BindruneWire", "BindruneATT", "BindruneHCI", "TestSupport"],
      swiftSettings: settings),
    .testTarget(name: "ToolboxTests", dependencies: ["BindruneToolbox", "TestSupport"], swiftSettings: settings),
    .testTarget(name: "HCITests", dependencies: ["BindruneHCI", "TestSupport"], swiftSettings: settings),
    .testTarget(name: "L2CAPTests", dependencies: ["BindruneL2CAP", "TestSupport"], swiftSettings: settings),
    .testTarget(name: "ATTTests", dependencies: ["BindruneATT", "TestSupport"], swiftSettings: settings),
    .testTarget(
      name: "SMPTests", dependencies: ["BindruneSMP", "BindruneToolbox", "BindruneWire", "TestSupport"],
      swiftSettings: settings),
    .testTarget(name: "GATTTests", dependencies: ["BindruneGATT", "TestSupport"], swiftSettings: settings),
    .testTarget(
      name: "GAPTests", dependencies: ["BindruneGAP", "BindruneSMP", "BindruneToolbox", "TestSupport"],
      swiftSettings: settings),
    .testTarget(
      name: "SystemTests", dependencies: ["BindruneSystem", system, "TestSupport"], swiftSettings: settings),
    .testTarget(
      name: "AdaptersTests",
      dependencies: ["BindruneAdapters", "BindruneSystem", "BindruneWire", system, "TestSupport"],
      swiftSettings: settings),
    .testTarget(
      name: "TransportTests",
      dependencies: [
        "BindruneTransport", "BindruneAdapters", "BindruneSystem", "BindruneCapture", "BindruneHCI", system,
        "TestSupport",
      ] + nio,
      swiftSettings: settings),
    .testTarget(
      name: "TraceTests",
      dependencies: [
        "BindruneTrace", "BindruneCapture", "BindruneToolbox", "BindruneWire", "BindruneHCI", "BindruneL2CAP",
        "TestSupport",
      ],
      swiftSettings: settings),
    .testTarget(
      name: "ReplayTests",
      dependencies: [
        "BindruneReplay", "BindruneTrace", "BindruneCapture", "BindruneSimulator", "BindruneToolbox", "BindruneWire",
        "BindruneGAP", "BindruneGATT", "BindruneATT", "BindruneSMP", "BindruneHCI", "TestSupport",
      ],
      swiftSettings: settings),
    .testTarget(
      name: "ReportTests",
      dependencies: [
        "BindruneReport", "BindruneTrace", "BindruneCapture", "BindruneToolbox", "BindruneWire", "BindruneHCI",
      ],
      swiftSettings: settings),
    .testTarget(
      name: "SimulatorTests", dependencies: ["BindruneSimulator", "BindruneToolbox", "TestSupport"],
      swiftSettings: settings),
    .testTarget(
      name: "ScenarioTests", dependencies: ["BindruneGAP", "BindruneSMP", "BindruneSimulator", "TestSupport"],
      swiftSettings: settings),
    .testTarget(
      name: "BindruneTests",
      dependencies: [
        "Bindrune", "BondWriter", "BindruneGAP", "BindruneSMP", "BindruneGATT", "BindruneL2CAP", "BindruneHCI",
        "BindruneSystem", "BindruneAdapters", "BindruneTransport", "BindruneSimulator", "BindruneWire", "TestSupport",
        system,
      ] + nio,
      swiftSettings: settings),
    .testTarget(
      name: "BrokerTests",
      dependencies: [
        "BindruneBroker", "BindruneControl", "Bindrune", "BindruneGATT", "BindruneSystem", "BindruneAdapters",
        "BindruneTransport", "BindruneWire", system, "TestSupport",
      ] + nio,
      swiftSettings: settings),
    .testTarget(
      name: "CoreBluetoothTests",
      dependencies: [
        "CoreBluetooth", "StreamProgram", "BindruneBroker", "BindruneTransport", "Bindrune", "BindruneGATT",
        "TestSupport",
      ] + nio,
      swiftSettings: settings),
    .testTarget(
      name: "ToolTests",
      dependencies: [
        "BindruneTool", "Bindrune", "BindruneGAP", "BindruneSMP", "BindruneHCI", "BindruneTransport",
        "BindruneSimulator", "BindruneCapture", "BindruneTrace", "BindruneWire", "TestSupport",
      ] + nio,
      swiftSettings: settings),
    .testTarget(
      name: "VectorTests", dependencies: ["BindruneWire", "BindruneATT", "TestSupport"], swiftSettings: settings),
    .testTarget(
      name: "ConformanceTests",
      dependencies: [
        "BindruneConformance", "BindruneWire", "BindruneToolbox", "BindruneHCI", "BindruneL2CAP", "BindruneATT",
        "BindruneGATT", "BindruneSMP", "BindruneTrace", "BindruneCapture", "TestSupport",
      ],
      swiftSettings: settings),
    .testTarget(name: "ArrowTests", swiftSettings: settings),
    // The course and the first pages of the catalogues: their code, and the pages that show it.
    .testTarget(
      name: "CourseTests",
      dependencies: [
        "BindruneTool", "BindruneGAP", "BindruneGATT", "BindruneATT", "BindruneSMP", "BindruneL2CAP", "BindruneHCI",
        "BindruneWire", "BindruneToolbox", "BindruneSimulator", "BindruneTrace", "BindruneCapture",
        "BindruneConformance", "BindruneSystem", "BindruneAdapters", "BindruneTransport", "BindruneControl",
        "BindruneReplay", "BindruneReport", "Bindrune", "BindruneBroker", "CoreBluetooth", "TestSupport", system,
      ],
      swiftSettings: settings),
  ],
  swiftLanguageModes: [.v6]
)
