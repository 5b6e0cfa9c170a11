import BindruneWire

// Measurements of health devices: a Flags field determines which other fields are present. GATT Specification
// Supplement, §3.

/// Heart Rate Measurement (0x2A37). Heart Rate Service, §3.1.
///
///     let measurement = try WireDecoder.decode(HeartRateMeasurement.self, value.span)
///     print(measurement.heartRate, measurement.intervals(in: value.span))
public struct HeartRateMeasurement: WireRecord {
  public struct Flags: OptionSet, OpenNumber {
    public var rawValue: UInt8
    @inlinable @inline(__always) public init(rawValue: UInt8) { self.rawValue = rawValue }
    @inlinable public static var heartRateIs16Bits: Self { Self(rawValue: 0x01) }
    @inlinable public static var sensorContactDetected: Self { Self(rawValue: 0x02) }
    @inlinable public static var sensorContactSupported: Self { Self(rawValue: 0x04) }
    @inlinable public static var energyExpendedPresent: Self { Self(rawValue: 0x08) }
    @inlinable public static var rrIntervalPresent: Self { Self(rawValue: 0x10) }
  }
  /// 1/1024 s between two beats.
  public struct RRInterval: WireRecord {
    public var interval: UInt16 = 0
    @inlinable public init() {}
    public init(_ interval: UInt16) { self.interval = interval }
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("RR-Interval", &interval)
    }
  }
  public var flags = Flags()
  /// Beats per minute; values above 255 need `heartRateIs16Bits`, and are cut without it.
  public var heartRate: UInt16 = 0
  /// kJ since the last reset; 0xFFFF is that or more.
  public var energyExpended: UInt16 = 0
  /// In order of time.
  public var rrIntervals = WireList<RRInterval>()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Flags", &flags)
    if flags.contains(.heartRateIs16Bits) {
      try visit.value("Heart Rate Measurement Value", &heartRate)
    } else {
      var short = UInt8(truncatingIfNeeded: heartRate)
      try visit.value("Heart Rate Measurement Value", &short)
      heartRate = UInt16(short)
    }
    if flags.contains(.energyExpendedPresent) { try visit.value("Energy Expended", &energyExpended) }
    if flags.contains(.rrIntervalPresent) { try visit.list("RR-Interval", &rrIntervals) }
  }

  /// `nil`: the sensor does not detect contact.
  public var hasContact: Bool? {
    flags.contains(.sensorContactSupported) ? flags.contains(.sensorContactDetected) : nil
  }
  /// The intervals of the value that this was decoded from, in 1/1024 s.
  public func intervals(in value: Span<UInt8>) -> [UInt16] {
    var cursor = rrIntervals.cursor, intervals: [UInt16] = []
    while let entry = cursor.next(in: value) { intervals.append(entry.interval) }
    return intervals
  }
}

/// Body Sensor Location (0x2A38). Heart Rate Service, §3.2.
public struct BodySensorLocation: OpenNumber, WireRecord, Hashable {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init() { rawValue = 0 }
  @inlinable public static var other: Self { Self(rawValue: 0) }
  @inlinable public static var chest: Self { Self(rawValue: 1) }
  @inlinable public static var wrist: Self { Self(rawValue: 2) }
  @inlinable public static var finger: Self { Self(rawValue: 3) }
  @inlinable public static var hand: Self { Self(rawValue: 4) }
  @inlinable public static var earLobe: Self { Self(rawValue: 5) }
  @inlinable public static var foot: Self { Self(rawValue: 6) }
  public var name: String? {
    let names = ["Other", "Chest", "Wrist", "Finger", "Hand", "Ear Lobe", "Foot"]
    return Int(rawValue) < names.count ? names[Int(rawValue)] : nil
  }
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Body Sensor Location", &self)
  }
}

/// Temperature Measurement (0x2A1C). Health Thermometer Service, §3.1.
public struct TemperatureMeasurement: WireRecord {
  public struct Flags: OptionSet, OpenNumber {
    public var rawValue: UInt8
    @inlinable @inline(__always) public init(rawValue: UInt8) { self.rawValue = rawValue }
    /// Otherwise degrees Celsius.
    @inlinable public static var fahrenheit: Self { Self(rawValue: 0x01) }
    @inlinable public static var timeStampPresent: Self { Self(rawValue: 0x02) }
    @inlinable public static var temperatureTypePresent: Self { Self(rawValue: 0x04) }
  }
  public var flags = Flags()
  public var temperature = MedicalFloat32()
  public var timeStamp = DateTime()
  /// The place of measurement: 1 armpit, 2 body, 3 ear, 4 finger, 5 gastro-intestinal tract, 6 mouth, 7 rectum, 8 toe,
  /// 9 tympanum.
  public var temperatureType: UInt8 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Flags", &flags)
    try visit.value("Temperature Measurement Value", &temperature)
    if flags.contains(.timeStampPresent) { try timeStamp.fields(&visit) }
    if flags.contains(.temperatureTypePresent) { try visit.value("Temperature Type", &temperatureType) }
  }
}

/// Blood Pressure Measurement (0x2A35). Blood Pressure Service, §3.1.
public struct BloodPressureMeasurement: WireRecord {
  public struct Flags: OptionSet, OpenNumber {
    public var rawValue: UInt8
    @inlinable @inline(__always) public init(rawValue: UInt8) { self.rawValue = rawValue }
    /// Otherwise mmHg.
    @inlinable public static var kilopascal: Self { Self(rawValue: 0x01) }
    @inlinable public static var timeStampPresent: Self { Self(rawValue: 0x02) }
    @inlinable public static var pulseRatePresent: Self { Self(rawValue: 0x04) }
    @inlinable public static var userIDPresent: Self { Self(rawValue: 0x08) }
    @inlinable public static var measurementStatusPresent: Self { Self(rawValue: 0x10) }
  }
  public var flags = Flags()
  public var systolic = MedicalFloat16()
  public var diastolic = MedicalFloat16()
  public var meanArterialPressure = MedicalFloat16()
  public var timeStamp = DateTime()
  /// Beats per minute.
  public var pulseRate = MedicalFloat16()
  /// 0xFF: unknown.
  public var userID: UInt8 = 0xFF
  /// Bit 0 body movement, 1 cuff too loose, 2 irregular pulse, 3 … 4 pulse rate range, 5 improper position.
  public var measurementStatus: UInt16 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Flags", &flags)
    try visit.value("Systolic", &systolic)
    try visit.value("Diastolic", &diastolic)
    try visit.value("Mean Arterial Pressure", &meanArterialPressure)
    if flags.contains(.timeStampPresent) { try timeStamp.fields(&visit) }
    if flags.contains(.pulseRatePresent) { try visit.value("Pulse Rate", &pulseRate) }
    if flags.contains(.userIDPresent) { try visit.value("User ID", &userID) }
    if flags.contains(.measurementStatusPresent) { try visit.value("Measurement Status", &measurementStatus) }
  }
}

/// Weight Measurement (0x2A9D). Weight Scale Service, §3.2.
public struct WeightMeasurement: WireRecord {
  public struct Flags: OptionSet, OpenNumber {
    public var rawValue: UInt8
    @inlinable @inline(__always) public init(rawValue: UInt8) { self.rawValue = rawValue }
    /// Pounds and inches; otherwise kilograms and metres.
    @inlinable public static var imperial: Self { Self(rawValue: 0x01) }
    @inlinable public static var timeStampPresent: Self { Self(rawValue: 0x02) }
    @inlinable public static var userIDPresent: Self { Self(rawValue: 0x04) }
    @inlinable public static var bmiAndHeightPresent: Self { Self(rawValue: 0x08) }
  }
  public var flags = Flags()
  /// 0.005 kg or 0.01 lb; 0xFFFF: the measurement failed.
  public var weight: UInt16 = 0
  public var timeStamp = DateTime()
  /// 0xFF: unknown.
  public var userID: UInt8 = 0xFF
  /// 0.1 kg/m².
  public var bmi: UInt16 = 0
  /// 0.001 m or 0.1 in.
  public var height: UInt16 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Flags", &flags)
    try visit.value("Weight", &weight)
    if flags.contains(.timeStampPresent) { try timeStamp.fields(&visit) }
    if flags.contains(.userIDPresent) { try visit.value("User ID", &userID) }
    if flags.contains(.bmiAndHeightPresent) {
      try visit.value("BMI", &bmi)
      try visit.value("Height", &height)
    }
  }
}
