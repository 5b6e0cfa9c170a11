import BindruneWire

extension BluetoothUUID {
  /// The meaning of `value`, if this UUID is a known characteristic or descriptor; `nil` for any other UUID, and if the
  /// value does not decode. For people: programs decode the types.
  ///
  ///     BluetoothUUID("2A19").text(of: value.span)        // "87 %"
  public func text(of value: Span<UInt8>) -> String? {
    guard case .short(let number) = shortest else { return nil }
    do throws(WireError) {
      switch number {
      case 0x2900: return (try WireDecoder.decode(ExtendedPropertiesValue.self, value)).text
      case 0x2902: return (try WireDecoder.decode(ConfigurationValue.self, value)).text
      case 0x2A01: return (try WireDecoder.decode(Appearance.self, value)).name
      case 0x2A08: return (try WireDecoder.decode(DateTime.self, value)).text
      case 0x2A19: return "\((try WireDecoder.decode(BatteryLevel.self, value)).level) %"
      case 0x2A1C: return (try WireDecoder.decode(TemperatureMeasurement.self, value)).text
      case 0x2A2B: return (try WireDecoder.decode(CurrentTime.self, value)).dateTime.text
      case 0x2A35: return (try WireDecoder.decode(BloodPressureMeasurement.self, value)).text
      case 0x2A37: return (try WireDecoder.decode(HeartRateMeasurement.self, value)).text(in: value)
      case 0x2A38: return (try WireDecoder.decode(BodySensorLocation.self, value)).name
      case 0x2A50: return (try WireDecoder.decode(PnPID.self, value)).text
      case 0x2A9D: return (try WireDecoder.decode(WeightMeasurement.self, value)).text
      default: return nil
      }
    } catch { return nil }
  }
}

/// The two descriptors whose value is a set of bits.
private struct ConfigurationValue: WireRecord {
  var configuration = ClientCharacteristicConfiguration()
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Configuration", &configuration)
  }
  var text: String {
    switch (configuration.contains(.notification), configuration.contains(.indication)) {
    case (true, true): "notifications and indications"
    case (true, false): "notifications"
    case (false, true): "indications"
    case (false, false): "off"
    }
  }
}
private struct ExtendedPropertiesValue: WireRecord {
  var properties = CharacteristicExtendedProperties()
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Characteristic Extended Properties", &properties)
  }
  var text: String {
    let names = [
      (CharacteristicExtendedProperties.reliableWrite, "reliable write"),
      (.writableAuxiliaries, "writable auxiliaries"),
    ]
    let present = names.filter { properties.contains($0.0) }.map { $0.1 }
    return present.isEmpty ? "none" : present.joined(separator: ", ")
  }
}

extension Appearance {
  fileprivate var name: String? {
    guard let categoryName else { return nil }
    return subcategory == 0 ? categoryName : "\(categoryName), kind \(subcategory)"
  }
}
extension HeartRateMeasurement {
  fileprivate func text(in value: Span<UInt8>) -> String {
    var parts = ["\(heartRate) bpm"]
    if let hasContact { parts.append(hasContact ? "contact" : "no contact") }
    if flags.contains(.energyExpendedPresent) { parts.append("\(energyExpended) kJ") }
    if flags.contains(.rrIntervalPresent) {
      parts.append("RR " + intervals(in: value).map { "\(Int($0) * 1000 / 1024) ms" }.joined(separator: " "))
    }
    return parts.joined(separator: ", ")
  }
}
extension TemperatureMeasurement {
  fileprivate var text: String {
    let unit = flags.contains(.fahrenheit) ? "°F" : "°C"
    return "\(temperature) \(unit)" + (flags.contains(.timeStampPresent) ? ", \(timeStamp.text)" : "")
  }
}
extension BloodPressureMeasurement {
  fileprivate var text: String {
    let unit = flags.contains(.kilopascal) ? "kPa" : "mmHg"
    return "\(systolic)/\(diastolic) \(unit)" + (flags.contains(.pulseRatePresent) ? ", pulse \(pulseRate) bpm" : "")
      + (flags.contains(.timeStampPresent) ? ", \(timeStamp.text)" : "")
  }
}
extension WeightMeasurement {
  fileprivate var text: String {
    // 0.005 kg has three decimals, 0.01 lb has two.
    let isImperial = flags.contains(.imperial)
    let weight =
      isImperial
      ? MedicalFloat32(mantissa: Int(self.weight), exponent: -2)
      : MedicalFloat32(mantissa: Int(self.weight) * 5, exponent: -3)
    return (self.weight == 0xFFFF ? "no measurement" : "\(weight?.description ?? "") \(isImperial ? "lb" : "kg")")
      + (flags.contains(.timeStampPresent) ? ", \(timeStamp.text)" : "")
  }
}
extension PnPID {
  fileprivate var text: String {
    let source =
      switch vendorIDSource {
      case .bluetoothSIG: "Bluetooth"
      case .usbImplementersForum: "USB"
      default: "vendor ID source \(vendorIDSource.rawValue)"
      }
    let version = "\(productVersion >> 8).\(productVersion >> 4 & 0xF).\(productVersion & 0xF)"
    return "\(source) \(hexDigits(UInt64(vendorID), 4)), product \(hexDigits(UInt64(productID), 4)), version \(version)"
  }
}
