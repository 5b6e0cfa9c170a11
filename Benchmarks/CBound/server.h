// An optimal GATT server in C: one table of attributes by handle, and for each attribute type, and for each service
// UUID, the handles that have it, in order. So a handle is found at once, a type by a hash and a binary search.
//
// It answers with what BlueZ, BTstack and NimBLE answer with. As a bound, it has no permissions, no several clients,
// and no values of an application.
#pragma once
#include "cbound.h"

enum { most_attributes = 3200, most_value = 512, most_prepared = 16, index_slots = 8192 };

// Vol 3, Part G, §3.1, §3.3.1, §3.3.3.3.
enum { primary_service = 0x2800, characteristic = 0x2803, client_configuration = 0x2902 };

// Vol 3, Part F, §3.4.1.1.
enum {
  invalid_handle = 0x01, invalid_pdu = 0x04, request_not_supported = 0x06, invalid_offset = 0x07,
  prepare_queue_full = 0x09, attribute_not_found = 0x0A, invalid_length = 0x0D, unsupported_group_type = 0x10,
};

// 2 or 16 octets, as on the wire.
typedef struct {
  uint8_t count;
  uint8_t bytes[16];
} uuid;

typedef struct {
  uuid type;
  uint16_t value_count;
  uint16_t group_end; // of a service: its last handle
  uint8_t *value;     // has room for most_value
} attribute;

// The handles of all attributes with one UUID, ascending.
typedef struct {
  uuid key;
  uint32_t count, room;
  uint16_t *handles;
} posting;

typedef struct {
  uint16_t handle, offset, count;
  uint8_t bytes[most_value];
} prepared_write;

static attribute attributes[most_attributes]; // by handle; 0 is none
static uint32_t last_handle;
static posting by_type[index_slots];         // attribute type → attributes
static posting by_service_uuid[index_slots]; // value of a primary service's declaration → declarations
static prepared_write prepared[most_prepared];
static uint32_t prepared_count;

// MARK: the index

static inline uint32_t slot_of(const uint8_t *key, uint32_t count) {
  uint32_t hash;
  if (count == 2) {
    hash = le16(key) * 2654435761u;
  } else {
    uint64_t low, high;
    memcpy(&low, key, 8);
    memcpy(&high, key + 8, 8);
    low ^= high * 0x9E3779B97F4A7C15u;
    hash = (uint32_t)(low ^ low >> 32);
  }
  return (hash ^ hash >> 15) % index_slots;
}

// The posting of `key`, or the empty slot for it: open addressing in a table that is never nearly full.
static inline posting *slot(posting *index, const uint8_t *key, uint32_t count) {
  uint32_t i = slot_of(key, count);
  while (index[i].key.count && (index[i].key.count != count || memcmp(index[i].key.bytes, key, count)))
    i = (i + 1) % index_slots;
  return &index[i];
}

static void insert(posting *index, const uint8_t *key, uint32_t count, uint32_t handle) {
  posting *p = slot(index, key, count);
  p->key.count = (uint8_t)count;
  memcpy(p->key.bytes, key, count);
  if (p->count == p->room) {
    p->room = p->room ? 2 * p->room : 4;
    p->handles = realloc(p->handles, p->room * sizeof *p->handles);
  }
  p->handles[p->count++] = (uint16_t)handle;
}

// The index of the first handle that is at least `handle`.
static inline uint32_t first_from(const posting *p, uint32_t handle) {
  uint32_t low = 0, high = p->count;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (p->handles[middle] < handle) low = middle + 1;
    else high = middle;
  }
  return low;
}

// MARK: building

static uint32_t add(const uint8_t *type, uint32_t type_count, const void *value, uint32_t value_count) {
  attribute *a = &attributes[++last_handle];
  a->type.count = (uint8_t)type_count;
  memcpy(a->type.bytes, type, type_count);
  a->value = calloc(most_value, 1);
  memcpy(a->value, value, value_count);
  a->value_count = (uint16_t)value_count;
  insert(by_type, type, type_count, last_handle);
  return last_handle;
}

static uint32_t add_short(uint16_t type, const void *value, uint32_t value_count) {
  uint8_t bytes[2];
  put16(bytes, type);
  return add(bytes, 2, value, value_count);
}

// As in Workloads/generate.py, an odd service and its characteristics have 128-bit UUIDs.
static uint32_t make_uuid(uint8_t *bytes, uint32_t number, uint32_t service) {
  if (service % 2 == 0) {
    put16(bytes, (uint16_t)number);
    return 2;
  }
  for (int i = 0; i < 12; i++) bytes[i] = (uint8_t)(0xC0 + i);
  put16(bytes + 12, (uint16_t)number);
  bytes[14] = 0x00;
  bytes[15] = 0xD0;
  return 16;
}

// A service is 30 attributes: its declaration and 10 characteristics, of which 9 have 20 octets and can notify, the
// last 200 and cannot.
static void build(uint32_t services) {
  for (uint32_t s = 0; s < services; s++) {
    uint8_t key[16];
    uint32_t count = make_uuid(key, 0xA000 + s, s);
    uint32_t declaration = add_short(primary_service, key, count);
    attributes[declaration].group_end = (uint16_t)(declaration + 29);
    insert(by_service_uuid, key, count, declaration);
    for (uint32_t c = 0; c < 10; c++) {
      uint8_t value[most_value], none[2] = {0, 0};
      count = make_uuid(key, 0xB000 + 16 * s + c, s);
      value[0] = c < 9 ? 0x1A : 0x0A; // read, write, and notify or not
      put16(value + 1, (uint16_t)(last_handle + 2));
      memcpy(value + 3, key, count);
      add_short(characteristic, value, 3 + count);
      memset(value, (int)c, sizeof value);
      add(key, count, value, c < 9 ? 20 : 200);
      if (c < 9) add_short(client_configuration, none, sizeof none);
    }
  }
}

// MARK: answering

static inline uint32_t error(uint8_t *response, uint8_t opcode, uint32_t handle, uint8_t code) {
  response[0] = 0x01;
  response[1] = opcode;
  put16(response + 2, (uint16_t)handle);
  response[4] = code;
  return 5;
}

static inline uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

// The response to a request, written at `response`; gives its count. Vol 3, Part F, §3.4.3 to §3.4.6.
OWN_CALL uint32_t respond(const uint8_t *request, uint32_t count, uint8_t *response, uint32_t mtu) {
  uint8_t opcode = request[0];
  switch (opcode) {
  case 0x04: { // Find Information: entries of one size only
    if (count != 5) return error(response, opcode, 0, invalid_pdu);
    uint32_t start = le16(request + 1), end = least(le16(request + 3), last_handle);
    if (!start || start > le16(request + 3)) return error(response, opcode, start, invalid_handle);
    if (start > end) return error(response, opcode, start, attribute_not_found);
    uint32_t size = attributes[start].type.count, at = 2;
    response[0] = 0x05;
    response[1] = size == 2 ? 1 : 2;
    for (uint32_t h = start; h <= end && attributes[h].type.count == size && at + 2 + size <= mtu; h++) {
      put16(response + at, (uint16_t)h);
      memcpy(response + at + 2, attributes[h].type.bytes, size);
      at += 2 + size;
    }
    return at;
  }
  case 0x06: { // Find By Type Value: of primary services, which is what clients find by value
    if (count < 7) return error(response, opcode, 0, invalid_pdu);
    uint32_t start = le16(request + 1), end = le16(request + 3), at = 1;
    if (!start || start > end) return error(response, opcode, start, invalid_handle);
    response[0] = 0x07;
    if (le16(request + 5) == primary_service && (count == 7 + 2 || count == 7 + 16)) {
      const posting *p = slot(by_service_uuid, request + 7, count - 7);
      for (uint32_t i = first_from(p, start); i < p->count && p->handles[i] <= end && at + 4 <= mtu; i++) {
        put16(response + at, p->handles[i]);
        put16(response + at + 2, attributes[p->handles[i]].group_end);
        at += 4;
      }
    }
    return at > 1 ? at : error(response, opcode, start, attribute_not_found);
  }
  case 0x08: { // Read By Type: values of one count only
    if (count != 7 && count != 21) return error(response, opcode, 0, invalid_pdu);
    uint32_t start = le16(request + 1), end = le16(request + 3), at = 2, size = 0;
    if (!start || start > end) return error(response, opcode, start, invalid_handle);
    const posting *p = slot(by_type, request + 5, count - 5);
    for (uint32_t i = first_from(p, start); i < p->count && p->handles[i] <= end; i++) {
      const attribute *a = &attributes[p->handles[i]];
      uint32_t taken = least(least(a->value_count, 253), mtu - 4);
      if (at == 2) {
        size = taken;
        response[0] = 0x09;
        response[1] = (uint8_t)(2 + size);
      } else if (taken != size || at + 2 + size > mtu) {
        break;
      }
      put16(response + at, p->handles[i]);
      memcpy(response + at + 2, a->value, size);
      at += 2 + size;
    }
    return at > 2 ? at : error(response, opcode, start, attribute_not_found);
  }
  case 0x10: { // Read By Group Type: services of one UUID length only
    if (count != 7 && count != 21) return error(response, opcode, 0, invalid_pdu);
    uint32_t start = le16(request + 1), end = le16(request + 3), at = 2, size = 0;
    if (!start || start > end) return error(response, opcode, start, invalid_handle);
    if (count != 7 || le16(request + 5) != primary_service)
      return error(response, opcode, start, unsupported_group_type);
    const posting *p = slot(by_type, request + 5, 2);
    for (uint32_t i = first_from(p, start); i < p->count && p->handles[i] <= end; i++) {
      const attribute *a = &attributes[p->handles[i]];
      if (at == 2) {
        size = a->value_count;
        response[0] = 0x11;
        response[1] = (uint8_t)(4 + size);
      } else if (a->value_count != size || at + 4 + size > mtu) {
        break;
      }
      put16(response + at, p->handles[i]);
      put16(response + at + 2, a->group_end);
      memcpy(response + at + 4, a->value, size);
      at += 4 + size;
    }
    return at > 2 ? at : error(response, opcode, start, attribute_not_found);
  }
  case 0x0A: { // Read
    if (count != 3) return error(response, opcode, 0, invalid_pdu);
    uint32_t handle = le16(request + 1);
    if (!handle || handle > last_handle) return error(response, opcode, handle, invalid_handle);
    uint32_t taken = least(attributes[handle].value_count, mtu - 1);
    response[0] = 0x0B;
    memcpy(response + 1, attributes[handle].value, taken);
    return 1 + taken;
  }
  case 0x0C: { // Read Blob
    if (count != 5) return error(response, opcode, 0, invalid_pdu);
    uint32_t handle = le16(request + 1), offset = le16(request + 3);
    if (!handle || handle > last_handle) return error(response, opcode, handle, invalid_handle);
    if (offset > attributes[handle].value_count) return error(response, opcode, handle, invalid_offset);
    uint32_t taken = least(attributes[handle].value_count - offset, mtu - 1);
    response[0] = 0x0D;
    memcpy(response + 1, attributes[handle].value + offset, taken);
    return 1 + taken;
  }
  case 0x12: { // Write
    if (count < 3) return error(response, opcode, 0, invalid_pdu);
    uint32_t handle = le16(request + 1);
    if (!handle || handle > last_handle) return error(response, opcode, handle, invalid_handle);
    if (count - 3 > most_value) return error(response, opcode, handle, invalid_length);
    memcpy(attributes[handle].value, request + 3, count - 3);
    attributes[handle].value_count = (uint16_t)(count - 3);
    response[0] = 0x13;
    return 1;
  }
  case 0x16: { // Prepare Write: the response repeats the request
    if (count < 5) return error(response, opcode, 0, invalid_pdu);
    uint32_t handle = le16(request + 1), offset = le16(request + 3);
    if (!handle || handle > last_handle) return error(response, opcode, handle, invalid_handle);
    if (prepared_count == most_prepared || count - 5 > most_value)
      return error(response, opcode, handle, prepare_queue_full);
    prepared_write *w = &prepared[prepared_count++];
    w->handle = (uint16_t)handle;
    w->offset = (uint16_t)offset;
    w->count = (uint16_t)(count - 5);
    memcpy(w->bytes, request + 5, count - 5);
    memcpy(response, request, count);
    response[0] = 0x17;
    return count;
  }
  case 0x18: { // Execute Write: nothing is written unless all of it can be
    if (count != 2) return error(response, opcode, 0, invalid_pdu);
    uint32_t writes = request[1] == 1 ? prepared_count : 0;
    prepared_count = 0;
    for (uint32_t i = 0; i < writes; i++)
      if (prepared[i].offset + prepared[i].count > most_value)
        return error(response, opcode, prepared[i].handle, invalid_length);
    for (uint32_t i = 0; i < writes; i++) {
      attribute *a = &attributes[prepared[i].handle];
      uint32_t end = prepared[i].offset + prepared[i].count;
      memcpy(a->value + prepared[i].offset, prepared[i].bytes, prepared[i].count);
      if (end > a->value_count) a->value_count = (uint16_t)end;
    }
    response[0] = 0x19;
    return 1;
  }
  }
  return error(response, opcode, 0, request_not_supported);
}
