import Foundation
import Synchronization
import Testing

/// One run of the built `bindrune`, which lies beside the tests: its lines as they come, and its end. It is killed
/// after ten minutes, which only a hang takes.
final class Tool: @unchecked Sendable {
  // Several threads use the process, which Foundation permits for the members used here.
  private let process = Process()
  private let output = Capture()
  private let errors = Capture()
  private let ended: AsyncStream<Int32>

  struct End: Sendable {
    /// The exit status; 128 + n after signal n, as in a shell.
    var status: Int32
    var output: String
    var errors: String
    var lines: [String] { output.split(separator: "\n", omittingEmptySubsequences: true).map(String.init) }
    /// The objects printed by `--json`.
    func objects() throws -> [[String: any Sendable]] {
      try lines.map {
        try #require(try JSONSerialization.jsonObject(with: Data($0.utf8)) as? [String: any Sendable])
      }
    }
  }

  static var folder: URL {
    URL(filePath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent()
  }
  static var path: String { folder.appending(path: "bindrune").path }

  convenience init(_ arguments: String...) throws { try self.init(Self.path, arguments) }
  /// A run that gets the signal as soon as it has written a line with `text`, however busy the tests are.
  convenience init(_ arguments: String..., signal: Int32, at text: String) throws {
    try self.init(Self.path, arguments, signal: (signal, text, 1))
  }
  /// A scan that ends after it has printed `text` this often.
  static func scan(_ arguments: String..., until text: String) async throws -> End {
    try await scan(arguments, until: text)
  }
  static func scan(_ arguments: [String], until text: String, times: Int = 1) async throws -> End {
    try await Tool(path, ["scan"] + arguments, signal: (SIGINT, text, times)).end()
  }
  static func running(_ arguments: [String]) throws -> Tool { try Tool(path, arguments) }
  /// A complete run with these arguments.
  static func run(_ arguments: [String]) async throws -> End { try await Tool(path, arguments).end() }
  /// A run whose reader has paused: its standard output is a full pipe until `resumeReading`.
  static func paused(_ arguments: [String]) throws -> Tool { try Tool(path, arguments, isPaused: true) }
  /// A command line for the shell, where `bindrune` is the tool.
  static func shell(_ script: String) throws -> Tool {
    try Tool("/bin/sh", ["-c", #"bindrune() { "\#(path)" "$@"; }; "# + script])
  }

  private init(
    _ program: String, _ arguments: [String], signal: (number: Int32, text: String, times: Int)? = nil,
    isPaused: Bool = false
  ) throws {
    if isPaused { output.fill() }
    process.executableURL = URL(filePath: program)
    process.arguments = arguments
    process.standardInput = FileHandle.nullDevice
    process.standardOutput = output.pipe
    process.standardError = errors.pipe
    let (stream, continuation) = AsyncStream.makeStream(of: Int32.self)
    ended = stream
    process.terminationHandler = { process in
      continuation.yield((process.terminationReason == .uncaughtSignal ? 128 : 0) + process.terminationStatus)
      continuation.finish()
    }
    try Self.withDefaultSignals { try process.run() }
    let identifier = process.processIdentifier
    let left = Atomic(signal?.times ?? 0)
    if !isPaused {
      output.begin { line in
        guard let signal, line.contains(signal.text) else { return }
        if left.subtract(1, ordering: .relaxed).newValue == 0 { kill(identifier, signal.number) }
      }
    }
    errors.begin { _ in }
    Thread.detachNewThread { [weak self] in
      Thread.sleep(forTimeInterval: 600)
      if let self, self.process.isRunning { kill(identifier, SIGKILL) }
    }
  }

  /// A process inherits the signals that its parent's thread blocks, which for a worker thread are all, and those that
  /// its parent ignores, which in the background of a shell are SIGINT and SIGQUIT.
  static func withDefaultSignals(_ body: () throws -> Void) rethrows {
    var none = sigset_t(), before = sigset_t()
    for number in [SIGINT, SIGQUIT] { Foundation.signal(number, SIG_DFL) }
    // The sets are used during the calls only.
    unsafe sigemptyset(&none)
    unsafe pthread_sigmask(SIG_SETMASK, &none, &before)
    defer { unsafe pthread_sigmask(SIG_SETMASK, &before, nil) }
    try body()
  }

  func resumeReading() { output.begin { _ in } }
  /// Waits for its end without reading its output.
  func status() async -> Int32 {
    for await value in ended { return value }
    return -1
  }

  func signal(_ number: Int32) { kill(process.processIdentifier, number) }
  var isRunning: Bool { process.isRunning }
  /// How often its threads have given up the processor voluntarily.
  var voluntarySwitches: Int {
    let tasks = "/proc/\(process.processIdentifier)/task"
    let threads = (try? FileManager.default.contentsOfDirectory(atPath: tasks)) ?? []
    return threads.reduce(0) { sum, thread in
      let status = (try? String(contentsOfFile: "\(tasks)/\(thread)/status", encoding: .utf8)) ?? ""
      let line = status.split(separator: "\n").first { $0.hasPrefix("voluntary_ctxt_switches:") }
      return sum + (line.flatMap { Int($0.split(separator: "\t").last ?? "") } ?? 0)
    }
  }

  /// The next line that contains `text`.
  func line(_ text: String, _ location: SourceLocation = #_sourceLocation) async throws -> String {
    for await line in output.lines where line.contains(text) { return line }
    throw Missing(text: text, errors: await errors.whole())
  }
  /// The next line on standard error that contains `text`.
  func errorLine(_ text: String) async throws -> String {
    for await line in errors.lines where line.contains(text) { return line }
    throw Missing(text: text, errors: await errors.whole())
  }
  struct Missing: Error, CustomStringConvertible {
    var text: String
    var errors: String
    var description: String { "it ended without a line with \"\(text)\": \(errors)" }
  }

  func end() async -> End {
    var status: Int32 = -1
    for await value in ended { status = value }
    return End(
      status: status, output: await output.whole(), errors: await errors.whole())
  }

  /// The lines of one pipe.
  private final class Capture: Sendable {
    let pipe = Pipe()
    let lines: AsyncStream<String>
    private let arrived: AsyncStream<String>.Continuation
    private let octets = Mutex(Data())
    private let done: AsyncStream<Void>
    private let finish: AsyncStream<Void>.Continuation

    init() {
      (lines, arrived) = AsyncStream.makeStream()
      (done, finish) = AsyncStream.makeStream()
    }
    /// Fills the pipe with line feeds.
    func fill() {
      let descriptor = pipe.fileHandleForWriting.fileDescriptor, flags = fcntl(descriptor, F_GETFL)
      _ = fcntl(descriptor, F_SETFL, flags | O_NONBLOCK)
      let lines = [UInt8](repeating: UInt8(ascii: "\n"), count: 4096)
      while unsafe lines.withUnsafeBytes({ unsafe write(descriptor, $0.baseAddress, $0.count) }) > 0 {}
      _ = fcntl(descriptor, F_SETFL, flags)
    }
    func begin(_ heard: @escaping @Sendable (String) -> Void) {
      try? pipe.fileHandleForWriting.close()
      Thread.detachNewThread { [self] in
        var rest = Data()
        while true {
          let data = pipe.fileHandleForReading.availableData
          if data.isEmpty { break }
          octets.withLock { $0 += data }
          rest += data
          while let place = rest.firstIndex(of: UInt8(ascii: "\n")) {
            let line = String(decoding: rest[..<place], as: UTF8.self)
            heard(line)
            arrived.yield(line)
            rest.removeSubrange(...place)
          }
        }
        arrived.finish()
        finish.finish()
      }
    }
    func whole() async -> String {
      for await _ in done {}
      // Decoded only now: a character may come in two pieces.
      return octets.withLock { String(decoding: $0, as: UTF8.self) }
    }
  }
}

/// `bindrune controllers` at an address of the system's choice.
func controllers(_ spec: String = "tcp:127.0.0.1:0") async throws -> (tool: Tool, spec: String) {
  let tool = try Tool("controllers", "--listen", spec)
  let line = try await tool.line("listening on ")
  return (tool, String(line.dropFirst("listening on ".count)))
}

/// A folder that is removed with the test.
func withFolder<Result>(_ body: (URL) async throws -> Result) async throws -> Result {
  let folder = FileManager.default.temporaryDirectory.appending(path: "bindrune-\(UUID().uuidString.prefix(8))")
  try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
  defer { try? FileManager.default.removeItem(at: folder) }
  return try await body(folder)
}

/// Expects one sentence, capital to full stop, and this exit status.
func expectSentence(
  _ end: Tool.End, _ words: String, status: Int32 = 1, _ location: SourceLocation = #_sourceLocation
) {
  #expect(end.status == status, sourceLocation: location)
  let lines = end.errors.split(separator: "\n")
  #expect(lines.count == 1, "\(end.errors)", sourceLocation: location)
  let sentence = lines.first?.dropFirst("Error: ".count) ?? ""
  #expect(end.errors.hasPrefix("Error: ") && end.errors.hasSuffix(".\n"), sourceLocation: location)
  #expect(sentence.first?.isUppercase == true || sentence.first?.isNumber == true, sourceLocation: location)
  #expect(sentence.contains(words), "\(sentence)", sourceLocation: location)
}
