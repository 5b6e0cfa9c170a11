import BindruneTrace
import BindruneWire
import BindruneGATT
import BindruneHCI

/// What ``AirMonitor`` knows, as a page that fits a window: a table for each kind of thing, lines out.
///
/// Rows are shared out evenly: a table that needs few leaves the rest to the others, and one with too few says how many
/// it leaves out.
struct AirPage {
  let monitor: AirMonitor
  let title: String
  /// What went wrong last.
  var troubles: [String] = []
  var hasColour = false

  /// A device silent for longer is dimmed and moves to the end, in nanoseconds.
  private static var patience: Int64 { 10_000_000_000 }
  /// Rows of a page that is printed, not drawn, so that a crowd does not push the rest out of sight.
  static var printedRows: Int { 100 }

  /// At most `size.rows` lines, none wider than `size.columns`.
  func lines(in size: Screen.Size) -> [String] {
    let tables = [layers, links, streams, values, devices].filter { !$0.rows.isEmpty }
    var lines = ([heading] + adapterLines).map { $0.cut(to: size.columns) }
    if hasColour { lines[0] = Console.Style.bold.on(lines[0]) }
    for trouble in troubles {
      let line = "! link \(trouble)".cut(to: size.columns)
      lines.append(hasColour ? Console.Style.red.on(line) : line)
    }
    let shares = Self.shares(of: size.rows - lines.count, among: tables.map(\.rows.count))
    for (table, share) in zip(tables, shares) where share > 0 {
      lines += table.lines(share, in: size.columns, hasColour)
    }
    return Array(lines.prefix(size.rows))
  }

  /// How many rows each table gets, of those that are left when each that gets any has its titles.
  private static func shares(of room: Int, among needs: [Int]) -> [Int] {
    var shares = needs.map { _ in 0 }, left = room, isChanging = true
    while isChanging {
      isChanging = false
      for index in needs.indices where shares[index] < needs[index] {
        let cost = shares[index] == 0 ? 2 : 1
        guard left >= cost else { continue }
        left -= cost
        shares[index] += 1
        isChanging = true
      }
    }
    return shares
  }

  private var heading: String {
    let open = monitor.links.filter { $0.ended == nil }.count, ended = monitor.links.count - open
    var words = [title.printable(), Self.seconds(monitor.now, digits: 1) + " s"]
    words.append(AirText.count(monitor.records, "record"))
    words.append(AirText.count(monitor.devices.count, "device"))
    words.append(AirText.count(open, "link") + (ended > 0 ? ", \(ended) ended" : ""))
    return words.joined(separator: " · ")
  }
  /// Credits and buffers of each controller.
  private var adapterLines: [String] {
    monitor.adapters.prefix(4).compactMap { adapter in
      var words: [String] = []
      if let credits = adapter.commandCredits { words.append("room for \(AirText.count(credits, "command"))") }
      if let buffers = adapter.buffers, buffers > 0 {
        let used = adapter.used
        let bar = used.map { used in
          let cells = min(buffers, 16), full = min(cells, (used * cells + buffers - 1) / buffers)
          return String(repeating: "█", count: full) + String(repeating: "░", count: cells - full) + " "
        }
        words.append("\(bar ?? "")\(used.map { "\($0)" } ?? "?") of \(buffers) ACL buffers used")
      }
      if words.isEmpty { return nil }
      return (monitor.adapters.count > 1 ? "hci\(adapter.number): " : "") + words.joined(separator: " · ")
    }
  }

  // MARK: Tables

  private static var span: Int { SecondSeries.length }

  private var layers: AirTable {
    let last = max(0, monitor.second - 1)
    var table = AirTable([
      .init("LAYER", .fixed(21)), .init("TOTAL", .fixed(9), isRight: true),
      .init("/s", .fixed(6), isRight: true), .init("LAST 60 s", .curve, rank: 1),
    ])
    for layer in AirLayer.allCases where monitor.total(layer) > 0 {
      let series = monitor.rate(layer)
      table.rows.append([
        .init(AirText.name(layer)), .init("\(monitor.total(layer))"), .init("\(series.count(at: last))", .bold),
        .init(curve: seconds { series.count(at: $0) }, from: 0),
      ])
    }
    return table
  }
  /// Access addresses are longer than connection handles.
  private var handleWidth: Int { monitor.links.contains { $0.connection > 0xFFFF } ? 10 : 6 }
  private var links: AirTable {
    var table = AirTable([
      .init("LINK", .fixed(handleWidth)), .init("PEER", .text(8, 24)), .init("ROLE", .fixed(10), rank: 5),
      .init("INTERVAL", .fixed(8), isRight: true, rank: 1), .init("LAT", .fixed(3), isRight: true, rank: 3),
      .init("MTU", .fixed(4), isRight: true, rank: 2), .init("PHY", .fixed(5), rank: 4),
      .init("WAIT", .fixed(4), isRight: true, rank: 6), .init("PACKETS", .fixed(8), isRight: true, rank: 7),
      .init("STATE", .text(9, 40)),
    ])
    let ordered =
      monitor.links.reversed().filter { $0.ended == nil } + monitor.links.reversed().filter { $0.ended != nil }
    for link in ordered {
      let style: Console.Style? = link.ended == nil ? nil : .dim
      table.rows.append([
        .init(AirText.handle(link.connection), style ?? .cyan), .init(AirText.peer(of: link, monitor), style ?? .bold),
        .init(link.role?.text ?? "?", style), .init(link.interval.map { AirText.interval($0) } ?? "?", style),
        .init(link.latency.map { "\($0)" } ?? "?", style), .init(link.mtu.map { "\($0)" } ?? "?", style),
        .init(AirText.phys(link), style),
        .init(link.ended == nil ? link.inController.map { "\($0)" } ?? "?" : "", style),
        .init("\(link.sent + link.received)", style), .init(AirText.state(link), style),
      ])
    }
    return table
  }
  /// SDUs, their octets, and the K-frames that may still be sent, of each direction.
  private var streams: AirTable {
    var table = AirTable([
      .init("LINK", .fixed(handleWidth), rank: 1), .init("PSM", .fixed(6)), .init("CHANNEL", .fixed(7), rank: 4),
      .init("SENT", .fixed(7), isRight: true), .init("OCTETS", .fixed(9), isRight: true, rank: 2),
      .init("CREDITS", .fixed(7), isRight: true), .init("RECEIVED", .fixed(8), isRight: true),
      .init("OCTETS", .fixed(9), isRight: true, rank: 3), .init("CREDITS", .fixed(7), isRight: true),
    ])
    let channels = monitor.links.filter { $0.ended == nil }.flatMap { link in link.channels.map { (link, $0) } }
    for (link, statistics) in channels {
      let style: Console.Style? = statistics.isClosed ? .dim : nil
      table.rows.append(
        [
          .init(AirText.handle(link.connection), style ?? .cyan),
          .init(AirText.handle(UInt32(statistics.spsm)), style ?? .bold),
          .init(AirText.handle(UInt32(statistics.host)), style),
        ]
          + [statistics.sent, statistics.received].flatMap { stream in
            [
              AirTable.Item("\(stream.sdus)", style), .init("\(stream.octets)", style),
              .init(statistics.isClosed ? "closed" : "\(stream.credits)", style),
            ]
          })
    }
    table.newest = channels.map(\.1.openedTime)
    return table
  }
  private var values: AirTable {
    var table = AirTable([
      .init("LINK", .fixed(handleWidth), rank: 3), .init("ATTRIBUTE", .text(10, 30)), .init("VALUE", .text(10, 60)),
      .init("HOW", .fixed(9), rank: 4), .init("COUNT", .fixed(6), isRight: true, rank: 1),
      .init("AGE", .fixed(6), isRight: true, rank: 2),
    ])
    let all = monitor.values
    for value in all {
      let style: Console.Style? = monitor.now - value.time < 1_000_000_000 ? .green : nil
      table.rows.append([
        .init(AirText.handle(value.connection), .cyan), .init(AirText.attribute(value)),
        .init(AirText.text(value), style), .init(value.cause.rawValue), .init("\(value.count)×"),
        .init(age(value.time)),
      ])
    }
    // The newest are the ones to see; within them the order stays, so that rows do not jump.
    table.newest = all.map(\.time)
    return table
  }
  private var devices: AirTable {
    var table = AirTable([
      .init("DEVICE", .text(8, 24)), .init("ADDRESS", .fixed(17), rank: 2), .init("dBm", .fixed(4), isRight: true),
      .init("LAST 60 s", .curve, rank: 1), .init("SEEN", .fixed(6), isRight: true, rank: 3),
      .init("AGE", .fixed(6), isRight: true, rank: 4),
    ])
    func isSilent(_ device: AirDevice) -> Bool { monitor.now - device.lastHeard > Self.patience }
    let all = monitor.devices
    for device in all.filter({ !isSilent($0) }) + all.filter({ isSilent($0) }) {
      let style: Console.Style? = isSilent(device) ? .dim : nil, name = (device.name ?? "").printable(limit: 60)
      table.rows.append([
        name.isEmpty ? .init("(no name)", .dim) : .init(name, style ?? .bold),
        .init(device.type == .anonymous ? "anonymous" : device.address.text, style ?? .cyan),
        .init(device.rssi.map { "\($0)" } ?? "?", style),
        // Eight steps of 10 dB from -100 dBm up.
        .init(curve: seconds { device.strengths.mean(at: $0) }, from: -100, to: -20, style),
        .init("\(device.reports)×", style), .init(age(device.lastHeard), style),
      ])
    }
    return table
  }

  /// One value for each of the last seconds, the newest last.
  private func seconds(_ value: (Int) -> Int?) -> [Int?] {
    (0..<Self.span).map { value(monitor.second - Self.span + 1 + $0) }
  }
  private func age(_ time: Int64) -> String { DeviceTable.age(.nanoseconds(monitor.now - time)) }

  static func seconds(_ nanoseconds: Int64, digits: Int) -> String {
    decimal(Double(nanoseconds) / 1_000_000_000, digits)
  }
}

/// Rows of cells under titles. Columns that do not fit are left out, those with the highest rank first.
struct AirTable {
  struct Column {
    enum Width {
      case fixed(Int)
      /// At least and at most.
      case text(Int, Int)
      /// A curve, as wide as there is room.
      case curve
    }
    let title: String, width: Width, isRight: Bool, rank: Int
    init(_ title: String, _ width: Width, isRight: Bool = false, rank: Int = 0) {
      (self.title, self.width, self.isRight, self.rank) = (title, width, isRight, rank)
    }
    var least: Int {
      switch width {
      case .fixed(let width): width
      case .text(let least, _): least
      case .curve: 10
      }
    }
    var most: Int {
      switch width {
      case .fixed(let width): width
      case .text(_, let most): most
      case .curve: SecondSeries.length
      }
    }
  }
  enum Item {
    case text(String, Console.Style?)
    /// `range`: what the lowest and the highest step stand for; the values' own maximum if it has no end.
    case curve([Int?], from: Int, to: Int?, Console.Style?)
    init(_ text: String, _ style: Console.Style? = nil) { self = .text(text, style) }
    init(curve: [Int?], from: Int, to: Int? = nil, _ style: Console.Style? = nil) {
      self = .curve(curve, from: from, to: to, style)
    }
  }
  let columns: [Column]
  var rows: [[Item]] = []
  /// If rows are left out, those with the lowest of these numbers.
  var newest: [Int64] = []
  init(_ columns: [Column]) { self.columns = columns }

  /// The titles, and at most `share` rows.
  func lines(_ share: Int, in width: Int, _ hasColour: Bool) -> [String] {
    let layout = layout(width), shown = rows.count > share ? share - 1 : rows.count
    var places = Array(rows.indices)
    if shown < rows.count, newest.count == rows.count {
      places = places.sorted { (newest[$0], $1) > (newest[$1], $0) }.prefix(shown).sorted()
    }
    var lines = [line(layout.map { (Item(columns[$0.column].title, .dim), $0) }, hasColour)]
    for place in places.prefix(shown) {
      lines.append(line(layout.map { (rows[place][$0.column], $0) }, hasColour))
    }
    if shown < rows.count {
      lines.append(Cell("… \(rows.count - shown) more".cut(to: width), .dim).text(width, hasColour))
    }
    return lines.map { line in
      var line = line
      while line.last == " " { line.removeLast() }
      return line
    }
  }

  private func layout(_ width: Int) -> [(column: Int, width: Int)] {
    var chosen = Array(columns.indices)
    func least() -> Int { chosen.reduce(0) { $0 + columns[$1].least } + 2 * max(0, chosen.count - 1) }
    while least() > width, let last = chosen.indices.max(by: { columns[chosen[$0]].rank < columns[chosen[$1]].rank }),
      columns[chosen[last]].rank > 0
    {
      chosen.remove(at: last)
    }
    // A window narrower than the columns that cannot be left out.
    while least() > width, chosen.count > 1 { chosen.removeLast() }
    var left = width - least(), widths = chosen.map { min(columns[$0].least, width) }
    while left > 0,
      let place = chosen.indices.filter({ widths[$0] < columns[chosen[$0]].most })
        .min(by: { widths[$0] < widths[$1] })
    {
      widths[place] += 1
      left -= 1
    }
    return zip(chosen, widths).map { (column: $0, width: $1) }
  }

  private func line(_ items: [(Item, (column: Int, width: Int))], _ hasColour: Bool) -> String {
    items.map { item, place in
      switch item {
      case .text(let text, let style):
        let cut = text.cut(to: place.width)
        let blank = columns[place.column].isRight ? String(repeating: " ", count: place.width - cut.columns) : ""
        return blank + Cell(cut, style).text(place.width - blank.count, hasColour)
      case .curve(let values, let low, let high, let style):
        return Cell(Self.curve(Array(values.suffix(place.width)), low, high), style).text(place.width, hasColour)
      }
    }.joined(separator: "  ")
  }
  /// A character for each value; a blank for none, and for zero of a count.
  static func curve(_ values: [Int?], _ low: Int, _ high: Int?) -> String {
    let steps = Array("▁▂▃▄▅▆▇█"), top = high ?? values.compactMap { $0 }.max() ?? 0
    return String(
      values.map { value in
        guard let value, high != nil || value > 0, top > low else { return " " }
        return steps[min(7, max(0, (value - low) * 8 / (top - low)))]
      })
  }
}
