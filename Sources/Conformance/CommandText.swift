import BindruneATT
import BindruneGATT
import BindruneSMP
import BindruneWire
import FoundationEssentials

// Commands in the syntax of scripts, as sent over a control connection.

extension Command {
  public var script: String {
    switch self {
    case .mtu(let mtu): "mtu \(mtu)"
    case .security(let security, let keySize): "security \(security.script)" + (keySize == 16 ? "" : " \(keySize)")
    case .signing(let key, let counter, let isAuthenticated):
      "signing \(hexText(key)), \(counter)" + (isAuthenticated ? " authenticated" : "")
    case .authorized(let isAuthorized): isAuthorized ? "authorized" : "unauthorized"
    case .set(let handle, let octets): line("set", handle, octets)
    case .notify(let values): "notify " + list(values)
    case .indicate(let handle, let octets): line("indicate", handle, octets)
    case .insert(let path): "insert \(URL(filePath: path).standardizedFileURL.path)"
    case .remove(let handle): "remove \(handle.script)"
    case .call(let call): "call \(call.script)"
    case .pairing(let option): "pairing \(option.script)"
    case .pair: "pair"
    case .requestSecurity: "request-security"
    case .answer(.yes): "answer yes"
    case .answer(.no): "answer no"
    case .answer(.passkey(let passkey)): "answer passkey \(passkey)"
    case .answer(.keypress(let key)): "answer keypress \(key)"
    case .encryption(let isOn): "encryption \(isOn ? "on" : "off")"
    case .channels(let command): command.script
    }
  }
  /// With the values of the names in it.
  func filled(with values: Values) throws(NoValue) -> Command {
    switch self {
    case .pairing(.identity(let pattern)): .pairing(.identity(OctetPattern(try pattern.filled(with: values))))
    case .pairing(.peersData(let pattern)): .pairing(.peersData(OctetPattern(try pattern.filled(with: values))))
    case .channels(let command): .channels(try command.filled(with: values))
    default: self
    }
  }
}

extension ChannelCommand {
  public var script: String {
    switch self {
    case .listen(let spsm, let offer): "listen 0x\(hexDigits(UInt64(spsm.rawValue), 4)) \(offer.script)"
    case .decide: "decide"
    case .connect(let spsm, let lengths, let count):
      "connect 0x\(hexDigits(UInt64(spsm.rawValue), 4)) \(lengths.script)" + (count.map { " enhanced \($0)" } ?? "")
    case .send(let octets): "send \(octets)"
    case .close(let channel): "close \(channel)"
    case .reading(let isOn): "reading \(isOn ? "on" : "off")"
    case .reconfigure(let lengths, let channels): "reconfigure \(lengths.script) \(channels)"
    case .fragments(let count): "fragments \(count)"
    case .parameters(let asked):
      "parameters \(asked.intervalMin.rawValue) \(asked.intervalMax.rawValue) \(asked.latency) "
        + "\(asked.timeout.rawValue)"
    }
  }
  fileprivate func filled(with values: Values) throws(NoValue) -> ChannelCommand {
    switch self {
    case .send(let pattern): .send(OctetPattern(try pattern.filled(with: values)))
    case .close(let pattern): .close(OctetPattern(try pattern.filled(with: values)))
    case .reconfigure(let lengths, let pattern): .reconfigure(lengths, OctetPattern(try pattern.filled(with: values)))
    case .listen, .decide, .connect, .reading, .fragments, .parameters: self
    }
  }
}
extension ChannelLengths {
  var script: String { "mtu \(mtu) mps \(mps)" }
}
extension ChannelOffer {
  var script: String {
    var words = [lengths.script]
    if let most { words.append("most \(most)") }
    if security != .none { words.append(security.script) }
    if needsAuthorization { words.append("authorized") }
    if let keySize { words.append("key\(keySize)") }
    if decidesLater { words.append("later") }
    return words.joined(separator: " ")
  }
}

extension PairingOption {
  public var script: String {
    func onOff(_ isOn: Bool) -> String { isOn ? "on" : "off" }
    return switch self {
    case .ioCapability(let io): "io 0x\(hexDigits(UInt64(io), 2))"
    case .protection(.notNeeded): "mitm off"
    case .protection(.wanted): "mitm wanted"
    case .protection(.required): "mitm required"
    case .secureConnections(.off): "sc off"
    case .secureConnections(.supported): "sc supported"
    case .secureConnections(.only): "sc only"
    case .bonding(let isOn): "bonding \(onOff(isOn))"
    case .keySizes(let sizes): "key-size \(sizes.lowerBound) \(sizes.upperBound)"
    case .keypresses(let isOn): "keypresses \(onOff(isOn))"
    case .sends(let keys): "sends \(keys.script)"
    case .takes(let keys): "takes \(keys.script)"
    case .identity(let octets): "identity \(octets)"
    case .peersData(let octets): "oob-data \(octets)"
    case .ownData: "oob-own"
    case .requiresOutOfBand(let isOn): "oob-required \(onOff(isOn))"
    case .acceptsDebugKey(let isOn): "debug-key \(onOff(isOn))"
    case .accepts(let isOn): "accepts \(onOff(isOn))"
    case .consents(let isOn): "consents \(onOff(isOn))"
    case .onDemand(let isOn): "on-demand \(onOff(isOn))"
    }
  }
}

extension KeyDistribution {
  static let words: [(word: String, key: KeyDistribution)] = [
    ("enc", .encKey), ("id", .idKey), ("sign", .signKey),
  ]
  var script: String {
    let words = Self.words.filter { contains($0.key) }.map(\.word)
    return words.isEmpty ? "none" : words.joined(separator: " ")
  }
}

extension BearerSecurity {
  static let words: [String: BearerSecurity] = [
    "none": .none, "keys": .keysAvailable, "encrypted": .encrypted, "authenticated": .authenticated,
  ]
  var script: String { Self.words.first { $0.value == self }?.key ?? "none" }
}

extension ProcedureCall {
  public var script: String {
    switch self {
    case .exchangeMTU: "exchange-mtu"
    case .discoverAll: "discover-all"
    case .discoverServices(let uuid): "discover-services" + (uuid.map { " \($0)" } ?? "")
    case .discoverIncludes(let range): "discover-includes \(range.script)"
    case .discoverCharacteristics(let range, let uuid):
      "discover-characteristics \(range.script)" + (uuid.map { " \($0)" } ?? "")
    case .discoverDescriptors(let range): "discover-descriptors \(range.script)"
    case .read(let handle): "read \(handle.script)"
    case .readLong(let handle): "read-long \(handle.script)"
    case .readUUID(let uuid, let range): "read-uuid \(uuid) \(range.script)"
    case .readMultiple(let handles): "read-multiple " + handles.map(\.script).joined(separator: " ")
    case .readMultipleVariable(let handles): "read-multiple-variable " + handles.map(\.script).joined(separator: " ")
    case .write(let handle, let octets): line("write", handle, octets)
    case .writeWithoutResponse(let handle, let octets): line("write-without-response", handle, octets)
    case .writeSigned(let handle, let octets): line("write-signed", handle, octets)
    case .writeLong(let handle, let octets): line("write-long", handle, octets)
    case .writeReliable(let values):
      "write-reliable " + list(values)
    case .subscribe(let handle, let configuration):
      "subscribe \(handle.script) \(configuration == .indication ? "indications" : "notifications")"
    case .unsubscribe(let handle): "unsubscribe \(handle.script)"
    case .readDatabaseHash: "read-database-hash"
    case .followChanges: "follow-changes"
    }
  }
}

extension HandleRange {
  var script: String { "\(first.script)-\(last.script)" }
}

private func list(_ values: [HandleOctets]) -> String {
  values.map { $0.octets.isEmpty ? $0.handle.script : "\($0.handle.script) \(hexText($0.octets))" }
    .joined(separator: ", ")
}
private func line(_ verb: String, _ handle: AttributeHandle, _ octets: [UInt8]) -> String {
  octets.isEmpty ? "\(verb) \(handle.script)" : "\(verb) \(handle.script) \(hexText(octets))"
}

extension ProcedureResult {
  /// The lines that report it over a control connection: one for each kind of item found.
  var lines: [String] {
    guard case .found(let found) = self else { return ["result \(description)"] }
    return Found.allCases.compactMap { kind in found[kind].map { "result \(kind.rawValue) \(items($0))" } }
  }
  /// Parses `lines`; nil if they are not a result.
  init?(lines: [ExpectedResult]) {
    var found: [Found: [String]] = [:]
    for line in lines {
      if case .found(let kind, let items) = line { found[kind] = items }
    }
    if found.count == lines.count, !found.isEmpty {
      self = .found(found)
      return
    }
    guard lines.count == 1 else { return nil }
    switch lines[0] {
    case .done: self = .done
    case .value(let pattern):
      guard let octets = pattern.octets else { return nil }
      self = .value(octets)
    case .values(let values):
      let read = values.compactMap { value in
        value.octets.octets.map { HandleOctets(handle: value.handle, octets: $0) }
      }
      guard read.count == values.count else { return nil }
      self = .values(read)
    case .error(let error, let handle): self = .error(error, handle ?? AttributeHandle())
    case .failed: self = .failed("according to the stack under test")
    case .timeout: self = .timeout
    case .paired(let how): self = .paired(how)
    case .pairingFailed(let reason): self = .pairingFailed(reason)
    case .encrypted: self = .encrypted
    case .found: return nil
    }
  }
}
