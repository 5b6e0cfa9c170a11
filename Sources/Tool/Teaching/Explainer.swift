import BindruneATT
import BindruneWire
import BindruneHCI
import BindruneL2CAP

/// Describes an HCI packet layer by layer, from the same declarations that encode and decode it.
enum Explainer {
  /// One line per layer, outermost first: `HCI`, `L2CAP`, `ATT`.
  static func lines(_ packet: [UInt8]) -> [String] {
    switch packet.first {
    case HCIPacketType.command.rawValue: [layer("HCI", .yellow, command(packet))]
    case HCIPacketType.event.rawValue: [layer("HCI", .yellow, event(packet))]
    case HCIPacketType.acl.rawValue: acl(packet)
    default: [layer("HCI", .yellow, hexText(packet, separator: " "))]
    }
  }

  private static func layer(_ name: String, _ style: Console.Style, _ text: String) -> String {
    Console.styled(name + String(repeating: " ", count: 6 - name.utf8.count), style) + text
  }
  private static func command(_ packet: [UInt8]) -> String {
    do throws(WireError) {
      let command = try AnyCommand(packet.span)
      return "\(command.name)  " + Console.styled(command.describe(in: packet.span), .dim)
    } catch { return "command: \(error)" }
  }
  private static func event(_ packet: [UInt8]) -> String {
    do throws(WireError) {
      let event = try HCIEvent(packet.span)
      if case .commandComplete(let complete) = event, let command = AnyCommand(default: complete.commandOpcode) {
        return "\(event.name) of \(command.name)  "
          + Console.styled(command.describe(return: complete.returnParameters, in: packet.span), .dim)
      }
      return "\(event.name)  " + Console.styled(event.describe(in: packet.span), .dim)
    } catch { return "event: \(error)" }
  }
  private static func name(of channel: ChannelID) -> String {
    switch channel {
    case .attribute: "Attribute Protocol"
    case .leSignaling: "LE signaling"
    case .securityManager: "Security Manager"
    default: "channel"
    }
  }
  private static func acl(_ packet: [UInt8]) -> [String] {
    do throws(WireError) {
      let acl = try WireDecoder.decode(ACLPacket.self, packet.span, from: 1)
      let flags = acl.packetBoundaryFlag == .continuing ? "continuing" : "first"
      let header = layer(
        "HCI", .yellow,
        "ACL Data  " + Console.styled("Handle: \(acl.handle.text), \(flags), \(acl.data.count) octets", .dim))
      guard acl.packetBoundaryFlag != .continuing, acl.data.count >= 4 else { return [header] }
      let start = Int(acl.data.offset)
      let length = Int(packet[start]) | Int(packet[start + 1]) << 8
      let channel = ChannelID(rawValue: UInt16(packet[start + 2]) | UInt16(packet[start + 3]) << 8)
      let frame = layer(
        "L2CAP", .blue, "\(name(of: channel))  " + Console.styled("Channel ID: \(channel.text), \(length) octets", .dim)
      )
      let payload = Array(packet[(start + 4)..<(start + Int(acl.data.count))])
      guard payload.count == length else { return [header, frame] }
      switch channel {
      case .attribute:
        do throws(WireError) {
          let pdu = try ATTPDU(payload.span)
          let text = "\(ATTOpcode(rawValue: payload[0]))  " + Console.styled(pdu.describe(in: payload.span), .dim)
          return [header, frame, layer("ATT", .green, text)]
        } catch { return [header, frame, layer("ATT", .green, "\(error)")] }
      default: return [header, frame, layer("", .green, hexText(payload, separator: " "))]
      }
    } catch { return [layer("HCI", .yellow, "ACL Data: \(error)")] }
  }
}
