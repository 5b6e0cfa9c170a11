import ArgumentParser
import Bindrune
import BindruneTransport
import BindruneWire
import BindruneGAP

struct Serve: AsyncParsableCommand, EventReporter {
  static let configuration = CommandConfiguration(
    abstract: "Serve a heart rate sensor that notifies once a second, or what a file describes.",
    discussion: """
      Advertises Heart Rate, Battery and Device Information to any number of centrals until interrupted. \
      --profile serves the services of a file instead, in the JSON of conformance scripts \
      (Fixtures/Scripts/FORMAT.md), adds a Generic Access service if the file has none, and notifies each current \
      value once a second. What its characteristics require, such as "read": "encrypted", devices get by pairing. Of \
      its "channels" each listens on a PSM, and returns SDUs ("echo") or drops them ("discard").
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
    try checkLength(ofName: name)
  }

  func run() async throws {
    if let profile { return try await serve(try ProfileServer(profile, name: name)) }
    let sensor = HeartRateSensor(name: name, serverFeatures: options.serverFeatures), name = name
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

/// Throws if the name does not fit a scan response: 31 octets, of which length and type take two. Vol 3, Part C, §11.
func checkLength(ofName name: String) throws(ValidationError) {
  guard name.utf8.count > 29 else { return }
  throw ValidationError("--name has \(name.utf8.count) octets and 29 fit the scan response: shorten it.")
}
