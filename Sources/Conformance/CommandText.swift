import ATT
import BindruneWire
import FoundationEssentials
import GATT

// Commands in the syntax of scripts, as sent over a control connection.

extension Command {
  public var script: String {
    switch self {
    case .mtu(let mtu): "mtu \(mtu)"
    case .security(let security, let keySize): "security \(security.script)" + (keySize == 16 ? "" : " \(keySize)")
    case .authorized(let isAuthorized): isAuthorized ? "authorized" : "unauthorized"
    case .set(let handle, let octets): line("set", handle, octets)
    case .notify(let values): "notify " + list(values)
    case .indicate(let handle, let octets): line("indicate", handle, octets)
    case .insert(let path): "insert \(URL(filePath: path).standardizedFileURL.path)"
    case .remove(let handle): "remove \(handle.script)"
    case .call(let call): "call \(call.script)"
    }
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
    case .found: return nil
    }
  }
}
