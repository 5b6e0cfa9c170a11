import ArgumentParser
import Bindrune
import BindruneGAP
import BindruneGATT

/// The options of every verb that talks to one device.
struct DeviceOptions: ParsableArguments {
  @OptionGroup var host: HostOptions
  @Option(
    help: ArgumentHelp(
      "The device: AA:BB:CC:DD:EE:FF/public or …/random; without a type the tool scans for it.", valueName: "address"))
  var address: WantedAddress?
  @Option(help: "The device's name, or its beginning and *; the first match is used.")
  var name: String?
  @Option(help: ArgumentHelp("How long to look for the device, and then to connect.", valueName: "seconds"))
  var timeout = Seconds(10)
  @OptionGroup var pairing: PairingOptions

  func validate() throws {
    guard (address == nil) != (name == nil) else {
      throw ValidationError("Select a device: either --address or --name.")
    }
  }

  var wanted: WantedDevice { address.map { .address($0) } ?? .name(name ?? "") }

  /// Opens the controller, finds the device, connects and runs `body`; closes everything, even if `body` throws.
  /// `agent`: nil: the options'.
  func withLink<Result>(
    _ progress: Progress, _ configuration: HostConfiguration = HostConfiguration(),
    agent: (any PairingAgent)? = nil, _ body: (Link, PeerAddress) async throws -> Result
  ) async throws -> Result {
    let logger = host.common.logger, store = try pairing.store(host, logger)
    return try await withLink(
      progress, configuration, agent: agent ?? pairing.makeAgent(logger), bondStore: store, body)
  }
  func withLink<Result>(
    _ progress: Progress, _ configuration: HostConfiguration, agent: any PairingAgent, bondStore: (any BondStore)?,
    _ body: (Link, PeerAddress) async throws -> Result
  ) async throws -> Result {
    try await BluetoothHost.using(host, configuration: configuration, agent: agent, bondStore: bondStore) { host in
      progress("looking for a \(wanted.text)")
      let peer = try await wanted.find(by: host, within: timeout)
      progress("connecting to \(peer)")
      return try await host.reach(peer, within: timeout) { link in try await body(link, peer) }
    }
  }

  /// The exit statuses of the verbs that read and write, for their help.
  static let statuses = """
    Status 2: the device was not heard or did not answer. 3: it has no such attribute. 4: it refused, with an ATT \
    error. 5: the time is over. 64: wrong usage. 1: anything else, such as a failed controller or a lost link.
    """
}

/// Shows what a verb is doing, below its output on a terminal.
struct Progress {
  let isShown: Bool
  func callAsFunction(_ text: String?) {
    if isShown { Console.status(text.map { $0 + " …" }) }
  }
}

extension Link {
  /// Looks the names up on this device. Handles alone need no discovery unless `needsUUID`; their attributes are then
  /// nil.
  func resolve(
    _ names: [AttributeName], needsUUID: Bool, _ progress: Progress
  ) async throws -> [(handle: AttributeHandle, attribute: RemoteAttribute?)] {
    let handles = names.compactMap(\.handle)
    if !needsUUID, handles.count == names.count { return handles.map { ($0, nil) } }
    progress("discovering the services of the device")
    let database = try await discoverAll()
    return try names.map { name in
      // The handle may be that of a declaration, which can be read, too.
      if let handle = name.handle { return (handle, database.attributes.first(where: name.matches)) }
      let attribute = try database.attribute(name)
      return (attribute.handle, attribute)
    }
  }
}
