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
      A controller is named by where it is: hci0 is an adapter of this machine, serial:PATH, tcp:HOST:PORT and unix:PATH \
      speak H4, sim is a virtual radio in this process with a heart rate sensor on it. Without --hci it is the one that \
      BINDRUNE_HCI names, else the configuration file (~/.config/bindrune/config or /etc/bindrune/config), else hci0. \
      No controller at hand? Start "bindrune controllers --name desk", and every program of yours that opens sim:desk is on \
      one virtual radio.
      """,
    version: "0.1.0",
    subcommands: [
      Demo.self, ScanCommand.self, Explore.self, Read.self, Write.self, Subscribe.self, Shell.self, Serve.self,
      Advertise.self,
      Overflow.self, Bench.self,
      Controllers.self, Adapters.self, Doctor.self, Conform.self,
    ])

  /// As the parser's own `main`; interruptions end the work well, and the output waits for its readers.
  static func main() async {
    Console.reserveStreams()
    let work = Task { () -> Outcome in
      var command: any ParsableCommand
      do { command = try parseAsRoot() } catch { return .notBegun(error) }
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
    /// Wrong usage, or help was asked for.
    case notBegun(any Error)
    case ended(Result<Void, any Error>, awaitsReader: Bool)
  }

  /// The exit status; what went wrong is said.
  private static func status(_ result: Result<Void, any Error>) -> CInt {
    switch (result, Interruption.cause) {
    case (_, .outputFailed(let words)):
      Console.error("Error: Standard output failed: \(words).")
      return EXIT_FAILURE
    // Who reads no more has seen enough.
    case (.success, _), (.failure, .outputClosed): return EXIT_SUCCESS
    case (.failure(let error), .signal(let number)) where error.isCancellation: return 128 + number
    case (.failure(let error), _):
      // Help is a verb of the parser's, which ends so.
      if error is ValidationError || exitCode(for: error).isSuccess {
        explain(error)
      } else if !(error is ExitCode) {
        Console.error(fullMessage(for: error))
      }
      return ExitStatus(error)?.rawValue ?? exitCode(for: error).rawValue
    }
  }

  /// The parser's words for people, which are several lines and quote what was typed: to standard output where they were asked for.
  private static func explain(_ error: any Error) {
    let text = withPrintableArguments(fullMessage(for: error))
    if exitCode(for: error).isSuccess { Console.line(text) } else { Console.printed(text) }
  }

  private static func end(_ status: CInt, awaitsReader: Bool) {
    Console.finish(awaitsReader: awaitsReader)
    // What came meanwhile, from the reader or from who waits.
    switch Interruption.cause {
    case .signal(let number) where status == EXIT_SUCCESS && !Console.isDrained: Glibc.exit(128 + number)
    case .outputFailed(let words) where status == EXIT_SUCCESS:
      Console.error("Error: Standard output failed: \(words).")
      Console.finish(awaitsReader: false)
      Glibc.exit(EXIT_FAILURE)
    default: Glibc.exit(status)
    }
  }

  private static func withPrintableArguments(_ text: String) -> String {
    var text = text
    for argument in CommandLine.arguments.dropFirst() {
      // The parser parts --option=value.
      for part in [argument, String(argument.split(separator: "=", maxSplits: 1).last ?? "")] {
        let shown = part.printable(limit: 200)
        if shown != part { text = text.replacing(part, with: shown) }
      }
    }
    return text.split(separator: "\n", omittingEmptySubsequences: false).map { $0.printable() }.joined(separator: "\n")
  }
}

/// A verb that tells what happens as long as it runs. What nobody has read when it ends is not waited for.
protocol EventReporter: ParsableCommand {}

extension Error {
  fileprivate var isCancellation: Bool { self is CancellationError || (self as? BluetoothError)?.code == .cancelled }
}

/// What every verb that opens a controller takes.
struct HostOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp(
      """
      The controller: hci0, serial:PATH[,BAUD], tcp:HOST:PORT, unix:PATH, sim or sim:NAME. Without it BINDRUNE_HCI, the \
      configuration file, or hci0.
      """, valueName: "spec"), completion: .custom { _, _, _ in AdapterName.specs },
    transform: TransportSpec.init(argument:))
  var hci: TransportSpec?
  @Flag(help: "Take an adapter down that is up, and bring it up again at the end (not after SIGKILL).")
  var takeDown = false
  @OptionGroup var common: CommonOptions

  init() {}
  /// Of a verb that can do without a controller.
  init(hci: TransportSpec?, takeDown: Bool, common: CommonOptions) {
    self.hci = hci
    self.takeDown = takeDown
    self.common = common
  }

  /// What the environment and the configuration file say where the command line does not, as in a Core Bluetooth program.
  func choice() throws(TransportError) -> AdapterChoice {
    var choice = try AdapterChoice(hci?.description)
    choice.takesDown = choice.takesDown || takeDown
    choice.trace = common.trace ?? choice.trace
    return choice
  }
}

/// What every verb takes.
struct CommonOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp("Write every HCI packet to this file (btsnoop, for Wireshark and tshark).", valueName: "file"),
    completion: .file())
  var trace: String?
  @Option(help: ArgumentHelp("How much to tell on standard error.", valueName: "level"))
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
        "\"\(argument.printable())\" is no UUID: write 180D, or 128 bits as 12345678-9ABC-DEF0-1234-56789ABCDEF0.")
    }
    self = uuid
  }
}
extension TransportSpec {
  /// The parser shows an error's own sentence only if it is one of its own.
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

/// The exit statuses that a script can tell apart; `DeviceOptions.statuses` explains them. Besides there are 64 for wrong usage
/// and 128 + n for an end by signal n.
enum ExitStatus: CInt {
  case failure = 1
  /// The device was not heard, or did not answer.
  case notReached = 2
  case noAttribute = 3
  /// The device answered with an ATT error.
  case refused = 4
  case timeOver = 5

  /// nil: the parser decides.
  init?(_ error: any Error) {
    switch (error as? Failure)?.status ?? (error as? BluetoothError).flatMap({ Self.statuses[$0.code] }) {
    case let status?: self = status
    case nil: return nil
    }
  }
  private static let statuses: [BluetoothError.Code: ExitStatus] = [.att: .refused, .timedOut: .timeOver]
}
