import ArgumentParser
import Bindrune
import BindruneTransport
import Glibc
import Logging

@main
struct BindruneCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "bindrune",
    abstract: "Bluetooth LE on Linux, down to the HCI packets.",
    discussion: """
      A controller is named by where it is: tcp:HOST:PORT and unix:PATH speak H4, sim is a virtual radio in this process \
      with a heart rate sensor on it.
      """,
    version: "0.1.0",
    subcommands: [Demo.self, ScanCommand.self, Explore.self, Serve.self, Controllers.self])
}

/// What every verb that opens a controller takes.
struct HostOptions: ParsableArguments {
  @Option(
    name: .long, help: "The controller: tcp:HOST:PORT, unix:PATH or sim.", transform: TransportSpec.init(argument:))
  var hci: TransportSpec
  @Option(name: .long, help: "Write every HCI packet to this file (btsnoop; tshark and Wireshark open it).")
  var trace: String?
  @OptionGroup var logging: LoggingOptions
}

struct LoggingOptions: ParsableArguments {
  @Option(name: .long, help: "trace, debug, info, notice, warning, error or critical; to standard error.")
  var logLevel: Logger.Level = .warning

  var logger: Logger {
    var logger = Logger(label: "bindrune") { StreamLogHandler.standardError(label: $0) }
    logger.logLevel = logLevel
    return logger
  }
}

extension Logger.Level: @retroactive ExpressibleByArgument {}
extension TransportSpec {
  /// The parser shows an error's own sentence only if it is one of its own.
  init(argument: String) throws {
    do throws(TransportError) { self = try TransportSpec(argument) } catch { throw ValidationError(error.description) }
  }
}
/// `3`, `2.5`.
func seconds(_ value: Double) -> String { value == value.rounded() ? "\(Int(value)) s" : "\(value) s" }

/// One sentence to standard error, status 1.
struct Failure: Error, CustomStringConvertible {
  var description: String
  init(_ description: String) { self.description = description }
}
