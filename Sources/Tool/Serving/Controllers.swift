import ArgumentParser
import Bindrune
import BindruneTransport
import BindruneWire
import NIOCore
import NIOPosix
import Synchronization

struct Controllers: AsyncParsableCommand, EventReporter {
  static let configuration = CommandConfiguration(
    abstract: "Offer virtual controllers to any host that speaks H4.",
    discussion: """
      Every connection gets a new controller, and all are on one virtual radio; closing the connection removes the \
      controller. Prints the address that hosts connect to. --trace writes a file for each: FILE, FILE.2, FILE.3 …

      --name gives the radio a name by which all your programs find it: after "bindrune controllers --name desk", \
      "--hci sim:desk" opens a controller on it. --listen is for hosts that need an address, such as those of other \
      stacks. Both options together are two ways to the same radio.
      """)

  @Option(
    help: ArgumentHelp(
      "The radio's name: letters, digits, '-', '_' and '.', not beginning with '.'.", valueName: "name"),
    transform: { try TransportSpec(argument: "sim:" + $0) })
  var name: TransportSpec?
  @Option(
    help: ArgumentHelp("Where to listen: tcp:HOST:PORT (port 0: any free one) or unix:PATH.", valueName: "spec"),
    transform: TransportSpec.init(argument:))
  var listen: TransportSpec?
  @Option(help: ArgumentHelp("How many percent of the packets are lost in the air.", valueName: "percent"))
  var loss = 0.0
  @Option(help: "Seed of the radio's random numbers: which packets are lost, and how late the others are.")
  var seed: UInt64 = 1
  @OptionGroup var common: CommonOptions

  func validate() throws {
    if name == nil, listen == nil {
      throw ValidationError(
        "No host could connect: add --name desk, or --listen tcp:127.0.0.1:0 for a host of any kind.")
    }
    if !(0...100 ~= loss) { throw ValidationError("--loss is a number from 0 to 100.") }
  }

  func run() async throws {
    let loop = EventLoops.next()
    let radio = SimulatedRadio(on: loop, seed: seed, configuration: .quiet(loss: loss / 100), logger: common.logger)
    let traces = common.trace.map { Traces(path: $0) }
    var servers: [H4Server] = []
    var result = Result<Void, any Error>.success(())
    do {
      for spec in [name, listen].compactMap(\.self) {
        let server = try await H4Server.listen(on: spec, loop: loop) { stream in
          radio.attach(traces?.trace(stream) ?? stream)
        }
        servers.append(server)
      }
      for server in servers { Console.line("listening on \(server.address)".printable()) }
      try await untilInterrupted(nil) { while true { try await Task.sleep(for: .seconds(86_400)) } }
    } catch {
      result = .failure(error)  // closing a server removes its socket file, also after an error
    }
    for server in servers { await server.close() }
    try await loop.submit { radio.close() }.get()
    try result.get()
  }
}

/// A trace for each connection: FILE, FILE.2, FILE.3 …
private final class Traces: Sendable {
  private let path: String
  private let count = Atomic(0)
  init(path: String) { self.path = path }

  /// Returns the stream itself if its file cannot be written.
  func trace(_ stream: H4Stream) -> any HCITransport {
    let number = count.add(1, ordering: .relaxed).newValue
    do throws(TransportError) {
      let writer = try BTSnoopWriter(path: number == 1 ? path : "\(path).\(number)")
      return TracingTransport(stream, writer: writer, outgoing: .fromController)
    } catch {
      Console.warn(error.description)
      return stream
    }
  }
}
