import ArgumentParser
import BindruneWire
import BindruneGAP

struct Overflow: ParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Show which bits of an iPhone's overflow area stand for services.",
    discussion: """
      iOS advertises each service that does not fit an advertisement, and each service of an app in the background, as \
      one bit of a 128-bit mask. A scanner that looks for a service checks its bit; services that share a bit cannot \
      be distinguished. --decode takes a received mask and shows which services it may contain.
      """)

  @Argument(
    help: ArgumentHelp("Services, 180D or a 128-bit UUID each.", valueName: "uuid"),
    transform: BluetoothUUID.init(argument:))
  var services: [BluetoothUUID] = []
  @Option(
    help: ArgumentHelp(
      "Check which services this may contain: a mask of 16 octets, 4C0001 and a mask, or 14FF4C0001 and a mask.",
      valueName: "hex"))
  var decode: String?
  @Flag(help: "Print one JSON object.")
  var json = false

  func validate() throws {
    if services.isEmpty, decode == nil {
      throw ValidationError("No service is given: write for example bindrune overflow 180D.")
    }
  }

  func run() throws {
    var known: Set<BluetoothUUID> = []
    let services = services.filter { known.insert($0).inserted }
    let area = try decode.map(OverflowArea.init(argument:)) ?? OverflowArea(services)
    if json { return Console.line(json(area, services)) }
    for line in area.drawing(services) { Console.line(line) }
    Console.line()
    show(area, services)
  }

  private func json(_ area: OverflowArea, _ services: [BluetoothUUID]) -> JSONLine {
    var line = JSONLine(), bits = JSONLine(), seen: Set<BluetoothUUID> = []
    line.add("mask", hexText(area.mask).lowercased())
    for service in services where seen.insert(service).inserted {
      bits.add(service.description, OverflowArea.bit(of: service))
    }
    line.add("bits", bits)
    if decode != nil { line.add("matches", services.filter(area.contains).map(\.description)) }
    return line
  }

  private func show(_ area: OverflowArea, _ services: [BluetoothUUID]) {
    let width = services.map(\.description.count).max() ?? 0
    for service in services {
      let bit = OverflowArea.bit(of: service)
      var line = "\(service)".padded(width) + "  bit " + "\(bit)".leftPadded(3)
      line += "  octet " + "\(bit >> 3)".leftPadded(2) + ", " + hexDigits(1 << UInt64(bit & 7), 2)
      if decode != nil {
        line += area.contains(service) ? Console.styled("  may be there", .green) : Console.styled("  not there", .dim)
      }
      let others = services.filter { $0 != service && OverflowArea.bit(of: $0) == bit }.map(\.description)
      if !others.isEmpty { line += "  shared with " + others.joined(separator: ", ") }
      if let name = service.assignedName { line += "  " + Console.styled(name, .dim) }
      Console.line(line)
    }
    Console.line("\(Console.styled("mask", .bold)) \(hexText(area.mask))")
    guard decode != nil else { return }
    let count = area.mask.reduce(0) { $0 + $1.nonzeroBitCount }, found = services.count(where: area.contains)
    Console.line("\(count) of 128 bits are set" + (services.isEmpty ? "" : "; \(found) of \(services.count) match"))
  }
}

extension OverflowArea {
  /// A mask as the user types or copies it.
  fileprivate init(argument: String) throws {
    guard let octets = HexOctets(argument: argument)?.octets else {
      throw Failure(
        "\"\(argument.printable(limit: 60))\" is not hexadecimal: give --decode two digits for each octet of the mask."
      )
    }
    let data = AdvertisingData(decoding: octets.span)
    if let area = OverflowArea(mask: octets) ?? OverflowArea(manufacturerData: octets)
      ?? data.overflowArea
    {
      self = area
      return
    }
    throw Failure(
      """
      \(octets.count == 1 ? "1 octet is" : "\(octets.count) octets are") not an overflow area: give --decode the 32 \
      digits of its mask, alone or after 4C0001 or 14FF4C0001.
      """)
  }

  /// Draws the mask: a column for each octet, the most significant bit on top. ● is a set bit; ○ is a clear bit of one
  /// of `services`.
  fileprivate func drawing(_ services: [BluetoothUUID]) -> [String] {
    func row(_ title: String, _ cell: (Int) -> String) -> String {
      title.padded(5) + (0..<16).map { cell($0).leftPadded(3) }.joined()
    }
    let asked = Set(services.map(OverflowArea.bit(of:))), mask = mask
    var lines = [row("octet") { "\($0)" }, row("mask") { hexDigits(UInt64(mask[$0]), 2) }]
    for bit in (0..<8).reversed() {
      lines.append(
        row("bit \(bit)") { octet in
          mask[octet] >> UInt8(bit) & 1 == 1 ? "●" : asked.contains(octet << 3 | bit) ? "○" : "·"
        })
    }
    return lines
  }
}
