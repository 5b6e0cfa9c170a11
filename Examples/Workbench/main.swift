// The workbench of the course: `swift run Workbench`. It imports all layers. Replace what is between the two lines.
import BindruneATT
import BindruneCapture
import BindruneSimulator
import BindruneToolbox
import BindruneTrace
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import BindruneSMP

// ---------------------------------------------------------------------------------------------------------------------

let question: [UInt8] = [0x0A, 0x03, 0x00]
print(hex(question))

// ---------------------------------------------------------------------------------------------------------------------

/// `0A 03 00`: octets as this course writes them.
func hex(_ octets: [UInt8]) -> String {
  octets.map { ($0 < 16 ? "0" : "") + String($0, radix: 16, uppercase: true) }.joined(separator: " ")
}
/// What `write` appends to an empty packet.
func written(_ write: (inout OutputRawSpan) throws(WireError) -> Void) throws(WireError) -> [UInt8] {
  var packet = PacketBuffer()
  _ = try packet.fill { output throws(WireError) in
    try write(&output)
    return true
  }
  return packet.bytes
}
