import ArgumentParser
import Bindrune
import Glibc
import Logging

@main
struct BindruneCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "bindrune",
    abstract: "Bluetooth LE on Linux, down to the HCI packets.",
    discussion: """
      A controller is named by where it is: hci0 is an adapter of this machine, serial:PATH, tcp:HOST:PORT and unix:PATH \
      speak H4, sim is a virtual radio in this process with a heart rate sensor on it. No controller at hand? Start \
      "bindrune controllers --name desk", and every program of yours that opens sim:desk is on one virtual radio.
      """,
    version: "0.1.0",
    subcommands: [
      Demo.self, ScanCommand.self, Explore.self, Serve.self, Advertise.self, Overflow.self, Bench.self,
      Controllers.self, Adapters.self, Doctor.self, Conform.self,
    ])

  /// The parser's own `main`, with an end for whoever interrupts.
  static func main() async {
    let work = Task {
      var command = try parseAsRoot()
      if var command = command as? any AsyncParsableCommand { try await command.run() } else { try command.run() }
    }
    Interruption.begin { work.cancel() }
    let result = await work.result
    Screen.close()
    Console.status(nil)
    switch (result, Interruption.cause) {
    case (_, .outputFailed(let words)): exit(withError: Failure("Standard output failed: \(words)."))
    // Who reads no more has seen enough.
    case (.success, _), (.failure, .outputClosed): exit()
    case (.failure(let error), .signal(let number)) where error.isCancellation: Glibc.exit(128 + number)
    case (.failure(let error), _): exit(withError: error)
    }
  }
}

extension Error {
  fileprivate var isCancellation: Bool { self is CancellationError || (self as? BluetoothError)?.code == .cancelled }
}

/// What every verb that opens a controller takes.
struct HostOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp(
      "The controller: hci0, serial:PATH[,BAUD], tcp:HOST:PORT, unix:PATH, sim or sim:NAME.", valueName: "spec"),
    transform: TransportSpec.init(argument:))
  var hci: TransportSpec
  @Flag(help: "Take an adapter down that is up, and bring it up again at the end (not after SIGKILL).")
  var takeDown = false
  @OptionGroup var common: CommonOptions

  init() {}
  /// Of a verb that can do without a controller.
  init(hci: TransportSpec, takeDown: Bool, common: CommonOptions) {
    self.hci = hci
    self.takeDown = takeDown
    self.common = common
  }
}

/// What every verb takes.
struct CommonOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp("Write every HCI packet to this file (btsnoop, for Wireshark and tshark).", valueName: "file"))
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

/// One sentence to standard error, status 1.
struct Failure: Error, CustomStringConvertible {
  var description: String
  init(_ description: String) { self.description = description }
}
