import ArgumentParser
import BindruneAdapters
import BindruneTransport
import BindruneWire

struct Adapters: ParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "List this machine's Bluetooth adapters.",
    discussion: "A ? stands for what this process may not see. bindrune doctor checks whether one can be opened.")

  @Flag(help: "Print one JSON object per adapter.")
  var json = false

  func run() {
    let survey = AdapterSurvey()
    if json { return survey.adapters.forEach { Console.line($0.json) } }
    guard !survey.adapters.isEmpty else { return Console.line(survey.emptiness.description.printable()) }
    let columns: [(BluetoothAdapter) -> String] = [
      \.name, { $0.address?.text ?? "?" }, { $0.bus ?? "?" }, \.state, { $0.driver ?? "" }, { $0.product ?? "" },
    ]
    let rows = survey.adapters.map { adapter in columns.map { $0(adapter).printable() } }
    let widths = columns.indices.map { column in rows.map { $0[column].columns }.max() ?? 0 }
    for row in rows {
      var cells = zip(row, widths).map { $0.padded($1) }
      cells[0] = Console.styled(cells[0], .cyan)
      var line = cells.joined(separator: "  ")
      while line.last == " " { line.removeLast() }
      Console.line(line)
    }
  }
}

/// hciN on the command line.
struct AdapterName: ExpressibleByArgument {
  let number: UInt16
  init?(argument: String) {
    guard case .adapter(let number)? = try? TransportSpec(argument) else { return nil }
    self.number = number
  }
  /// Completions for a shell: this machine's adapters, and `sim`, which every machine has.
  static var specs: [String] { AdapterSurvey().adapters.map(\.name) + ["sim"] }
}

extension AdapterSurvey {
  /// Why there is no adapter to show.
  fileprivate var emptiness: AdapterError {
    processChecks.first { $0.subject == .socket }?.error ?? presenceCheck.error ?? .notFound(0, present: [], hint: nil)
  }
}

extension BluetoothAdapter {
  /// The state in one or two words.
  fileprivate var state: String {
    if radioSwitch?.isBlocked == true { return "off (rfkill)" }
    if hasUserChannel == true { return "taken" }
    if isStarting == true { return "in set-up" }
    return isUp.map { $0 ? "up" : "down" } ?? "?"
  }
  var json: JSONLine {
    var line = JSONLine()
    line.add("name", name)
    line.add("address", address?.text)
    line.add("bus", bus)
    line.add("driver", driver)
    line.add("product", product)
    line.add("up", isUp)
    line.add("starting", isStarting)
    line.add("taken", hasUserChannel)
    line.add("rfkill", radioSwitch.map { $0.isHardBlocked ? "hard" : $0.isSoftBlocked ? "soft" : "off" })
    return line
  }
}
