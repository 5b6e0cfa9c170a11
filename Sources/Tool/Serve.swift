import ArgumentParser
import Bindrune
import BindruneTransport
import BindruneWire
import GAP
import NIOPosix
import Synchronization

struct Serve: AsyncParsableCommand, EventReporter {
  static let configuration = CommandConfiguration(
    abstract: "Serve a heart rate sensor that notifies once a second, or what a file describes.",
    discussion: """
      Advertises Heart Rate, Battery and Device Information to any number of centrals until interrupted. \
      --profile serves the services of a file instead, in the JSON of conformance scripts \
      (Fixtures/Scripts/FORMAT.md), adds a Generic Access service if the file has none, and notifies each current \
      value once a second. What its characteristics require, such as "read": "encrypted", devices get by pairing.
      """)

  @OptionGroup var options: HostOptions
  @Option(help: "The name to advertise, at most 29 octets of UTF-8.")
  var name = "Bindrune HR"
  @Option(
    help: ArgumentHelp("The services to offer, described in JSON.", valueName: "file"),
    completion: .file(extensions: ["json"]))
  var profile: String?
  @Option(help: ArgumentHelp("How long to serve; by default until interrupted.", valueName: "seconds"))
  var duration: Seconds?
  @OptionGroup var pairing: PairingOptions

  func validate() throws {
    if name.isEmpty { throw ValidationError("--name is empty: give the sensor a name.") }
    if name.utf8.count > 29 {
      throw ValidationError("--name has \(name.utf8.count) octets and 29 fit the scan response: shorten it.")
    }
  }

  func run() async throws {
    if let profile { return try await serve(try ProfileServer(profile, name: name)) }
    let sensor = HeartRateSensor(name: name), name = name
    try await withHost(sensor.database) { host in
      try await untilInterrupted(duration) {
        try await sensor.run(on: host, name: name, period: .seconds(1)) {
          Console.line("serving \(name.printable()) as \(await host.ownAddress)")
        } _: {
          Console.line($0)
        }
      }
    }
  }
}

extension Serve {
  private func withHost(_ database: Database, _ body: (BluetoothHost) async throws -> Void) async throws {
    let logger = options.common.logger
    try await BluetoothHost.using(
      options, database: database, agent: pairing.makeAgent(logger), bondStore: try pairing.store(options, logger), body
    )
  }
  private func serve(_ profile: ProfileServer) async throws {
    for warning in profile.warnings { Console.warn(warning.description + ".") }
    let name = name
    try await withHost(profile.database) { host in
      try await untilInterrupted(duration) {
        try await profile.run(on: host, name: name, period: .seconds(1)) {
          Console.line("serving \(name.printable()) as \(await host.ownAddress)")
        } _: {
          Console.line($0)
        }
      }
    }
  }
}

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
