// The bound of B4: notifications to ACL packets. Rows B4.queue.OCTETS.LINKS and, with the same bound,
// B4.host.OCTETS.LINKS.
//
// A value is framed (ATT in L2CAP, Vol 3, Part A, §3.1) and cut into the HCI ACL data packets of a controller that has
// 8 buffers of 251 octets for all links together (Vol 4, Part E, §5.4.2); packets that no buffer is free for wait in a
// ring per link, all of them in one pool.
//
// A repetition is 1,000 rounds. In a round every link, in turn, gets one notification. When the next one would not fit,
// the controller gives all buffers back (Num_HCI_Completed_Packets) and what waits is sent; so it does at the end.
#include "cbound.h"

enum { rounds = 1000, most_links = 32, buffers = 8, buffer_octets = 251, pool_size = 64, mtu = 517, handle = 3 };
enum { acl_header = 4, l2cap_header = 4, notification_header = 3, attribute_channel = 0x0004, notification = 0x1B };

typedef struct {
  uint16_t count;
  uint8_t bytes[acl_header + buffer_octets];
} packet;

typedef struct {
  uint8_t waiting[pool_size]; // a ring of indices into the pool
  uint32_t first, end;        // never wrapped: index them % pool_size
  uint32_t in_controller;     // packets whose buffers have not come back
} connection;

static packet pool[pool_size];
static uint8_t unused[pool_size];
static uint32_t unused_count, credits = buffers;
static connection connections[1 + most_links]; // by connection handle, from 1
static uint64_t sum;                           // packets, their octets, and the last octet of each

// Here the packet would be sent to the controller.
OWN_CALL void transmit(const uint8_t *bytes, uint32_t count) { sum += 1 + count + bytes[count - 1]; }

static inline void drain(uint32_t link) {
  connection *c = &connections[link];
  while (credits && c->first != c->end) {
    uint8_t index = c->waiting[c->first++ % pool_size];
    transmit(pool[index].bytes, pool[index].count);
    credits--;
    c->in_controller++;
    unused[unused_count++] = index;
  }
}

// 0 if the pool has no room for it.
OWN_CALL int notify(uint32_t link, const uint8_t *value, uint32_t value_count) {
  connection *c = &connections[link];
  if (value_count > mtu - notification_header) value_count = mtu - notification_header;
  uint32_t pdu_count = notification_header + value_count, total = l2cap_header + pdu_count;
  if (unused_count < (total + buffer_octets - 1) / buffer_octets) return 0;
  for (uint32_t at = 0; at < total;) {
    uint8_t index = unused[--unused_count];
    uint8_t *bytes = pool[index].bytes;
    uint32_t count = total - at < buffer_octets ? total - at : buffer_octets;
    put16(bytes, (uint16_t)(link | (at ? 0x1000 : 0))); // handle, and whether it begins or continues a PDU
    put16(bytes + 2, (uint16_t)count);
    uint8_t *data = bytes + acl_header;
    if (at == 0) {
      put16(data, (uint16_t)pdu_count);
      put16(data + 2, attribute_channel);
      data[4] = notification;
      put16(data + 5, handle);
      memcpy(data + 7, value, count - 7);
    } else {
      memcpy(data, value + at - 7, count);
    }
    pool[index].count = (uint16_t)(acl_header + count);
    c->waiting[c->end++ % pool_size] = index;
    at += count;
  }
  drain(link);
  return 1;
}

static inline void complete_all(uint32_t links) {
  for (uint32_t link = 1; link <= links; link++) {
    credits += connections[link].in_controller;
    connections[link].in_controller = 0;
  }
  for (uint32_t link = 1; link <= links; link++) drain(link);
}

typedef struct {
  uint32_t value_count, links;
} workload;

static uint64_t notify_all(void *context) {
  static uint8_t value[512];
  const workload *w = context;
  uint32_t per_value = (l2cap_header + notification_header + w->value_count + buffer_octets - 1) / buffer_octets;
  uint32_t taken = 0; // of the controller's buffers
  memset(value, 0x07, sizeof value);
  sum = 0;
  for (int round = 0; round < rounds; round++)
    for (uint32_t link = 1; link <= w->links; link++) {
      if (!notify(link, value, w->value_count)) abort();
      taken += per_value;
      if (taken + per_value > buffers) {
        complete_all(w->links);
        taken = 0;
      }
    }
  complete_all(w->links);
  return sum;
}

int main(int count, char **argument) {
  if (count != 5) return 2;
  workload w;
  if ((sscanf(argument[1], "B4.queue.%u.%u", &w.value_count, &w.links) != 2 &&
       sscanf(argument[1], "B4.host.%u.%u", &w.value_count, &w.links) != 2 &&
       sscanf(argument[1], "x.queue.%u.%u", &w.value_count, &w.links) != 2 &&
       sscanf(argument[1], "x.host.%u.%u", &w.value_count, &w.links) != 2) ||
      w.value_count > 512 || w.links < 1 || w.links > most_links)
    return fprintf(stderr, "no row %s\n", argument[1]), 2;
  while (unused_count < pool_size) {
    unused[unused_count] = (uint8_t)unused_count;
    unused_count++;
  }
  measure(argument[1], notify_all, &w, rounds * w.links, atoi(argument[3]), atoi(argument[4]));
  putchar('\n');
}
