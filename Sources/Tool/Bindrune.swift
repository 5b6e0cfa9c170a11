import ArgumentParser
import Bindrune
import BindruneTransport
import BindruneWire
import Glibc
import Logging

@main
struct BindruneCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "bindrune",
    abstract: "Bluetooth LE on Linux, down to the HCI packets.",
    discussion: """
      --hci selects the controller: hci0 is an adapter of this machine; serial:PATH, tcp:HOST:PORT and unix:PATH speak \
      H4; sim is a virtual radio in this process with a heart rate sensor on it. The default comes from BINDRUNE_HCI, \
      else from the configuration file (~/.config/bindrune/config or /etc/bindrune/config), else it is hci0. No \
      controller at hand? Start "bindrune controllers --name desk": all your programs that open sim:desk share one \
      virtual radio.
      """,
    version: "0.1.0",
    subcommands: [
      Demo.self, ScanCommand.self, WatchCommand.self, Explore.self, Read.self, Write.self, Subscribe.self,
      PipeCommand.self,
      Shell.self, Pair.self,
      Serve.self, Advertise.self, Apps.self,
      Overflow.self, Bench.self,
      Controllers.self, Adapters.self, Doctor.self, Bonds.self, Conform.self, TraceCommand.self, Explain.self,
      Learn.self,
    ])

  /// Like the parser's own `main`, but interruptions end the work cleanly, and the end waits for the output's reader.
  static func main() async {
    Console.reserveStreams()
    let work = Task { () -> Outcome in
      var command: any ParsableCommand
      let arguments = Explain.separated(Array(CommandLine.arguments.dropFirst()))
      do { command = try parseAsRoot(arguments) } catch { return .notBegun(error) }
      let awaitsReader = !(command is any EventReporter)
      do {
        if var command = command as? any AsyncParsableCommand { try await command.run() } else { try command.run() }
        return .ended(.success(()), awaitsReader: awaitsReader)
      } catch {
        return .ended(.failure(error), awaitsReader: awaitsReader)
      }
    }
    Interruption.begin { work.cancel() }
    switch await work.value {
    case .notBegun(let error):
      explain(error)
      end(exitCode(for: error).rawValue, awaitsReader: true)
    case .ended(let result, let awaitsReader):
      Screen.close()
      Console.status(nil)
      end(status(result), awaitsReader: awaitsReader)
    }
  }
  private enum Outcome: Sendable {
    /// Wrong usage, or a request for help.
    case notBegun(any Error)
    case ended(Result<Void, any Error>, awaitsReader: Bool)
  }

  /// The exit status. Prints the error, if there is one.
  private static func status(_ result: Result<Void, any Error>) -> CInt {
    switch (result, Interruption.cause) {
    case (_, .outputFailed(let words)):
      Console.error("Error: Standard output failed: \(words).")
      return Interruption.outputFailureStatus
    // A reader that closes the output has seen enough.
    case (.success, _), (.failure, .outputClosed): return EXIT_SUCCESS
    case (.failure(let error), .signal(let number)) where error.isCancellation: return 128 + number
    case (.failure(let error), _):
      // The parser's own verb for help ends with such an error.
      if error is ValidationError || exitCode(for: error).isSuccess {
        explain(error)
      } else if !(error is ExitCode) {
        Console.error(fullMessage(for: error))
      }
      return ExitStatus(error)?.rawValue ?? exitCode(for: error).rawValue
    }
  }

  /// Prints the parser's text, which has several lines and quotes arguments; help goes to standard output.
  private static func explain(_ error: any Error) {
    let text = withPrintableArguments(fullMessage(for: error))
    if exitCode(for: error).isSuccess { Console.line(text) } else { Console.printed(text) }
  }

  private static func end(_ status: CInt, awaitsReader: Bool) {
    Console.finish(awaitsReader: awaitsReader)
    Pager.finish()
    // A signal or a failure of the output may have come meanwhile.
    switch Interruption.cause {
    case .signal(let number) where status == EXIT_SUCCESS && !Console.isDrained: Glibc.exit(128 + number)
    case .outputFailed(let words) where status == EXIT_SUCCESS:
      Console.error("Error: Standard output failed: \(words).")
      Console.finish(awaitsReader: false)
      Glibc.exit(Interruption.outputFailureStatus)
    default: Glibc.exit(status)
    }
  }

  private static func withPrintableArguments(_ text: String) -> String {
    var text = text
    for argument in CommandLine.arguments.dropFirst() {
      // The parser splits --option=value.
      for part in [argument, String(argument.split(separator: "=", maxSplits: 1).last ?? "")] {
        let shown = part.printable(limit: 200)
        if shown != part { text = text.replacing(part, with: shown) }
      }
    }
    return text.split(separator: "\n", omittingEmptySubsequences: false).map { $0.printable() }.joined(separator: "\n")
  }
}

/// A verb that reports events while it runs. At its end the program does not wait for a reader of its output.
protocol EventReporter: ParsableCommand {}

extension Error {
  fileprivate var isCancellation: Bool { self is CancellationError || (self as? BluetoothError)?.code == .cancelled }
}

/// The options of every verb that opens a controller.
struct HostOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp(
      """
      The controller: hci0, serial:PATH[,BAUD], tcp:HOST:PORT, unix:PATH, sim or sim:NAME. Default: BINDRUNE_HCI, the \
      configuration file, or hci0.
      """, valueName: "spec"), completion: .custom { _, _, _ in AdapterName.specs },
    transform: TransportSpec.init(argument:))
  var hci: TransportSpec?
  @Flag(help: "Take the adapter down if it is up, and bring it up again at the end (not after SIGKILL).")
  var takeDown = false
  @Flag(
    help:
      "With --trace: write the call that causes each packet before it (btsnoop, datalink 2001, which btmon reads too).")
  var traceCalls = false
  @Option(
    help: ArgumentHelp(
      "Bearers of ATT beside the first that an encrypted link may have (EATT), 0 to 5.", valueName: "count"))
  var enhancedBearers = 0
  @OptionGroup var common: CommonOptions

  init() {}
  /// For a verb whose controller is optional.
  init(hci: TransportSpec?, takeDown: Bool, common: CommonOptions) {
    self.hci = hci
    self.takeDown = takeDown
    self.common = common
    traceCalls = false
    enhancedBearers = 0
  }
  func validate() throws {
    guard 0...5 ~= enhancedBearers else {
      throw ValidationError("--enhanced-bearers is \(enhancedBearers), and a link may have 0 to 5: give one of these.")
    }
  }
  /// What `DatabaseBuilder.genericAttribute` tells clients: Vol 3, Part G, §7.4.
  var serverFeatures: [UInt8]? { enhancedBearers > 0 ? [1] : nil }

  /// The environment and the configuration file fill in what the command line omits, as in a Core Bluetooth program.
  func choice() throws(TransportError) -> AdapterChoice {
    var choice = try AdapterChoice(hci?.description)
    choice.takesDown = choice.takesDown || takeDown
    choice.trace = common.trace ?? choice.trace
    choice.tracesCalls = choice.tracesCalls || traceCalls
    if traceCalls, choice.trace == nil {
      throw .specification("--trace-calls adds the calls to a trace, and there is none: add --trace FILE")
    }
    return choice
  }
}

/// The options of every verb.
struct CommonOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp("Write every HCI packet to this file (btsnoop, for Wireshark and tshark).", valueName: "file"),
    completion: .file())
  var trace: String?
  @Option(help: ArgumentHelp("The least severe messages to show on standard error.", valueName: "level"))
  var logLevel: Logger.Level = .warning

  var logger: Logger {
    var logger = Logger(label: "bindrune") { StreamLogHandler(label: $0, stream: ErrorStream()) }
    logger.logLevel = logLevel
    return logger
  }
}

extension Logger.Level: @retroactive ExpressibleByArgument {}
extension BluetoothUUID {
  init(argument: String) throws {
    guard let uuid = BluetoothUUID(argument) else {
      throw ValidationError(
        "\"\(argument.printable())\" is not a UUID: write 180D, or 128 bits as 12345678-9ABC-DEF0-1234-56789ABCDEF0.")
    }
    self = uuid
  }
}
extension TransportSpec {
  /// The parser shows the sentence of an error only for its own error type.
  init(argument: String) throws {
    do throws(TransportError) { self = try TransportSpec(argument) } catch { throw ValidationError(error.description) }
  }
}

/// A number of seconds from the command line, as `3` or `2.5`.
struct Seconds: ExpressibleByArgument, CustomStringConvertible {
  let duration: Duration
  let description: String
  init?(argument: String) {
    guard let value = Double(argument), value > 0, value <= 86_400 else { return nil }
    duration = .seconds(value)
    description = argument + " s"
  }
  init(_ value: Int) {
    duration = .seconds(value)
    description = "\(value) s"
  }
  var defaultValueDescription: String { String(description.dropLast(2)) }
}

/// One sentence to standard error, and the exit status.
struct Failure: Error, CustomStringConvertible {
  var description: String
  var status: ExitStatus
  init(_ description: String, status: ExitStatus = .failure) {
    self.description = description
    self.status = status
  }
}

/// The exit statuses that a script can distinguish; `DeviceOptions.statuses` explains them. Others are 64 for wrong
/// usage and 128 + n for an end by signal n.
enum ExitStatus: CInt {
  case failure = 1
  /// The device was not heard, or did not answer.
  case notReached = 2
  case noAttribute = 3
  /// The device answered with an ATT error.
  case refused = 4
  case timeOver = 5

  /// nil: the parser chooses the status.
  init?(_ error: any Error) {
    switch (error as? Failure)?.status ?? (error as? BluetoothError).flatMap({ Self.statuses[$0.code] }) {
    case let status?: self = status
    case nil: return nil
    }
  }
  private static let statuses: [BluetoothError.Code: ExitStatus] = [.att: .refused, .timedOut: .timeOver]
}
