import BindruneSystem
import SystemPackage

/// One condition for opening an adapter's user channel.
public struct AdapterCheck: Sendable, Equatable {
  /// In the order in which a user would fix them.
  #if hasAttribute(nonexhaustive)
    @nonexhaustive(warn)
  #endif
  public enum Subject: String, Sendable, CaseIterable {
    case socket, userNamespace, capability, adapter, radioSwitch, owner, setUp, power, daemon, opening
  }
  #if hasAttribute(nonexhaustive)
    @nonexhaustive(warn)
  #endif
  public enum Verdict: Sendable, Equatable {
    case passed
    case failed(AdapterError)
    /// It opens, with a remark that is useful to know.
    case caution(String)
    /// The condition could not be checked.
    case unknown
  }
  public var subject: Subject
  public var verdict: Verdict
  /// The observation, in a few words; an error's cause.
  public var finding: String

  fileprivate init(_ subject: Subject, _ verdict: Verdict, _ finding: String) {
    self.subject = subject
    self.verdict = verdict
    self.finding = finding
  }
  fileprivate init(_ subject: Subject, _ error: AdapterError) { self.init(subject, .failed(error), error.cause) }
  fileprivate static func unseen(_ subject: Subject) -> AdapterCheck {
    AdapterCheck(subject, .unknown, "cannot be seen from here")
  }
  public var error: AdapterError? {
    if case .failed(let error) = verdict { error } else { nil }
  }

  /// Opens and closes the user channel of adapter `number`: the only check that affects it. Meanwhile bluetoothd loses
  /// the adapter, and may power it afterwards.
  public static func opening(_ number: UInt16) -> AdapterCheck {
    do throws(Errno) {
      try HCISocketView.openUserChannel(number)
      return AdapterCheck(.opening, .passed, "opened, and closed again")
    } catch { return AdapterCheck(.opening, AdapterError(error, adapter: number)) }
  }
  /// Replaces ``opening(_:)`` when another check has failed.
  public static var notOpened: AdapterCheck { AdapterCheck(.opening, .unknown, "not tried") }
}

extension AdapterSurvey {
  /// Checks that concern every adapter: the kernel, and this process's rights.
  public var processChecks: [AdapterCheck] { [socketCheck, userNamespaceCheck, capabilityCheck] }

  /// Checks whether there is any adapter.
  public var presenceCheck: AdapterCheck {
    if !adapters.isEmpty { return AdapterCheck(.adapter, .passed, adapters.map(\.name).joined(separator: ", ")) }
    return kernel.socketError == nil ? AdapterCheck(.adapter, absence(of: 0)) : .unseen(.adapter)
  }

  /// Checks of adapter `number`, or one that reports its absence.
  public func checks(of number: UInt16) -> [AdapterCheck] {
    guard let adapter = adapters.first(where: { $0.number == number }) else {
      return [
        kernel.socketError != nil && adapters.isEmpty ? .unseen(.adapter) : AdapterCheck(.adapter, absence(of: number))
      ]
    }
    return [
      radioSwitchCheck(adapter), ownerCheck(adapter), setUpCheck(adapter), powerCheck(adapter), daemonCheck,
    ]
  }

  /// The first obstacle to opening adapter `number`, as far as it can be seen.
  public func obstacle(to number: UInt16) -> AdapterError? {
    (processChecks + checks(of: number)).lazy.compactMap(\.error).first
  }

  /// The first adapter that can be opened, as far as it can be seen. Throws what keeps the first adapter from it, or
  /// why there is none.
  public func firstUsable() throws(AdapterError) -> BluetoothAdapter {
    if let error = processChecks.lazy.compactMap(\.error).first { throw error }
    if let usable = adapters.first(where: { obstacle(to: $0.number) == nil }) { return usable }
    throw adapters.first.flatMap { obstacle(to: $0.number) } ?? absence(of: 0)
  }

  private var socketCheck: AdapterCheck {
    switch kernel.socketError {
    case nil:
      let modules = kernel.modules.isEmpty ? "built in" : kernel.modules.joined(separator: ", ")
      return AdapterCheck(.socket, .passed, "Linux \(kernel.release ?? "?"), \(modules)")
    case .addressFamilyNotSupported where !kernel.hasBluetooth: return AdapterCheck(.socket, lackOfBluetooth)
    case .addressFamilyNotSupported where process.isInHostNetwork == true && process.isFiltered:
      return AdapterCheck(.socket, .filtered)
    case .addressFamilyNotSupported: return AdapterCheck(.socket, .foreignNetwork)
    case .notPermitted where process.isFiltered, .permissionDenied where process.isFiltered:
      return AdapterCheck(.socket, .filtered)
    case let error?: return AdapterCheck(.socket, .system(nil, error))
    }
  }
  private var lackOfBluetooth: AdapterError {
    let release = kernel.release ?? "?"
    return kernel.isInstalled == false
      ? .noKernelSupport(release: release) : .notLoaded(release: release, isInstalled: kernel.isInstalled == true)
  }

  private var userNamespaceCheck: AdapterCheck {
    switch process.isInUserNamespace {
    case true?: AdapterCheck(.userNamespace, .userNamespace)
    case false?: AdapterCheck(.userNamespace, .passed, "the initial one")
    case nil: .unseen(.userNamespace)
    }
  }

  private var capabilityCheck: AdapterCheck {
    switch process.hasCapability {
    case true?:
      AdapterCheck(
        .capability, .passed, process.isInUserNamespace == true ? "effective, inside that namespace" : "effective")
    case false?:
      AdapterCheck(
        .capability, .noCapability(program: process.program, isWithheld: process.isCapabilityWithheld))
    case nil: .unseen(.capability)
    }
  }

  fileprivate func absence(of number: UInt16) -> AdapterError {
    var hint: AdapterError.Hint?
    if let off = radioSwitches.first(where: \.isBlocked) {
      hint = .switchedOff(off.name, isHard: off.isHardBlocked)
    } else if let product = driverless.first {
      hint = .withoutDriver(product)
    }
    return .notFound(number, present: adapters.map(\.number), hint: adapters.isEmpty ? hint : nil)
  }

  private func radioSwitchCheck(_ adapter: BluetoothAdapter) -> AdapterCheck {
    switch adapter.radioSwitch {
    case nil: AdapterCheck(.radioSwitch, .passed, "none")
    case let off? where off.isBlocked:
      AdapterCheck(.radioSwitch, .blocked(adapter.number, isHard: off.isHardBlocked))
    case _?: AdapterCheck(.radioSwitch, .passed, "on")
    }
  }

  private func ownerCheck(_ adapter: BluetoothAdapter) -> AdapterCheck {
    switch adapter.hasUserChannel {
    case true?: AdapterCheck(.owner, taken(adapter.number))
    case false?: AdapterCheck(.owner, .passed, "free")
    case nil: .unseen(.owner)
    }
  }
  /// bluetoothd's socket is for management, never a user channel.
  private func taken(_ number: UInt16) -> AdapterError {
    .taken(number, candidates: holders.filter { $0.name != "bluetoothd" })
  }

  private func setUpCheck(_ adapter: BluetoothAdapter) -> AdapterCheck {
    switch adapter.isStarting {
    case true?: AdapterCheck(.setUp, .inSetUp(adapter.number))
    case false?: AdapterCheck(.setUp, .passed, "finished")
    case nil: .unseen(.setUp)
    }
  }

  private func powerCheck(_ adapter: BluetoothAdapter) -> AdapterCheck {
    switch adapter.isUp {
    // The owner controls the power; the check of the owner reports it.
    case true? where adapter.hasUserChannel == true: AdapterCheck(.power, .passed, "up, by its owner")
    case true?: AdapterCheck(.power, .up(adapter.number, daemon: daemon != nil))
    case false?: AdapterCheck(.power, .passed, "down")
    case nil: .unseen(.power)
    }
  }

  private var daemonCheck: AdapterCheck {
    guard let daemon else { return AdapterCheck(.daemon, .passed, "not seen") }
    return AdapterCheck(
      .daemon,
      .caution("it lets go while a user channel is open, and may take the adapter up again afterwards (AutoEnable)"),
      "\(daemon)")
  }
}

extension AdapterError {
  /// The meaning of an error of `socket()`, `bind()` or an HCI ioctl for adapter `number`. It examines the machine,
  /// which takes some milliseconds: not for a loop that waits.
  public init(_ code: Errno, adapter number: UInt16, survey: AdapterSurvey = AdapterSurvey()) {
    let checks = survey.processChecks + survey.checks(of: number)
    func error(_ subjects: AdapterCheck.Subject...) -> AdapterError? {
      subjects.lazy.compactMap { subject in checks.first { $0.subject == subject }?.error }.first
    }
    switch code {
    case .addressFamilyNotSupported: self = error(.socket) ?? .foreignNetwork
    // A filter, a missing right, or a right without effect.
    case .notPermitted, .permissionDenied: self = error(.socket, .userNamespace, .capability) ?? .system(number, code)
    // The kernel lists an adapter some moments before it can be opened.
    case .noSuchDevice: self = error(.adapter) ?? .inSetUp(number)
    case .resourceBusy: self = error(.owner, .power) ?? .inSetUp(number)
    case .tooManyUsers: self = error(.owner) ?? .taken(number, candidates: [])
    case .blockedByRadioSwitch: self = error(.radioSwitch) ?? .blocked(number, isHard: false)
    default: self = .system(number, code)
    }
  }
}
