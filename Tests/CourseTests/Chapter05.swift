import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

@Suite("Course 5: GATT", .hang) struct Chapter5 {
  @Test func page() throws {
    try course("05-gatt-is-a-table", exercises: [10, 10]) { page in
      // snippet
      var builder = DatabaseBuilder()
      builder.genericAccess(name: "Belt")
      let measurement = builder.service("180D") { service in
        service.characteristic("2A38", .read, value: [1])
        return service.characteristic("2A37", .notify)
      }
      let database = try builder.build()

      for row in database.allAttributes {
        let name = row.type.assignedName ?? "?"
        print(row.handle.text, row.type, name + ":", database.value(row.handle).map(hex) ?? "(a value for each client)")
      }
      page.shows()

      // snippet
      let row = database.value(measurement.declaration)!
      let declaration = try WireDecoder.decode(CharacteristicDeclaration.self, row.span)
      print(declaration.description(in: row.span))
      page.shows()

      // snippet
      var belt = Device(database), phone = Device(Database())
      phone.client.discoverAll(RequestID(rawValue: 1))
      var questions = phone.sends(), count = 0
      while let question = questions.first {
        let answer = belt.receive(question)[0]
        count += 1
        print("→", hex(question))
        print("←", hex(answer))
        questions = phone.receive(answer)
      }
      print(count, "questions")
      page.shows()

      // snippet
      for service in phone.client.remote.services {
        print(service.uuid.assignedName ?? "\(service.uuid)")
        for characteristic in phone.client.remote.characteristics(of: service) {
          print("  ", characteristic.uuid.assignedName ?? "?", "at", characteristic.valueHandle.text)
        }
      }
      page.shows()

      // snippet
      let value: [UInt8] = [0x00, 72]
      print(belt.server.mayNotify(measurement.value, to: belt.bearer.id))

      let configuration = measurement.configuration!
      let subscribe = [0x12, UInt8(configuration.rawValue), 0x00, 0x01, 0x00]
      print("→", hex(subscribe), " ←", belt.receive(subscribe).map(hex))
      print(belt.server.mayNotify(measurement.value, to: belt.bearer.id))

      _ = belt.bearer.offer(notification: measurement.value, value.span)
      print(belt.sends().map(hex))
      page.shows()
    }
  }
}
