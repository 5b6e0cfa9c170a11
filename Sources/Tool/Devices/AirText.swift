import BindruneTrace
import BindruneWire
import BindruneGATT
import BindruneHCI

/// What ``AirMonitor`` tells, in words and as JSON. Names and values are a peer's: all are printable here.
enum AirText {
  static func count(_ number: Int, _ noun: String) -> String { "\(number) \(noun)\(number == 1 ? "" : "s")" }
  /// `0x0040`, and an access address with eight digits.
  static func handle(_ number: UInt32) -> String { "0x" + hexDigits(UInt64(number), number > 0xFFFF ? 8 : 4) }
  static func name(_ layer: AirLayer) -> String {
    switch layer {
    case .command: "HCI commands"
    case .event: "HCI events"
    case .dataSent: "ACL packets sent"
    case .dataReceived: "ACL packets received"
    case .advertising: "advertising reports"
    case .l2cap: "L2CAP frames"
    case .signaling: "L2CAP signaling"
    case .att: "ATT PDUs"
    case .smp: "SMP PDUs"
    case .linkLayer: "link-layer packets"
    }
  }
  static func interval(_ interval: ConnectionInterval) -> String {
    let micro = Int(interval.rawValue) * 1_250, digits = micro % 1_000 == 0 ? 0 : micro % 100 == 0 ? 1 : 2
    return decimal(Double(micro) / 1_000, digits) + " ms"
  }
  private static func phy(_ phy: PHY?) -> String {
    guard let phy else { return "?" }
    return phy.text.hasPrefix("LE ") ? String(phy.text.dropFirst(3)) : phy.text
  }
  static func phys(_ link: AirLink) -> String {
    link.txPHY == link.rxPHY ? phy(link.txPHY) : phy(link.txPHY) + "/" + phy(link.rxPHY)
  }
  static func peer(of link: AirLink, _ monitor: AirMonitor) -> String {
    let name = (monitor.name(of: link) ?? "").printable(limit: 60)
    return name.isEmpty ? link.peer?.text ?? "?" : name
  }
  static func state(_ link: AirLink) -> String {
    if link.ended != nil { return "ended" + (link.reason.map { ": " + reason($0) } ?? "") }
    return switch link.isEncrypted {
    case true: "encrypted"
    case false: "plain"
    default: "?"
    }
  }
  private static func reason(_ status: HCIStatus) -> String { status.name.map { "\($0)" } ?? status.text }
  static func attribute(_ value: AirValue) -> String {
    let name = value.uuid.map { $0.assignedName ?? "\($0)" }
    return (name.map { $0 + " " } ?? "") + handle(UInt32(value.handle)) + (value.side == .host ? " (ours)" : "")
  }
  static func text(_ value: AirValue) -> String {
    let isWhole = value.octets.count == value.length
    if isWhole, let text = value.uuid?.text(of: value.octets.span) { return text.printable(limit: 100) }
    let text = isWhole ? readable(value.octets) : hexText(value.octets, separator: " ") + " …"
    return value.length == 0 ? "(empty)" : text
  }
  static func parameters(_ link: AirLink) -> String {
    guard let interval = link.interval, let latency = link.latency, let timeout = link.supervisionTimeout else {
      return "parameters not known"
    }
    return "interval \(self.interval(interval)), latency \(latency), timeout \(Int(timeout.rawValue) * 10) ms"
  }

  // MARK: Lines

  static func line(_ words: String, at time: Int64) -> String {
    AirPage.seconds(time, digits: 3).leftPadded(12) + "  " + words
  }
  static func line(_ change: AirChange, _ monitor: AirMonitor) -> String {
    let words: String
    switch change.kind {
    case .device(let device):
      let name = (device.name ?? "").printable(limit: 60)
      words =
        "device  \(device.address.text)  \(device.rssi.map { "\($0) dBm" } ?? "? dBm")  "
        + (name.isEmpty ? "(no name)" : name)
    case .opened(let link):
      let role = link.role.map { "\($0.text), " } ?? ""
      words = "link    \(handle(link.connection))  to \(peer(of: link, monitor)): \(role)\(parameters(link))"
    case .changed(let link, let field):
      let what =
        switch field {
        case .parameters: parameters(link)
        case .mtu: "MTU \(link.mtu ?? 0)"
        case .phy: "PHY sends \(phy(link.txPHY)), receives \(phy(link.rxPHY))"
        case .dataLength: "payloads of up to \(link.maxTXOctets ?? 0) octets sent, \(link.maxRXOctets ?? 0) received"
        case .encryption: link.isEncrypted == true ? "encrypted" : "not encrypted any more"
        }
      words = "link    \(handle(link.connection))  \(what)"
    case .ended(let link): words = "link    \(handle(link.connection))  \(state(link))"
    case .channel(let link, let channel): words = "link    \(handle(link.connection))  \(text(channel))"
    case .value(let value):
      words = "value   \(handle(value.connection))  \(attribute(value)) \(value.cause.rawValue): \(text(value))"
    }
    return line(words, at: change.time)
  }
  /// A channel that has opened or closed.
  private static func text(_ channel: ChannelStatistics) -> String {
    let sent = channel.sent, received = channel.received, name = "channel \(handle(UInt32(channel.host)))"
    if channel.isClosed {
      return "\(name) closed: \(count(sent.sdus, "SDU")) sent, \(count(sent.octets, "octet")); "
        + "\(count(received.sdus, "SDU")) received, \(count(received.octets, "octet"))"
    }
    return
      "\(name), PSM \(handle(UInt32(channel.spsm))), opened by the \(channel.asker.party): "
      + "SDUs of up to \(sent.mtu) octets sent, \(received.mtu) received"
  }
  /// What the current second had; nil: nothing.
  static func rates(_ monitor: AirMonitor) -> String? {
    let second = monitor.second
    let words = AirLayer.allCases.compactMap { layer in
      let count = monitor.rate(layer).count(at: second)
      return count > 0 ? "\(count) \(name(layer))" : nil
    }
    if words.isEmpty { return nil }
    return "\(second + 1).000".leftPadded(12) + "  second  " + words.joined(separator: ", ")
  }

  // MARK: JSON

  /// The current second: everything that was counted, heard or sent in it, and the links and controllers as they are.
  static func object(_ monitor: AirMonitor) -> JSONLine {
    let second = monitor.second
    var object = JSONLine(event: "second")
    object.add("second", second)
    object.add("time", monitor.start.map { Double($0) / 1_000_000_000 + Double(second) })
    object.add("records", monitor.records)
    var packets = JSONLine(), totals = JSONLine()
    for layer in AirLayer.allCases where monitor.total(layer) > 0 {
      packets.add(layer.rawValue, monitor.rate(layer).count(at: second))
      totals.add(layer.rawValue, monitor.total(layer))
    }
    object.add("packets", packets)
    object.add("totals", totals)
    object.add("controllers", monitor.adapters.map(Self.object))
    // The end of such a link is reported already.
    let begin = Int64(second) * 1_000_000_000
    let links = monitor.links.filter { $0.ended ?? .max >= begin }
    object.add("links", links.map { Self.object($0, monitor) })
    object.add("channels", links.flatMap { link in link.channels.map { Self.object($0, of: link) } })
    object.add("devices", monitor.devices.filter { $0.lastHeard >= begin }.map { Self.object($0, second) })
    object.add("values", monitor.values.filter { $0.time >= begin }.map(Self.object))
    return object
  }
  private static func object(_ adapter: AirAdapter) -> JSONLine {
    var object = JSONLine()
    object.add("adapter", Int(adapter.number))
    object.add("command_credits", adapter.commandCredits)
    object.add("acl_buffers", adapter.buffers)
    object.add("acl_buffers_used", adapter.used)
    return object
  }
  private static func object(_ link: AirLink, _ monitor: AirMonitor) -> JSONLine {
    var object = JSONLine()
    object.add("adapter", Int(link.adapter))
    object.add("conn", handle(link.connection).lowercased())
    object.add("peer", link.peer?.text)
    object.add("peer_name", monitor.name(of: link))
    object.add("role", link.role.map { $0 == .central ? "central" : "peripheral" })
    object.add("interval_ms", link.interval.map { Double($0.rawValue) * 1.25 })
    object.add("latency", link.latency.map { Int($0) })
    object.add("timeout_ms", link.supervisionTimeout.map { Int($0.rawValue) * 10 })
    object.add("mtu", link.mtu)
    object.add("tx_phy", link.txPHY.map { phy($0) })
    object.add("rx_phy", link.rxPHY.map { phy($0) })
    object.add("tx_octets", link.maxTXOctets)
    object.add("rx_octets", link.maxRXOctets)
    object.add("encrypted", link.isEncrypted)
    object.add("in_controller", link.inController)
    object.add("sent", link.sent)
    object.add("received", link.received)
    object.add("packets", link.packets.count(at: monitor.second))
    object.add("ended", link.ended != nil)
    object.add("reason", link.reason.map { reason($0) })
    return object
  }
  private static func object(_ statistics: ChannelStatistics, of link: AirLink) -> JSONLine {
    var object = JSONLine()
    object.add("adapter", Int(link.adapter))
    object.add("conn", handle(link.connection).lowercased())
    object.add("psm", Int(statistics.spsm))
    object.add("channel", Int(statistics.host))
    object.add("peer_channel", Int(statistics.peer))
    object.add("opened_by", statistics.asker.party)
    object.add("closed", statistics.isClosed)
    for (key, stream) in [("sent", statistics.sent), ("received", statistics.received)] {
      var counts = JSONLine()
      counts.add(stream)
      object.add(key, counts)
    }
    return object
  }
  private static func object(_ device: AirDevice, _ second: Int) -> JSONLine {
    var object = JSONLine()
    object.add("address", device.address.text)
    object.add("address_type", device.type.text)
    object.add("name", device.name)
    object.add("rssi", device.strengths.mean(at: second))
    object.add("reports", device.reports)
    return object
  }
  private static func object(_ value: AirValue) -> JSONLine {
    var object = JSONLine()
    object.add("adapter", Int(value.adapter))
    object.add("conn", handle(value.connection).lowercased())
    object.add("server", value.side == .host ? "host" : value.side == .peer ? "peer" : nil)
    object.add("handle", Int(value.handle))
    object.add("uuid", value.uuid?.description)
    object.add("name", value.uuid?.assignedName)
    object.add("how", value.cause.rawValue)
    object.add("value", hexText(value.octets))
    object.add("length", value.length)
    object.add("count", value.count)
    return object
  }
}
