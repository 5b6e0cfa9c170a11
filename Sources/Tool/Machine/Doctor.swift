import ArgumentParser
import Bindrune
import BindruneAdapters
import BindruneTransport
import BindruneWire

struct Doctor: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Show what keeps an adapter from being opened, and what to do about it.",
    discussion: """
      Checks the kernel, this process's rights and each adapter, and changes nothing. Status 0 if the named adapter \
      (by default any adapter) can be opened; 1 otherwise.
      """)

  @Argument(
    help: ArgumentHelp("The adapter, such as hci0; default: all adapters.", valueName: "adapter"),
    completion: .custom { _, _, _ in AdapterName.specs.dropLast() })
  var adapter: AdapterName?
  @Flag(help: "Also open and close it, if all checks pass: to bluetoothd the adapter goes and comes back.")
  var open = false
  @Flag(help: "Print one JSON object.")
  var json = false

  func run() async throws {
    let survey = try await settledSurvey()
    let isReady = survey.processChecks.allSatisfy { $0.error == nil }
    let reports = (adapter.map { [$0.number] } ?? survey.adapters.map(\.number)).map { number in
      var checks = survey.checks(of: number)
      if open {
        let isFree = isReady && checks.allSatisfy { $0.error == nil }
        checks.append(isFree ? .opening(number) : .notOpened)
      }
      return AdapterReport(
        adapter: survey.adapters.first { $0.number == number } ?? BluetoothAdapter(number: number), checks: checks,
        canBeOpened: isReady && checks.allSatisfy { $0.error == nil })
    }
    if json { Console.line(survey.json(reports)) } else { show(survey, reports) }
    if !reports.contains(where: \.canBeOpened) { throw ExitCode.failure }
  }

  /// Waits for an adapter in set-up as long as opening it would.
  private func settledSurvey() async throws -> AdapterSurvey {
    let deadline = ContinuousClock().now + .seconds(2)
    while true {
      let survey = AdapterSurvey()
      let wanted = survey.adapters.filter { adapter == nil || adapter?.number == $0.number }
      if wanted.allSatisfy({ $0.isStarting != true }) || ContinuousClock().now >= deadline { return survey }
      try await Task.sleep(for: .milliseconds(50))
    }
  }

  private func show(_ survey: AdapterSurvey, _ reports: [AdapterReport]) {
    Console.line(Console.styled("This machine", .bold))
    for check in survey.processChecks { show(check) }
    if adapter == nil { show(survey.presenceCheck) }
    for report in reports {
      Console.line()
      Console.line(report.adapter.headline)
      for check in report.checks { show(check) }
    }
    for warning in bondWarnings {
      Console.line("  \(Console.styled("!", .yellow)) \("bonds".padded(16))\(warning.printable())")
    }
    Console.line()
    if !survey.unseen.isEmpty {
      Console.line(Console.styled("Not seen from here: \(survey.unseen.joined(separator: "; ").printable()).", .dim))
    }
    let ready = reports.filter(\.canBeOpened).map(\.adapter.name)
    guard let first = ready.first else {
      let none = adapter.map { "hci\($0.number) cannot" } ?? "No adapter can"
      Console.line(Console.styled(none + " be opened yet", .red) + ": follow the arrows, from top to bottom.")
      if survey.adapters.isEmpty {
        Console.line(
          Console.withCommands(
            "Meanwhile `bindrune demo` needs no adapter, nor do `--hci sim` and `--hci tcp:HOST:PORT`."))
      }
      return
    }
    Console.line(
      Console.styled("\(ready.joined(separator: " and ")) can be opened", .green)
        + Console.withCommands(": `bindrune scan --hci \(first)`."))
  }

  /// What other users can read of the stored keys.
  private var bondWarnings: [String] { (try? BondFile.defaultPath()).map { BondFile(path: $0).warnings } ?? [] }

  private func show(_ check: AdapterCheck) {
    let (mark, style, advice): (String, Console.Style, String?) =
      switch check.verdict {
      case .passed: ("✓", .green, nil)
      case .failed(let error): ("✗", .red, error.cureOfTool)
      case .caution(let advice): ("!", .yellow, advice)
      case .unknown: ("?", .yellow, nil)
      }
    Console.line("  \(Console.styled(mark, style)) \(check.subject.label.padded(16))\(check.finding.printable())")
    if let advice { Console.line("".padded(20) + "→ " + Console.withCommands(advice.printable())) }
  }
}

/// An adapter, and the doctor's checks of it.
private struct AdapterReport {
  var adapter: BluetoothAdapter
  var checks: [AdapterCheck]
  var canBeOpened: Bool
}

extension AdapterCheck.Subject {
  fileprivate var label: String {
    switch self {
    case .socket: "Bluetooth"
    case .userNamespace: "user namespace"
    case .capability: "CAP_NET_ADMIN"
    case .adapter: "adapter"
    case .radioSwitch: "radio switch"
    case .owner: "user channel"
    case .setUp: "set-up"
    case .power: "power"
    case .daemon: "bluetoothd"
    case .opening: "opening"
    }
  }
}

extension AdapterSurvey {
  fileprivate func json(_ reports: [AdapterReport]) -> JSONLine {
    var line = JSONLine()
    line.add("ok", reports.contains(where: \.canBeOpened))
    line.add("kernel", kernel.release)
    line.add("modules", kernel.modules)
    line.add("program", process.program)
    line.add("bluetoothd", daemon.map { Int($0.pid) })
    line.add("checks", (processChecks + [presenceCheck]).map(\.json))
    line.add(
      "adapters",
      reports.map { report in
        var line = report.adapter.json
        line.add("ok", report.canBeOpened)
        line.add("checks", report.checks.map(\.json))
        return line
      })
    line.add(
      "holders",
      holders.map { holder in
        var line = JSONLine()
        line.add("pid", Int(holder.pid))
        line.add("name", holder.name)
        return line
      })
    line.add("unseen", unseen)
    return line
  }
}

extension BluetoothAdapter {
  fileprivate var headline: String {
    ([Console.styled(name, .bold), address.map { Console.styled($0.text, .cyan) }]
      + [bus, driver, product].map { $0?.printable() })
      .compactMap(\.self).joined(separator: "  ")
  }
}

extension AdapterCheck {
  fileprivate var json: JSONLine {
    var line = JSONLine()
    line.add("check", subject.rawValue)
    switch verdict {
    case .passed: line.add("verdict", "passed")
    case .failed(let error):
      line.add("verdict", "failed")
      line.add("cure", error.cureOfTool)
    case .caution(let advice):
      line.add("verdict", "caution")
      line.add("advice", advice)
    case .unknown: line.add("verdict", "unknown")
    }
    line.add("finding", finding)
    return line
  }
}
