import BindruneWire

/// Set Event Mask. Vol 4, Part E, §7.3.1.
public struct SetEventMask: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.controllerAndBaseband, 0x0001) }
  public static var name: StaticString { "HCI_Set_Event_Mask" }
  public static var section: StaticString { "Vol 4, Part E, §7.3.1" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(5, 6) }
  public var eventMask = EventMask.standard
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Event_Mask", &eventMask)
  }
}

/// Reset. Vol 4, Part E, §7.3.2.
///
/// After it the controller has no links, an empty command queue and default parameters.
public struct Reset: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.controllerAndBaseband, 0x0003) }
  public static var name: StaticString { "HCI_Reset" }
  public static var section: StaticString { "Vol 4, Part E, §7.3.2" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(5, 7) }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}
}

/// Set Event Mask Page 2. Vol 4, Part E, §7.3.69.
public struct SetEventMaskPage2: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.controllerAndBaseband, 0x0063) }
  public static var name: StaticString { "HCI_Set_Event_Mask_Page_2" }
  public static var section: StaticString { "Vol 4, Part E, §7.3.69" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(22, 2) }
  public var eventMaskPage2 = EventMaskPage2()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Event_Mask_Page_2", &eventMaskPage2)
  }
}

/// Write LE Host Support. Vol 4, Part E, §7.3.79.
///
/// Only for controllers that also support BR/EDR: informs the link manager of an LE host.
public struct WriteLEHostSupport: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.controllerAndBaseband, 0x006D) }
  public static var name: StaticString { "HCI_Write_LE_Host_Support" }
  public static var section: StaticString { "Vol 4, Part E, §7.3.79" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(24, 6) }
  public static var requirement: HCIRequirement { .brEDR }
  public var leSupportedHost = false
  public var unused: UInt8 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("LE_Supported_Host", &leSupportedHost)
    try visit.value("Unused", &unused)
  }
}
