import ArgumentParser
import Bindrune
import BindruneTransport
import BindruneWire
import GAP
import NIOPosix

struct Serve: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Be a heart rate sensor that notifies once a second.",
    discussion: "Advertises Heart Rate, Battery and Device Information to any number of centrals until interrupted.")

  @OptionGroup var options: HostOptions
  @Option(help: "The name to advertise, at most 29 octets of UTF-8.")
  var name = "Bindrune HR"
  @Option(help: "Seconds to serve; without it until interrupted.")
  var duration: Double?

  func validate() throws {
    if name.utf8.count > 29 {
      throw ValidationError("--name has \(name.utf8.count) octets and 29 fit the scan response: shorten it.")
    }
    if name.isEmpty { throw ValidationError("--name is empty: give the sensor a name.") }
    if let duration, !(duration > 0 && duration <= 86_400) {
      throw ValidationError("--duration is a number of seconds from 0 to 86400.")
    }
  }

  func run() async throws {
    let sensor = HeartRateSensor(name: name), name = name
    try await Host.using(options, database: sensor.database) { host in
      try await host.advertise(sensor.advertisingData(name: name))
      Console.line("serving \(name) as \(await host.ownAddress)")
      let limit = duration.map { Duration.milliseconds(Int64($0 * 1000)) } ?? .seconds(86_400 * 365)
      _ = try await withLimit(limit) {
        try await sensor.run(on: host, period: .seconds(1)) { Console.line($0) }
      }
    }
  }
}

struct Controllers: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Offer virtual controllers to any host that speaks H4.",
    discussion: """
      Every connection is one fresh controller, and all are on one virtual radio; closing the connection takes the \
      controller away. Prints the address that hosts connect to.
      """)

  @Option(
    help: "Where to listen: tcp:HOST:PORT (port 0: any that is free) or unix:PATH.",
    transform: TransportSpec.init(argument:))
  var listen: TransportSpec
  @Option(help: "Seed of the radio's chance; the same seed and the same hosts give the same air.")
  var seed: UInt64 = 1
  @OptionGroup var logging: LoggingOptions

  func run() async throws {
    let loop = MultiThreadedEventLoopGroup.singleton.next()
    let radio = SimulatedRadio(on: loop, seed: seed)
    let server = try await radio.listen(on: listen)
    Console.line("listening on \(server.address)")
    // Until interrupted.
    try await Task.sleep(for: .seconds(86_400 * 365))
    await server.close()
  }
}
