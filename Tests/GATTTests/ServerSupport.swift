import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport

/// A server with one open bearer: the PDUs go in and out as hex, as in the Specification's examples.
final class ServerUnderTest {
  var server: Server
  var mtu: Int
  var now = Instant.zero
  var bearer = BearerID(rawValue: 1)
  /// Requests so far.
  private var count: UInt32 = 0
  /// The bearer's name for the last request.
  var ticket: RequestTicket { RequestTicket(bearer: bearer, number: count) }
  /// What was stored last for each bond.
  var records: [BondID: [UInt8]] = [:]

  init(_ database: Database, mtu: Int = 23, configuration: ServerConfiguration = ServerConfiguration()) {
    server = Server(database: database, configuration: configuration)
    self.mtu = mtu
    server.open(bearer)
  }

  /// The response, `later`, or the bearer's answer to an invalid PDU.
  func ask(_ request: String) -> String { hex(ask(octets(request)) ?? Array("later".utf8)) }
  func ask(_ request: [UInt8]) -> [UInt8]? {
    var response = PacketBuffer(capacity: mtu)
    count += 1
    let isNow = response.fill { output in
      do throws(WireError) {
        let pdu = try ATTPDU(request.span)
        return server.respond(to: pdu, in: request.span, as: ticket, now: now, response: &output) == .now
      } catch {
        for octet in [0x01, request.first ?? 0, 0, 0, 0x04] { output.append(octet) }
        return true
      }
    }
    return isNow ? response.bytes : nil
  }
  func command(_ request: String) {
    let request = octets(request)
    do throws(WireError) {
      server.receive(command: try ATTPDU(request.span), in: request.span, on: bearer, now: now)
    } catch {}
  }

  /// The bearer has answered the last request for the application.
  func expire() { server.expired(ticket, now: now) }
  func setValue(_ raw: UInt16, _ value: [UInt8]) -> Bool { server.setValue(handle(raw), to: value) }
  func effects() -> [ServerEffect] {
    var effects: [ServerEffect] = []
    while let effect = server.nextEffect() { effects.append(effect) }
    return effects
  }
  /// The effects as text, with their octets; keeps the records that are to be stored.
  func effectTexts() -> [String] {
    server.effectTexts { records[$0] = $1 }
  }
  func answer(_ body: (inout Server, inout OutputRawSpan) -> AnswerOutcome) -> String {
    var response = PacketBuffer(capacity: mtu), outcome = AnswerOutcome.unwanted(.unknown)
    _ = response.fill { output in
      outcome = body(&server, &output)
      return true
    }
    switch outcome {
    case .response: return hex(response.bytes)
    case .collecting: return later
    case .unwanted(let reason): return "nobody waits: \(reason)"
    }
  }
  func answerRead(_ id: UInt32, _ value: [UInt8]) -> String {
    answer { server, output in server.answerRead(ServerRequestID(rawValue: id), with: value.span, into: &output) }
  }
  func answerWrite(_ id: UInt32) -> String {
    answer { server, output in server.answerWrite(ServerRequestID(rawValue: id), into: &output) }
  }
  func refuse(_ id: UInt32, _ error: ATTError) -> String {
    answer { server, output in server.refuse(ServerRequestID(rawValue: id), error, into: &output) }
  }
}

let later = hex(Array("later".utf8))

func handle(_ raw: UInt16) -> AttributeHandle { AttributeHandle(rawValue: raw) }
/// The UUIDs of the interoperability database; on the wire `00 0C 1A 5F 0E 6F 5C 8E BD 4B 1D 1D nn 00 B1 A0`.
func custom(_ number: UInt64) -> BluetoothUUID {
  .long(low: 0x8E5C_6F0E_5F1A_0C00, high: 0xA0B1_0000_1D1D_4BBD | number << 32)
}
/// The sixteen octets of `custom(number)` on the wire.
func customOctets(_ number: UInt8) -> String {
  "00 0C 1A 5F 0E 6F 5C 8E BD 4B 1D 1D \(hex([number])) 00 B1 A0"
}

/// Every kind of attribute, with gaps between the services.
func richDatabase() throws -> Database {
  var builder = DatabaseBuilder()
  builder.genericAccess(name: "Bindrune", appearance: 0x0341)  // 0001 … 0005
  let battery = builder.service("180F", at: handle(0x10), end: handle(0x1F)) { service in
    service.characteristic("2A19", [.read, .notify], value: [0x57])  // 0011, 0012, 0013
    service.descriptor(.characteristicUserDescription, value: .text("level"))  // 0014
    return service.handle
  }
  let secondary = builder.service(custom(0x20), .secondary) { service in  // 0020
    service.characteristic(custom(0x21), .read, value: .text("2nd"))  // 0021, 0022
    return service.handle
  }
  builder.service(custom(0), at: handle(0x30)) { service in
    service.include(battery)  // 0031
    service.include(secondary)  // 0032
    service.characteristic(custom(2), [.read, .write], value: .stored([1, 2, 3], upTo: 20))  // 0033, 0034
    service.characteristic(
      custom(7), [.read, .write], value: .text("secret"), permissions: .init(read: .encrypted, write: .encrypted))
    service.characteristic(
      custom(8), .read, value: .text("mitm-secret"), permissions: .init(read: .authenticated))  // 0037, 0038
    service.characteristic(custom(11), [.read, .write, .writeWithoutResponse], value: .dynamic)  // 0039, 003A
    service.characteristic(custom(12), [.write, .writeWithoutResponse])  // 003B, 003C
    service.characteristic(
      custom(6), [.read, .write], value: .stored((0..<512).map { UInt8($0 & 0xFF) }))  // 003D, 003E
    service.characteristic(custom(4), [.read, .write], value: .fixed([9, 9, 9, 9]))  // 003F, 0040
    service.characteristic(custom(5), .indicate)  // 0041, 0042, 0043
    service.characteristic(custom(3), [.notify, .indicate])  // 0044, 0045, 0046
    service.characteristic(custom(2), .read, value: .dynamic)  // 0047, 0048
  }
  return try builder.build()
}

extension Server {
  /// All effects as text, with their octets. `store` gets the records that are to be stored.
  mutating func effectTexts(storing store: (BondID, [UInt8]) -> Void = { _, _ in }) -> [String] {
    var texts: [String] = []
    while let effect = nextEffect() {
      switch effect {
      case .subscriptionChanged(let bearer, let handle, let configuration):
        texts.append("\(bearer.rawValue) subscribed \(handle.text) \(configuration.rawValue)")
      case .written(let bearer, let handle, let offset, let value):
        texts.append("\(bearer.rawValue) wrote \(handle.text)+\(offset): \(hex(bytes(of: value)))")
      case .readRequested(let id, let bearer, let handle, let offset):
        texts.append("\(bearer.rawValue) reads \(handle.text)+\(offset) #\(id.rawValue)")
      case .writeRequested(let id, let bearer, let handle, let offset, let value, let following):
        let more = following > 0 ? " and \(following) more" : ""
        texts.append(
          "\(bearer.rawValue) writes \(handle.text)+\(offset) #\(id.rawValue): \(hex(bytes(of: value)))\(more)")
      case .requestCancelled(let id, let bearer): texts.append("\(bearer.rawValue) cancelled #\(id.rawValue)")
      case .signCounterChanged(let bearer, let counter): texts.append("\(bearer.rawValue) signs from \(counter)")
      case .signatureRefused(let bearer, let handle, let refusal):
        texts.append("\(bearer.rawValue) signed \(handle.text): \(refusal)")
      case .store(let bond, let record):
        store(bond, bytes(of: record))
        texts.append("bond \(bond.rawValue) stored")
      }
    }
    return texts
  }
}
