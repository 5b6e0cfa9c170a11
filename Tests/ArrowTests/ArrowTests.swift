import Foundation
import Testing

/// Which module may import which, as data. Tests compare it with the imports in Sources and the manifest's
/// dependencies. A new arrow is a line here, which its author justifies in the review.
///
/// An arrow also permits what lies below its head: GAP → GATT → ATT → Wire.
let arrows: [(module: String, folder: String, below: [String])] = [
  ("BindruneWire", "Wire", []),
  ("BindruneToolbox", "Toolbox", []),
  // Numbers and layouts of the kernel's interface, and the calls that make descriptors, in C.
  ("CBindruneSystem", "CBindruneSystem", []),
  // What is of the operating system alone: descriptors, files, processes, locks, threads that write.
  ("BindruneSystem", "System", ["CBindruneSystem"]),
  ("BindruneHCI", "HCI", ["BindruneWire"]),
  ("BindruneL2CAP", "L2CAP", ["BindruneHCI"]),
  ("BindruneATT", "ATT", ["BindruneWire"]),
  ("BindruneSMP", "SMP", ["BindruneWire", "BindruneToolbox"]),
  ("BindruneGATT", "GATT", ["BindruneATT", "BindruneToolbox"]),
  (
    "BindruneGAP", "GAP",
    ["BindruneGATT", "BindruneATT", "BindruneSMP", "BindruneL2CAP", "BindruneHCI", "BindruneToolbox"]
  ),
  ("BindruneSimulator", "Simulator", ["BindruneHCI", "BindruneToolbox"]),
  // The formats of trace files, without files: the live tap writes what the trace tools read.
  ("BindruneCapture", "Capture", ["BindruneHCI"]),
  // The adapters of this machine, and what keeps one from being opened.
  ("BindruneAdapters", "Adapters", ["BindruneWire", "BindruneSystem", "CBindruneSystem"]),
  ("BindruneTransport", "Transport", ["BindruneHCI", "BindruneCapture", "BindruneAdapters"]),
  // The Simulator for `sim`, a radio in the process.
  ("Bindrune", "Bindrune", ["BindruneGAP", "BindruneTransport", "BindruneSimulator"]),
  // A tester beside the stack: its scripts drive L2CAP, ATT, GATT and SMP without a controller, or a socket; it computes
  // with the Toolbox what a tester of pairing must know itself. Of GAP it uses who may open a channel.
  ("BindruneConformance", "Conformance", ["BindruneGAP", "BindruneSMP", "BindruneToolbox", "CBindruneSystem"]),
  (
    "BindruneTrace", "Trace",
    ["BindruneCapture", "BindruneSystem", "BindruneGAP", "BindruneSMP", "BindruneATT", "BindruneL2CAP", "BindruneHCI"]
  ),
  ("BindruneReplay", "Replay", ["BindruneGAP", "BindruneTrace"]),
  ("BindruneReport", "Report", ["BindruneReplay"]),
  // What asks bindruned, and the messages of that: for the tool, without the broker.
  ("BindruneControl", "Control", ["BindruneTransport"]),
  ("BindruneBroker", "Broker", ["Bindrune", "BindruneControl"]),
  // An enumeration that can hold other numbers than its cases, as only C's can.
  ("CBindruneCoreBluetooth", "CBindruneCoreBluetooth", []),
  ("CoreBluetooth", "CoreBluetooth", ["BindruneBroker", "CBindruneCoreBluetooth"]),
  (
    "BindruneTool", "Tool",
    ["CoreBluetooth", "BindruneControl", "BindruneReport", "BindruneSimulator", "BindruneConformance"]
  ),
  ("BindruneDaemon", "Daemon", ["BindruneBroker"]),
  // The examples: two import Apple's interface alone, two the async API alone, one the traces alone.
  ("HeartRateCentral", "HeartRateCentral", ["CoreBluetooth"]),
  ("HeartRatePeripheral", "HeartRatePeripheral", ["CoreBluetooth"]),
  ("DoorLock", "DoorLock", ["CoreBluetooth"]),
  ("DoorLockApp", "DoorLockApp", ["CoreBluetooth"]),
  ("HeartRateMonitor", "HeartRateMonitor", ["Bindrune"]),
  ("Thermometer", "Thermometer", ["Bindrune"]),
  ("CheckFolder", "CheckFolder", ["BindruneTrace"]),
  // The course's exercises use any layer.
  ("Workbench", "Workbench", ["BindruneTrace", "BindruneSimulator"]),
  // Not products: code shared by tests, and the programs of tests, of Tests/Interop and Tests/Kernel.
  ("TestSupport", "TestSupport", ["BindruneGAP", "BindruneSimulator"]),
  ("InteropCentral", "Central", ["Bindrune"]),
  ("InteropPeripheral", "Peripheral", ["Bindrune"]),
  ("InteropGAP", "Interop/GAP", ["Bindrune"]),
  ("InteropSecurity", "Interop/Security", ["Bindrune"]),
  ("KernelCentral", "Central", ["Bindrune"]),
  ("KernelNotifier", "Notifier", []),
  ("KernelChannel", "Channel", []),
  ("BondWriter", "BondWriter", ["Bindrune"]),
  ("StreamProgram", "StreamProgram", ["CoreBluetooth"]),
]

/// The modules without a clock, threads and randomness of their own, which also run without Foundation.
let layers: Set = [
  "BindruneWire", "BindruneHCI", "BindruneL2CAP", "BindruneATT", "BindruneSMP", "BindruneGATT", "BindruneGAP",
  "BindruneSimulator",
]

let collections = ["DequeModule", "BasicContainers", "HeapModule", "OrderedCollections", "BitCollections"]
let system = ["NIOCore", "NIOPosix", "SystemPackage", "Glibc", "Synchronization"]
/// The imports from outside the project that each module may have; none for others.
func packages(_ module: String) -> [String] {
  switch module {
  case "BindruneToolbox": ["Crypto", "CryptoExtras"]
  case _ where layers.contains(module): collections + ["RealModule"]
  case "BindruneSystem", "BindruneAdapters": ["SystemPackage", "Glibc", "Synchronization"]
  case "BindruneTransport": collections + system + ["Dispatch"]
  case "BindruneControl": ["SystemPackage", "Glibc"]
  case "Bindrune": collections + system + ["Logging"]
  // The daemon links neither Foundation nor ICU.
  case "BindruneBroker":
    collections + system + ["Logging", "FoundationEssentials", "NIOConcurrencyHelpers", "Dispatch"]
  case "CoreBluetooth": collections + ["Foundation", "CoreFoundation", "Dispatch", "Synchronization"]
  case "BindruneTrace", "BindruneReplay": collections + ["SystemPackage", "Glibc", "Synchronization"]
  // The tool links neither Foundation nor ICU: Decision 0043.
  case "BindruneConformance": collections + ["FoundationEssentials", "Glibc"]
  case "BindruneTool":
    collections + system + ["FoundationEssentials", "Dispatch", "Logging", "ArgumentParser", "ArgumentParserToolInfo"]
  case "BindruneDaemon": system + ["NIOHTTP1", "Dispatch", "Logging", "ArgumentParser"]
  case "TestSupport": collections + ["Foundation", "Dispatch", "Synchronization", "Testing", "NIOCore", "NIOPosix"]
  case "KernelCentral": ["Logging"]
  case "CheckFolder": ["Foundation"]
  default: []
  }
}

/// Words that a layer does not use, and why.
let forbidden: [(pattern: String, why: String)] = [
  (#"\bany\s+[A-Z(]"#, "an existential: not in Embedded Swift, and allocates"),
  (#"\bthrows\b(?!\s*\()"#, "untyped throws: an existential error"),
  (#"\bfatalError\b"#, "a trap that is nobody's precondition"),
  (#"\btry!"#, "a trap on somebody else's error"),
  (#"\b(async|await|Task|Mutex|Atomic)\b"#, "threads stay outside"),
  (#"\b(ContinuousClock|SuspendingClock|Date)\b"#, "clocks stay outside"),
  (
    #"\bSystemRandomNumberGenerator\b|\.random\((?!.*using:)|\.randomElement\(\)|\.shuffled?\(\)"#,
    "chance stays outside"
  ),
]

@Suite struct ArrowTests {
  let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent()

  /// `module` may import everything below its arrows.
  func reachable(_ module: String) -> Set<String> {
    var found: Set = [module]
    var waiting = [module]
    while let next = waiting.popLast() {
      for below in arrows.first(where: { $0.module == next })?.below ?? [] where found.insert(below).inserted {
        waiting.append(below)
      }
    }
    return found
  }

  func sources(_ folder: String) -> [URL] {
    let base = root.appending(path: folder == "TestSupport" ? "Tests" : "Sources").appending(path: folder)
    let files = FileManager.default.enumerator(at: base, includingPropertiesForKeys: nil)
    return (files?.allObjects as? [URL] ?? []).filter { $0.pathExtension == "swift" }
  }

  /// The message that CONTRIBUTING shows is in the sources, with the same text.
  @Test func theMessageOfContributing() throws {
    let text = try String(contentsOf: root.appending(path: "CONTRIBUTING.md"), encoding: .utf8)
    let recipe = try #require(text.firstMatch(of: #/```swift\n(.+?)```/#.dotMatchesNewlines())?.1)
    #expect(try sources("HCI").contains { try String(contentsOf: $0, encoding: .utf8).contains(recipe) })
  }
  /// `Decisions.md` lists each decision by its number and title; they are numbered from 0001 without gaps.
  @Test func decisionsAreListed() throws {
    let folder = root.appending(path: "Documentation/Decisions.docc")
    let list = try String(contentsOf: folder.appending(path: "Decisions.md"), encoding: .utf8)
    let rows = Set(list.components(separatedBy: "\n"))
    let names = try FileManager.default.contentsOfDirectory(atPath: folder.path).sorted()
      .filter { $0 != "Decisions.md" }
    #expect(names.map { Int($0.prefix(4)) } == Array(1...names.count), "\(names)")
    for name in names {
      let text = try String(contentsOf: folder.appending(path: name), encoding: .utf8)
      let title = try #require(text.firstMatch(of: #/^# (\d{4}): (.+)/#), "\(name)")
      #expect(rows.contains("| \(title.1) | [\(title.2)](\(name)) |") && name.hasPrefix(title.1), "\(name)")
    }
  }
  /// What a program may switch over, and what may get more cases: each public enum of the modules for embedders is
  /// marked, as the switches in Tests/Clients/Sources/ClientBindrune need it. `Step` is the answer of one function.
  @Test func whatGrowsIsMarked() throws {
    let isClosed: Set = ["Step"]
    var found = 0
    for file in ["Bindrune", "Adapters", "Transport"].flatMap(sources) {
      let text = try String(contentsOf: file, encoding: .utf8)
      for enumeration in text.matches(of: #/\n(.*)\n *public enum (\w+)/#)
      where !isClosed.contains(String(enumeration.2)) {
        found += 1
        #expect(enumeration.1.hasSuffix("#endif"), "\(file.lastPathComponent): \(enumeration.2) is not @nonexhaustive")
      }
      #expect(
        text.matches(of: #/#if hasAttribute\(nonexhaustive\)\n *@nonexhaustive\(warn\)\n *#endif\n *public enum/#).count
          == text.matches(of: #/@nonexhaustive/#).count)
    }
    #expect(found >= 15)
  }
  @Test func everyFolderIsInTheTable() throws {
    let folders = try FileManager.default.contentsOfDirectory(atPath: root.appending(path: "Sources").path)
    let known = arrows.map(\.folder)
    #expect(folders.filter { !$0.hasPrefix(".") && !known.contains($0) }.isEmpty)
  }

  @Test func importsPointDown() throws {
    let pattern =
      #/^\s*(?:@\w+(?:\(\w+\))?\s+|(?:public|package|internal|private|fileprivate)\s+)*import\s+(?:(?:struct|class|enum|protocol|func|var|let|typealias)\s+)?(\w+)/#
    for arrow in arrows {
      let allowed = reachable(arrow.module).union(packages(arrow.module))
      for file in sources(arrow.folder) {
        for (number, line) in try String(contentsOf: file, encoding: .utf8).components(separatedBy: "\n").enumerated() {
          guard let found = try pattern.firstMatch(in: line) else { continue }
          #expect(allowed.contains(String(found.1)), "\(file.lastPathComponent):\(number + 1): \(line)")
        }
      }
    }
  }

  /// The dependencies that Package.swift gives each target. Read as text: the manifest is data, short, and ours.
  func manifest() throws -> [String: [String]] {
    let text = try String(contentsOf: root.appending(path: "Package.swift"), encoding: .utf8)
    let lists = [
      "nio": ["NIOCore", "NIOPosix"], "deque": ["DequeModule"], "containers": ["BasicContainers"],
      "system": ["SystemPackage"],
    ]
    var found: [String: [String]] = [:]
    for target in text.split(separator: #/\n    \.(?:executableTarget|target|testTarget)\(/#).dropFirst() {
      guard let name = target.firstMatch(of: #/name:\s*"(\w+)"/#)?.1 else { continue }
      var words: [String] = []
      if let start = target.range(of: "dependencies:") {
        let end = target.range(of: "swiftSettings:")?.lowerBound ?? target.endIndex
        let dependencies = target[start.upperBound..<end].replacing(#/package:\s*"[\w-]+"/#, with: "")
          .replacing(#/path:\s*"[^"]+"/#, with: "")
        for word in dependencies.matches(of: #/"(\w+)"|\b(nio|deque|containers|system)\b/#) {
          if let quoted = word.1 { words.append(String(quoted)) }
          if let list = word.2 { words += lists[String(list)] ?? [] }
        }
      }
      found[String(name)] = words
    }
    return found
  }

  @Test func dependenciesPointDown() throws {
    let manifest = try manifest()
    #expect(
      manifest.count > 10 && manifest["BindruneGATT"]?.contains("BindruneATT") == true, "the manifest is not read right"
    )
    for (target, dependencies) in manifest where !target.hasSuffix("Tests") {
      #expect(arrows.contains { $0.module == target }, "\(target) is not in the table")
      let allowed = reachable(target).union(packages(target))
      for dependency in dependencies { #expect(allowed.contains(dependency), "\(target) → \(dependency)") }
    }
  }

  /// A target depends on everything that its files import, so that it builds alone.
  @Test func importsAreDependencies() throws {
    let manifest = try manifest()
    for arrow in arrows {
      guard let dependencies = manifest[arrow.module] else { continue }
      let ours = Set(arrows.map(\.module))
      for file in sources(arrow.folder) {
        for found in try String(contentsOf: file, encoding: .utf8).matches(of: #/(?m)^(?:@\w+ )*import (\w+)/#)
        where ours.contains(String(found.1)) {
          #expect(dependencies.contains(String(found.1)), "\(file.lastPathComponent) imports \(found.1)")
        }
      }
    }
  }

  /// The code without comments and strings, line by line.
  func code(_ file: URL) throws -> [String] {
    try String(contentsOf: file, encoding: .utf8).components(separatedBy: "\n").map { line in
      var line = line.replacing(#/"(?:[^"\\]|\\.)*"/#, with: "\"\"")
      if let comment = line.range(of: "//") { line.removeSubrange(comment.lowerBound...) }
      return line
    }
  }

  /// Descriptors are made in one place, closed in children from their first moment: `Sources/CBindruneSystem`.
  @Test func descriptorsAreMadeInOnePlace() throws {
    let calls: [(pattern: String, instead: String)] = [
      (#"\bunsafe\s+(?:Glibc\.)?(?:open|openat|creat|fopen|fdopen|freopen|tmpfile)\("#, "FileDescriptor.opened"),
      (
        #"\bFileDescriptor\s*\.\s*open\(|(?<![\w)\]])\.open\(\s*(?:FilePath|\w+,\s*\.(?:read|write)Only)"#,
        "FileDescriptor.opened"
      ),
      (#"\bFileDescriptor\s*\.\s*pipe\(|\bpipe2?\(&|\bunsafe\s+pipe2?\("#, "FileDescriptor.pipeEnds"),
      (#"\bGlibc\.(?:open|socket|accept4?|pipe2?|dup[23]?|creat)\("#, "FileDescriptor.opened and its like"),
      (#"(?<![\w.])socket\(\s*(?:AF_|PF_|CInt|Int32)|\bunsafe\s+socket\("#, "FileDescriptor.socket"),
      (#"\bunsafe\s+accept4?\(|\baccept4\("#, "FileDescriptor.accepted"),
      (#"(?<![\w.])dup[23]?\(|\.duplicate\(|\bF_DUPFD"#, "FileDescriptor.copied"),
      (#"\b(?:F_SETFD|FD_CLOEXEC|SOCK_CLOEXEC|O_CLOEXEC)\b|\.closeOnExec\b"#, "the flag at the descriptor's creation"),
      (
        #"\b(?:socketpair|epoll_create1?|eventfd|timerfd_create|signalfd|memfd_create|inotify_init1?|fanotify_init|popen|mkstemps?|mkostemps?)\("#,
        "FileDescriptor.opened and its like"
      ),
      (#"(?<![\w.])(?:FileHandle|Pipe)\(|\bProcess\(\)\s*\.|\.executableURL\b"#, "FileDescriptor.opened and its like"),
      (#"\b(?:Data|String)\(contentsOf"#, "FileDescriptor.opened"),
      (
        #"\b(?:Server|Datagram)Bootstrap\b|\bunixDomainSocketPath:|\.connect\(\s*host\s*:|\.bind\(\s*(?:host|to)\s*:"#,
        "StreamSocket, StreamListener"
      ),
      (#"\bMultiThreadedEventLoopGroup\b"#, "EventLoops"),
    ]
    let allowed = ["System/Descriptors.swift", "Transport/EventLoops.swift"]
    // A file is read as code, line by line, only if anything in it looks like one of them.
    let any = try NSRegularExpression(pattern: calls.map { "(?:\($0.pattern))" }.joined(separator: "|"))
    var files = 0
    for folder in Set(arrows.map(\.folder))
    where FileManager.default.fileExists(atPath: root.appending(path: "Sources/\(folder)").path) {
      for file in sources(folder) where !allowed.contains(where: { file.path.hasSuffix($0) }) {
        files += 1
        let text = try String(contentsOf: file, encoding: .utf8)
        if any.firstMatch(in: text, range: NSRange(text.startIndex..., in: text)) == nil { continue }
        for (number, line) in try code(file).enumerated() {
          for call in calls where line.range(of: call.pattern, options: .regularExpression) != nil {
            Issue.record("\(file.path):\(number + 1): use \(call.instead): \(line)")
          }
        }
      }
    }
    #expect(files > 300)
  }

  @Test(arguments: layers.sorted()) func layersKeepTheWorldOutside(_ layer: String) throws {
    guard let folder = arrows.first(where: { $0.module == layer })?.folder else { return }
    try keepTheWorldOutside(sources(folder))
  }
  /// Only its driver uses them.
  @Test func theBrokersCoreKeepsTheWorldOutside() throws {
    let core = sources("Broker/Core")
    #expect(core.count > 10)
    try keepTheWorldOutside(core)
  }
  private func keepTheWorldOutside(_ files: [URL]) throws {
    for file in files {
      for (number, line) in try code(file).enumerated() {
        for word in forbidden where line.range(of: word.pattern, options: .regularExpression) != nil {
          Issue.record("\(file.path):\(number + 1): \(word.why): \(line)")
        }
      }
    }
  }
}
