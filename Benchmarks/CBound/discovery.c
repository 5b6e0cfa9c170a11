// The bound of B5: a client discovers the whole 300-attribute server, both in one process. Row B5.MTU.
//
// The least round trips that are known to do: the services, then all characteristics in one go, then descriptors. Where
// one handle is left behind a value that can be notified, a server must have the Client Characteristic Configuration
// there (Vol 3, Part G, §3.3.1.1), so discovery does not ask for it; so does BlueZ. Vol 3, Part G, §4.4.1, §4.6.1,
// §4.7.1.
#include "server.h"

enum { most_services = 128, most_characteristics = 1200, most_descriptors = 2000, notify_or_indicate = 0x30 };

typedef struct {
  uint16_t start, end;
  uuid key;
} found_service;

typedef struct {
  uint16_t declaration, value;
  uint8_t properties;
  uuid key;
} found_characteristic;

typedef struct {
  uint16_t handle;
  uuid key;
} found_descriptor;

typedef struct {
  uint32_t mtu, round_trips;
  uint32_t service_count, characteristic_count, descriptor_count;
  found_service services[most_services];
  found_characteristic characteristics[most_characteristics];
  found_descriptor descriptors[most_descriptors];
  uint8_t response[1024];
} client;

static inline uint32_t ask(client *c, const uint8_t *request, uint32_t count) {
  c->round_trips++;
  return respond(request, count, c->response, c->mtu);
}

static inline void keep(uuid *key, const uint8_t *bytes, uint32_t count) {
  key->count = (uint8_t)count;
  memcpy(key->bytes, bytes, count);
}

// Read By Group Type or Read By Type of `type`, from `start` to the end.
static inline uint32_t ask_for(client *c, uint8_t opcode, uint32_t start, uint16_t type) {
  uint8_t request[7] = {opcode};
  put16(request + 1, (uint16_t)start);
  put16(request + 3, 0xFFFF);
  put16(request + 5, type);
  return ask(c, request, sizeof request);
}

static void find_services(client *c) {
  uint32_t start = 1;
  while (start <= 0xFFFF) {
    uint32_t count = ask_for(c, 0x10, start, primary_service);
    if (c->response[0] != 0x11) return;
    uint32_t size = c->response[1];
    for (uint32_t at = 2; at + size <= count; at += size) {
      const uint8_t *entry = c->response + at;
      found_service *service = &c->services[c->service_count++];
      service->start = le16(entry);
      service->end = le16(entry + 2);
      keep(&service->key, entry + 4, size - 4);
      start = service->end + 1u;
    }
  }
}

static void find_characteristics(client *c) {
  uint32_t start = 1;
  while (start <= 0xFFFF) {
    uint32_t count = ask_for(c, 0x08, start, characteristic);
    if (c->response[0] != 0x09) return;
    uint32_t size = c->response[1];
    for (uint32_t at = 2; at + size <= count; at += size) {
      const uint8_t *entry = c->response + at;
      found_characteristic *found = &c->characteristics[c->characteristic_count++];
      found->declaration = le16(entry);
      found->properties = entry[2];
      found->value = le16(entry + 3);
      keep(&found->key, entry + 5, size - 5);
      start = found->value + 1u;
    }
  }
}

// The descriptors behind the value of the characteristic: from its value to the next declaration or the service's end.
static void find_descriptors(client *c, uint32_t first, uint32_t last, uint8_t properties) {
  if (first == last && properties & notify_or_indicate) {
    static const uint8_t configuration[2] = {client_configuration & 0xFF, client_configuration >> 8};
    found_descriptor *found = &c->descriptors[c->descriptor_count++];
    found->handle = (uint16_t)first;
    keep(&found->key, configuration, sizeof configuration);
    return;
  }
  while (first <= last) {
    uint8_t request[5] = {0x04};
    put16(request + 1, (uint16_t)first);
    put16(request + 3, (uint16_t)last);
    uint32_t count = ask(c, request, sizeof request);
    if (c->response[0] != 0x05) return;
    uint32_t size = c->response[1] == 1 ? 2 : 16;
    for (uint32_t at = 2; at + 2 + size <= count; at += 2 + size) {
      found_descriptor *found = &c->descriptors[c->descriptor_count++];
      found->handle = le16(c->response + at);
      keep(&found->key, c->response + at + 2, size);
      first = found->handle + 1u;
    }
  }
}

static uint64_t discover(void *context) {
  client *c = context;
  c->round_trips = c->service_count = c->characteristic_count = c->descriptor_count = 0;
  find_services(c);
  find_characteristics(c);
  uint32_t s = 0;
  for (uint32_t i = 0; i < c->characteristic_count; i++) {
    const found_characteristic *found = &c->characteristics[i], *next = found + 1;
    while (s < c->service_count && c->services[s].end < found->value) s++;
    if (s == c->service_count) break;
    int is_last = i + 1 == c->characteristic_count || next->declaration > c->services[s].end;
    find_descriptors(c, found->value + 1u, is_last ? c->services[s].end : next->declaration - 1u, found->properties);
  }
  return c->service_count * 1000000ull + c->characteristic_count * 1000ull + c->descriptor_count;
}

int main(int count, char **argument) {
  static client c;
  if (count != 5) return 2;
  if (sscanf(argument[1], "B5.%u", &c.mtu) != 1 || c.mtu < 23 || c.mtu > 517)
    return fprintf(stderr, "no row %s\n", argument[1]), 2;
  build(10);
  measure(argument[1], discover, &c, 1, atoi(argument[3]), atoi(argument[4]));
  printf(" round_trips %u\n", c.round_trips);
}
