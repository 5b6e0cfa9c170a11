import BindruneWire
import BindruneGAP

/// The devices that a scan has found, as a table: advertisements in, lines out.
///
/// Near devices come first, in the order of discovery; devices silent for long come last. The strength is a mean, and
/// its bar changes only when the mean has left the bar's range by 4 dB, so that rows do not jump.
struct DeviceTable {
  /// The most devices; beyond that a new one replaces the one silent for longest.
  static var capacity: Int { 4096 }
  /// A device silent for longer is dimmed and moves to the end.
  static var patience: Duration { .seconds(10) }

  struct Row {
    let peer: PeerAddress
    fileprivate let place: Int
    var name: String?
    var services: [BluetoothUUID] = []
    /// Services of the scan that the overflow area may hold.
    var overflow: [BluetoothUUID] = []
    /// The company identifiers of the manufacturer data.
    var companies: [UInt16] = []
    /// dBm; nil: not known.
    var strength: Double?
    /// Cells of the bar, 1 … 5; 0: the strength is not known.
    var level = 0
    var count = 0
    var lastHeard = Duration.zero
  }
  private var devices: [PeerAddress: Row] = [:]
  private var places = 0
  var count: Int { devices.count }

  /// `data`: everything the device advertises. `now`: since the scan began.
  mutating func heard(
    _ peer: PeerAddress, _ data: AdvertisingData, rssi: Int?, overflow: [BluetoothUUID] = [], at now: Duration
  ) {
    var row = devices[peer] ?? newRow(peer)
    row.name = data.localName ?? row.name
    row.services = data.serviceUUIDs
    row.overflow = overflow
    row.companies = data.companyIdentifiers
    if let rssi { row.take(rssi) }
    row.count += 1
    row.lastHeard = now
    devices[peer] = row
  }
  private mutating func newRow(_ peer: PeerAddress) -> Row {
    if devices.count == Self.capacity,
      let oldest = devices.values.min(by: { ($0.lastHeard, $0.place) < ($1.lastHeard, $1.place) })
    {
      devices[oldest.peer] = nil
    }
    places += 1
    return Row(peer: peer, place: places)
  }

  func rows(at now: Duration) -> [Row] {
    devices.values.map { (order: ($0.isSilent(at: now) ? 1 : 0, -$0.level, $0.place), row: $0) }
      .sorted { $0.order < $1.order }.map(\.row)
  }

  /// At most `size.rows` lines, none wider than `size.columns`.
  func picture(title: String, in size: Screen.Size, at now: Duration, hasColour: Bool) -> [String] {
    let head = "\(title) · \(Self.devices(count)) · \(Self.age(now))"
    let lines =
      [Cell(head, .bold).text(min(head.columns, size.columns), hasColour)]
      + table(in: Screen.Size(columns: size.columns, rows: size.rows - 1), at: now, hasColour: hasColour)
    return Array(lines.prefix(size.rows))
  }
  /// The same without the heading.
  func table(in size: Screen.Size, at now: Duration, hasColour: Bool) -> [String] {
    let rows = rows(at: now), columns = Column.chosen(for: size.columns), room = max(0, size.rows - 1)
    let shown = rows.count > room ? max(0, room - 1) : rows.count
    var lines = [columns.map { Cell($0.column.title, .dim).text($0.width, hasColour) }]
    for row in rows.prefix(shown) {
      lines.append(
        columns.map { column, width in
          var cell = column.cell(of: row, at: now)
          if row.isSilent(at: now) { cell.style = .dim }
          return cell.text(width, hasColour)
        })
    }
    if shown < rows.count { lines.append([Cell("… \(rows.count - shown) more", .dim).text(size.columns, hasColour)]) }
    return lines.map { cells in
      var line = cells.joined(separator: "  ")
      while line.last == " " { line.removeLast() }
      return line
    }
  }

  /// Services by name; marks those that are only in the overflow area.
  static func names(_ services: [BluetoothUUID], overflow: [BluetoothUUID]) -> [String] {
    services.map { $0.assignedName ?? $0.description } + overflow.map { "\($0) (overflow)" }
  }
  static func devices(_ count: Int) -> String { count == 1 ? "1 device" : "\(count) devices" }
  /// A duration in short form.
  static func age(_ duration: Duration) -> String {
    let seconds = max(0, duration.components.seconds)
    return switch seconds {
    case ..<120: "\(seconds) s"
    case ..<7200: "\(seconds / 60) min"
    default: "\(seconds / 3600) h"
    }
  }
}

extension DeviceTable.Row {
  fileprivate func isSilent(at now: Duration) -> Bool { now - lastHeard > DeviceTable.patience }

  /// Each cell of the bar stands for 14 dB, from -100 dBm up.
  fileprivate mutating func take(_ rssi: Int) {
    // A new value counts a quarter: steady, but not slow.
    let mean = strength.map { $0 + (Double(rssi) - $0) / 4 } ?? Double(rssi)
    strength = mean
    let floor = -100 + Double(level - 1) * 14
    if level > 0, mean >= floor - 4, mean < floor + 18 { return }
    level = min(5, max(1, Int(((mean + 100) / 14).rounded(.down)) + 1))
  }
}

/// Text in a column, and its style.
struct Cell {
  var content: String
  var style: Console.Style?
  init(_ content: String, _ style: Console.Style? = nil) {
    self.content = content
    self.style = style
  }
  /// The text, cut or padded to `width` columns.
  func text(_ width: Int, _ hasColour: Bool) -> String {
    let text = content.cut(to: width), rest = String(repeating: " ", count: max(0, width - text.columns))
    return (hasColour ? style?.on(text) ?? text : text) + rest
  }
}

private enum Column {
  case name, address, addressAndType, strength, bar, count, age, services

  var title: String {
    switch self {
    case .name: "NAME"
    case .address, .addressAndType: "ADDRESS"
    case .strength, .bar: "dBm"
    case .count: "  SEEN"
    case .age: "   AGE"
    case .services: "SERVICES"
    }
  }
  /// nil: uses what the other columns leave.
  var width: Int? {
    switch self {
    case .name, .services: nil
    case .address: 17
    case .addressAndType: 24
    case .strength: 4
    case .bar: 10
    case .count, .age: 6
    }
  }

  /// As many columns as leave room for names and services; omits the less important ones first.
  static func chosen(for width: Int) -> [(column: Column, width: Int)] {
    let choices: [[Column]] = [
      [.name, .addressAndType, .bar, .count, .age, .services], [.name, .address, .bar, .count, .age, .services],
      [.name, .address, .bar, .age, .services], [.name, .address, .bar, .services], [.name, .bar, .services],
      [.name, .strength, .services], [.name, .strength],
    ]
    func roomForText(_ columns: [Column]) -> Int {
      width - columns.reduce(0) { $0 + ($1.width ?? 0) } - 2 * (columns.count - 1)
    }
    let columns = choices.first { roomForText($0) >= ($0.contains(.services) ? 32 : 8) } ?? [.name],
      room = roomForText(columns)
    let name = columns.contains(.services) ? min(30, room / 2) : room
    return columns.map { ($0, $0.width ?? ($0 == .name ? name : room - name)) }
  }

  func cell(of row: DeviceTable.Row, at now: Duration) -> Cell {
    let strength = row.strength.map { "\(Int($0.rounded()))" } ?? "?"
    switch self {
    case .name:
      let name = (row.name ?? "").printable()
      return name.isEmpty ? Cell("(no name)", .dim) : Cell(name, .bold)
    case .address: return Cell(row.peer.address.text, .cyan)
    case .addressAndType: return Cell(row.peer.description, .cyan)
    case .strength: return Cell(strength.leftPadded(4))
    case .bar:
      let style: Console.Style? = row.level > 3 ? .green : row.level < 2 ? .yellow : nil
      return Cell(strength.leftPadded(4) + " " + "▁▃▅▆█".prefix(row.level), style)
    case .count: return Cell("\(row.count)×".leftPadded(6))
    case .age: return Cell(DeviceTable.age(now - row.lastHeard).leftPadded(6))
    case .services:
      let named = DeviceTable.names(row.services, overflow: row.overflow)
      if named.isEmpty, !row.companies.isEmpty {
        let companies = row.companies.map { hexDigits(UInt64($0), 4) }.joined(separator: ", ")
        return Cell("company " + companies, .dim)
      }
      return Cell(named.joined(separator: ", "), row.overflow.isEmpty ? nil : .magenta)
    }
  }
}

extension AdvertisingData {
  /// The company identifiers of all manufacturer data, each once.
  var companyIdentifiers: [UInt16] {
    var companies: [UInt16] = []
    for data in manufacturerDataList where data.count >= 2 {
      let company = UInt16(data[0]) | UInt16(data[1]) << 8
      if !companies.contains(company) { companies.append(company) }
    }
    return companies
  }
}
