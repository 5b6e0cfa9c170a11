import ArgumentParser
import Bindrune
import BindruneTransport
import BindruneWire
import BindruneGAP
import BindruneHCI
import BindruneSimulator
import NIOPosix

struct Bench: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Measure a link: the rates of reads, write commands, notifications and a channel, and latencies.",
    discussion: """
      A measurement needs two ends. On one machine or adapter, "bindrune bench --hci SPEC --role peripheral" \
      advertises and serves the bench service; on the other, "bindrune bench --hci SPEC" finds it, connects and \
      measures. With two adapters on one machine, "bindrune bench --hci hci0 --hci hci1" runs both ends; the first is \
      the central. "bindrune bench --hci sim" needs no adapter: both ends use a virtual radio in this process, and the \
      figures are that radio's.

      The receiver counts: the peripheral the write commands, the central the notifications. The report compares each \
      count with the number sent. The time runs from the first to the last, plus one connection interval. A read's \
      latency is the time from the call to its answer; percentiles are at most 3 % too high.

      --channel then measures a credit-based channel: the latency of a small SDU that the peripheral returns, SDUs \
      out, and SDUs in. The percentage is the share of what the link layer carries: in each connection interval as \
      many full packets as fit, each answered by an empty one. --interval and --phy decide it, --seconds and --count \
      limit each of the three measurements, and --size is that of an SDU; by default an SDU fills eight K-frames. The \
      time runs from the arrival of an SDU that is not counted.
      """)

  enum Role: String, ExpressibleByArgument, CaseIterable { case central, peripheral }

  @Option(
    help: ArgumentHelp(
      """
      The controller: hci0, serial:PATH[,BAUD], tcp:HOST:PORT, unix:PATH, sim:NAME; a second one is the peripheral's \
      end. sim provides both ends. Default: BINDRUNE_HCI, the configuration file, or hci0.
      """, valueName: "spec"), completion: .custom { _, _, _ in AdapterName.specs },
    transform: TransportSpec.init(argument:))
  var hci: [TransportSpec] = []
  @Flag(help: "Take the adapter down if it is up, and bring it up again at the end (not after SIGKILL).")
  var takeDown = false
  @OptionGroup var common: CommonOptions

  @Option(help: "The end on this controller: central (measures, the default) or peripheral (serves).")
  var role: Role?
  @Option(help: "The name that the peripheral advertises, at most 29 octets of UTF-8.")
  var name: String?
  @Option(
    help: ArgumentHelp(
      """
      The other end: AA:BB:CC:DD:EE:FF/public or …/random, a name, or the beginning of a name and *. Default: the \
      first device with the bench service.
      """,
      valueName: "address or name"))
  var peer: String?
  @Option(
    help: ArgumentHelp("How long to look for the peer, and then to connect; default: 10.", valueName: "seconds"))
  var timeout: Seconds?
  @Option(help: ArgumentHelp("How long each measurement takes; default: 5.", valueName: "seconds"))
  var seconds: Seconds?
  @Option(help: ArgumentHelp("Stop each measurement after this many operations.", valueName: "number"))
  var count: Int?
  @Option(
    help: ArgumentHelp(
      "Octets in a write command, a notification and an SDU, 4 … 512; default: what the MTU carries.",
      valueName: "octets")
  )
  var size: Int?
  @Option(
    help: ArgumentHelp(
      "The connection interval: fast (7.5 ms, the default), balanced (30 ms), or 7.5 … 4000 milliseconds.",
      valueName: "interval"), transform: ConnectionParameters.init(argument:))
  var interval: ConnectionParameters?
  @Option(help: ArgumentHelp("The PHY to request: 1M, 2M or coded.", valueName: "phy"))
  var phy: WantedPHY?
  @Flag(help: "Measure a credit-based channel, too; the peripheral always offers one.")
  var channel = false
  @Flag(help: "Print one JSON object; as peripheral, one per event.")
  var json = false

  /// Both ends are in this process.
  private var hasBothEnds: Bool { hci.count == 2 || hci == [.sim] }

  mutating func validate() throws {
    if hci.isEmpty {
      do throws(TransportError) { hci = [try AdapterChoice().spec] } catch { throw ValidationError(error.description) }
    }
    if hci.count > 2 { throw ValidationError("--hci is given \(hci.count) times, and a link has two ends.") }
    if hci.count == 2, hci.contains(.sim) { throw ValidationError("sim has both ends: leave out the other --hci.") }
    if hasBothEnds, role != nil || peer != nil || name != nil {
      throw ValidationError("Both ends are in this process: leave out --role, --peer and --name.")
    }
    if role == .peripheral {
      let others = [
        ("--peer", peer != nil), ("--timeout", timeout != nil), ("--seconds", seconds != nil),
        ("--count", count != nil),
        ("--size", size != nil), ("--interval", interval != nil), ("--phy", phy != nil),
        ("--channel", channel),
      ]
      if let (option, _) = others.first(where: \.1) {
        throw ValidationError("\(option) is an option of the central: give it there.")
      }
      if let name, name.isEmpty { throw ValidationError("--name is empty: leave it out, or give one.") }
      if let name { try checkLength(ofName: name) }
    } else if name != nil {
      throw ValidationError("--name is what a peripheral advertises: add --role peripheral, or use --peer.")
    }
    if let size, !BenchService.sizes.contains(size) { throw ValidationError("--size is 4 … 512 octets.") }
    if let count, !(1...Int(UInt32.max)).contains(count) { throw ValidationError("--count is 1 … 4294967295.") }
  }

  func run() async throws {
    if hasBothEnds { return try await measureBothEnds() }
    if role == .peripheral { return try await serve() }
    let (plan, report) = plan
    try await BluetoothHost.using(options(0), configuration: BenchService.configuration) { host in
      let ends = [await BenchEnd("central", hci[0], host)]
      let peer = try await find(host)
      try await measure(peer, from: host, plan, report, ends)
    }
  }

  private func options(_ index: Int) throws -> HostOptions {
    var options = HostOptions(hci: hci[min(index, hci.count - 1)], takeDown: takeDown, common: common)
    if index > 0 { options.common.trace = try options.choice().trace.map { "\($0).\(index + 1)" } }
    return options
  }
  private var plan: (BenchCentral.Plan, BenchReport) {
    let plan = BenchCentral.Plan(
      limit: seconds ?? Seconds(5), count: count ?? Int(UInt32.max), size: size, usesChannel: channel)
    return (plan, BenchReport(json: json, plan: plan))
  }
  private func status(_ text: String?) {
    if !json { Console.status(text.map { $0 + " …" }) }
  }

  // MARK: The central

  private func find(_ host: BluetoothHost) async throws -> PeerAddress {
    let limit = timeout ?? Seconds(10)
    guard let peer else {
      status("looking for a device with the bench service")
      let wanted = WantedDevice.service(BenchService.uuid, called: "the bench service")
      return try await wanted.find(
        by: host, within: limit, remedy: "start `bindrune bench --role peripheral` there")
    }
    let wanted = WantedAddress(argument: peer).map { WantedDevice.address($0) } ?? .name(peer)
    status("looking for a \(wanted.text)")
    return try await wanted.find(by: host, within: limit)
  }

  private func measure(
    _ peer: PeerAddress, from host: BluetoothHost, _ plan: BenchCentral.Plan, _ report: BenchReport, _ ends: [BenchEnd]
  ) async throws {
    status("connecting to \(peer)")
    let central = try await host.reach(peer, interval ?? .fast, within: timeout ?? Seconds(10)) { link in
      if let phy { try await use(phy, on: link) }
      return try await BenchCentral(link, plan, report)
    }
    let link = try await BenchLink(central.link)
    status(nil)
    if !json { for line in ends.flatMap(\.lines) + link.lines + note { Console.line(line) } }
    let result: Result<Void, any Error>
    do {
      try await central.run()
      report.update { $0.isComplete = true }
      status("disconnecting")
      result = .success(try await central.link.disconnect())
    } catch {
      result = .failure(error)
    }
    if json {
      var line = JSONLine()
      for end in ends { line.add(end.role, end.json) }
      line.add("link", link.json)
      line.add("virtual", virtual != nil)
      report.add(to: &line)
      Console.line(line)
    }
    try result.get()
  }
  private func use(_ phy: WantedPHY, on link: Link) async throws {
    do throws(BluetoothError) {
      try await link.setPHYs(phy.preferences)
    } catch {
      guard error.code == .refused else { throw error }
      let reason = error.status.map { ", \($0)" } ?? ""
      throw Failure("\(link.peer) or a controller refuses --phy \(phy.rawValue)\(reason): leave it out.")
    }
  }
  private var note: [String] {
    virtual.map { ["\("\($0)".printable()) is a virtual radio: the figures are that radio's, and no adapter's"] } ?? []
  }
  private var virtual: TransportSpec? {
    hci.first { spec in
      switch spec {
      case .sim, .radio: true
      default: false
      }
    }
  }

  // MARK: The peripheral

  private func serve() async throws {
    let name = name ?? BenchServer.defaultName, server = BenchServer(name: name), json = json, spec = hci[0]
    try await BluetoothHost.using(
      options(0), configuration: BenchService.configuration, database: server.service.database
    ) { host in
      try await untilInterrupted(nil) {
        try await withThrowingTaskGroup(of: Void.self) { group in
          group.addTask {
            let end = await BenchEnd("peripheral", spec, host)
            try await server.run(on: host) {
              if json { return Console.line(end.event) }
              for line in end.lines { Console.line(line) }
              Console.line("serving \(name.printable()) as \(end.address)")
            } _: { event in
              if json { return Console.line(event.json) }
              for line in event.lines { Console.line(line) }
            }
          }
          group.addTask {
            while true {
              if !json { Console.status(server.live) }
              try await Task.sleep(for: .milliseconds(250))
            }
          }
          defer { group.cancelAll() }
          try await group.next()
        }
      }
    }
  }

  // MARK: Both

  private func measureBothEnds() async throws {
    let (plan, report) = plan, server = BenchServer(name: BenchServer.defaultName)
    let radio =
      hci == [.sim]
      ? SimulatedRadio(on: EventLoops.next(), seed: 1, configuration: .quiet(), controllers: .ofBench) : nil
    let configuration = BenchService.configuration
    try await BluetoothHost.using(
      options(1), configuration: configuration, database: server.service.database, radio: radio
    ) { peripheral in
      try await BluetoothHost.using(options(0), configuration: configuration, radio: radio) { central in
        let ends = [
          await BenchEnd("central", hci[0], central), await BenchEnd("peripheral", hci.last ?? .sim, peripheral),
        ]
        try await withThrowingTaskGroup(of: Void.self) { group in
          group.addTask { try await server.run(on: peripheral) }
          group.addTask { try await measure(peripheral.ownAddress, from: central, plan, report, ends) }
          defer { group.cancelAll() }
          try await group.next()
        }
        try Task.checkCancellation()
      }
    }
  }
}

extension ControllerConfiguration {
  /// With LE 2M and LE Coded, and with buffers for several connection events: those of the virtual radio are over at
  /// once, without time to fill a buffer again, and a busy machine is late for some.
  fileprivate static var ofBench: ControllerConfiguration {
    var controller = ControllerConfiguration()
    controller.features.formUnion([.le2MPHY, .leCodedPHY])
    controller.aclBufferCount = 40
    return controller
  }
}

// MARK: The command line

extension ConnectionParameters {
  fileprivate init(argument: String) throws {
    switch argument {
    case "fast": self = .fast
    case "balanced": self = .balanced
    default:
      guard let milliseconds = Double(argument), 7.5...4000 ~= milliseconds else {
        throw ValidationError("write fast, balanced or a number of milliseconds, 7.5 … 4000.")
      }
      // More than twice the interval (Vol 4, Part E, §7.8.12), with time for some events to fail.
      self.init(
        interval: ConnectionInterval(.milliseconds(milliseconds)),
        supervisionTimeout: SupervisionTimeout(.milliseconds(max(5000, 6 * milliseconds))))
    }
  }
}

/// `--phy`.
enum WantedPHY: String, ExpressibleByArgument, CaseIterable {
  case le1M = "1M"
  case le2M = "2M"
  case coded
  var preferences: PHYPreferences {
    let set: PHYSet =
      switch self {
      case .le1M: .le1M
      case .le2M: .le2M
      case .coded: .leCoded
      }
    return PHYPreferences(transmit: set, receive: set)
  }
}

// MARK: Conditions of the measurement

/// One end: its controller.
private struct BenchEnd: Sendable {
  let role: String
  let spec: TransportSpec
  let address: PeerAddress
  let controller: ControllerInfo
  init(_ role: String, _ spec: TransportSpec, _ host: BluetoothHost) async {
    self.role = role
    self.spec = spec
    address = await host.ownAddress
    controller = await host.controller ?? ControllerInfo()
  }
  private var edition: String { controller.version.hciVersion.edition.map { "\($0)" } ?? "unknown" }
  private var company: String { "0x" + hexDigits(UInt64(controller.version.companyIdentifier.rawValue), 4) }
  private var revision: String { "0x" + hexDigits(UInt64(controller.version.hciSubversion), 4) }

  var lines: [String] {
    let shared = controller.buffersAreShared ? ", which BR/EDR uses too" : ""
    return [
      "\(role) on \("\(spec)".printable()): \(address), \(controller.aclCount) buffers of \(controller.aclLength) octets\(shared)",
      "  Bluetooth \(edition), company \(company), revision \(revision)",
    ]
  }
  var json: JSONLine {
    var line = JSONLine()
    add(to: &line)
    return line
  }
  var event: JSONLine {
    var line = JSONLine(event: "serving")
    add(to: &line)
    return line
  }
  private func add(to line: inout JSONLine) {
    line.add("hci", "\(spec)")
    line.add("address", address.address.text)
    line.add("address_type", address.isRandom ? "random" : "public")
    line.add("bluetooth", edition)
    line.add("company", Int(controller.version.companyIdentifier.rawValue))
    line.add("revision", Int(controller.version.hciSubversion))
    line.add("buffers", controller.aclCount)
    line.add("buffer_octets", controller.aclLength)
    line.add("buffers_shared", controller.buffersAreShared)
  }
}

/// The parameters of the link.
private struct BenchLink {
  let peer: PeerAddress
  let mtu: Int
  let parameters: ConnectionParameters?
  let length: LinkDataLength
  let phys: LinkPHYs
  init(_ link: Link) async throws {
    peer = link.peer.firstAddress
    mtu = await link.mtu
    parameters = await link.parameters
    length = await link.dataLength
    phys = try await link.readPHYs()
  }
  var lines: [String] {
    let interval = parameters.map { ", interval \(text(of: $0.interval.duration)), latency \($0.latency)" } ?? ""
    return ["link to \(peer): ATT_MTU \(mtu)\(interval)", "  packets of \(length); \(phys)"]
  }
  var json: JSONLine {
    var line = JSONLine()
    line.add("peer", peer.address.text)
    line.add("peer_type", peer.isRandom ? "random" : "public")
    line.add("mtu", mtu)
    line.add("interval_ms", parameters.map { $0.interval.duration / .milliseconds(1) })
    line.add("latency", parameters.map { Int($0.latency) })
    line.add("supervision_timeout_ms", parameters.map { $0.supervisionTimeout.duration / .milliseconds(1) })
    line.add("tx_octets", Int(length.transmitOctets))
    line.add("rx_octets", Int(length.receiveOctets))
    line.add("tx_phy", phys.transmit.text)
    line.add("rx_phy", phys.receive.text)
    return line
  }
}

// MARK: Output of the peripheral

extension BenchServer {
  /// The status line for the current central; nil: none is connected.
  fileprivate var live: String? {
    guard let client = current.first else { return nil }
    if client.hasChannel {
      return "SDUs accepted: \(client.sdusSent.count)\(client.sdusSent.rateText) · "
        + "arrived: \(client.sdusArrived.count)\(client.sdusArrived.rateText) …"
    }
    return "notifications accepted: \(client.sent.count)\(client.sent.rateText) · "
      + "write commands: \(client.arrived.count)\(client.arrived.rateText) …"
  }
}
extension BenchServer.Event {
  fileprivate var lines: [String] {
    switch self {
    case .connected(let peer): ["connected: \(peer)"]
    case .served(let client, let reason):
      [
        "write commands: \(client.arrived.count) arrived\(client.arrived.rateText)",
        "notifications: \(client.sent.count) accepted\(client.sent.rateText)",
      ]
        + (client.hasChannel
          ? [
            "SDUs: \(client.sdusArrived.count) arrived\(client.sdusArrived.rateText)",
            "SDUs: \(client.sdusSent.count) accepted\(client.sdusSent.rateText)",
          ] : []) + ["disconnected: \(client.link.peer)\(reason.map { ": \($0)" } ?? "")"]
    }
  }
  fileprivate var json: JSONLine {
    switch self {
    case .connected(let peer): return Self.line("connected", peer)
    case .served(let client, let reason):
      var line = Self.line("served", client.link.peer.firstAddress)
      func add(_ key: String, _ count: String, _ tally: Tally) {
        var counts = JSONLine()
        counts.add(count, tally.count)
        counts.add(tally)
        line.add(key, counts)
      }
      add("writes", "arrived", client.arrived)
      add("notifications", "accepted", client.sent)
      if client.hasChannel {
        add("sdus_out", "accepted", client.sdusSent)
        add("sdus_in", "arrived", client.sdusArrived)
      }
      line.add("reason", reason.map { "\($0)" })
      return line
    }
  }
  private static func line(_ event: String, _ peer: PeerAddress) -> JSONLine {
    var line = JSONLine(event: event)
    line.add("address", peer.address.text)
    line.add("address_type", peer.isRandom ? "random" : "public")
    return line
  }
}
