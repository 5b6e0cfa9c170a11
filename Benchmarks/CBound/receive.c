// The bound of B9: ACL packets with notifications to an observer. Rows B9.LINKS.
//
// A packet is recombined (a frame that lies whole in it is not copied), its L2CAP header read, its ATT PDU decoded, and
// its value copied once, into a batch. After 8 packets the observer is called for each value, in order: by then it may
// use the stack again, which the packet's owner could not allow. The observer looks up what the link has subscribed to.
//
// A repetition is 1,000 rounds. In a round every link, in turn, receives one notification of 244 octets.
#include "cbound.h"

enum { rounds = 1000, per_batch = 8, value_octets = 244, most_links = 32, most_handles = 256, mtu = 517, value_handle = 3 };
enum { acl_data = 0x02, first_fragment = 2, continuing_fragment = 1, attribute_channel = 0x0004, notification = 0x1B };
enum { h4_and_acl_header = 5, l2cap_header = 4, notification_header = 3, room = 65536 };

typedef struct {
  uint16_t number; // of the link, for the observer
  uint16_t mtu;
  uint32_t received;                     // octets of the frame that is being collected; 0: none is
  uint8_t collected[l2cap_header + mtu]; // its beginning
  uint16_t subscribed[8];                // ascending handles of values
  uint32_t subscribed_count;
} connection;

typedef struct {
  uint32_t link, offset;
  uint16_t handle, count;
} received_value;

static connection links[1 + most_links];
static uint8_t place[most_handles]; // in `links`, by connection handle; 0: there is none
static received_value batch[per_batch];
static uint32_t batch_count, octet_count;
static uint8_t octets[room];
static uint64_t violations, sum;

// The observer: values, their octets, the last octet of each, and the numbers of their links and handles.
OWN_CALL void observe(const connection *c, uint16_t handle, const uint8_t *value, uint32_t count) {
  for (uint32_t i = 0; i < c->subscribed_count; i++)
    if (c->subscribed[i] == handle) {
      sum += 1 + count + value[count - 1];
      sum += c->number + handle;
      return;
    }
}

static inline void receive_pdu(uint32_t link, const uint8_t *pdu, uint32_t count) {
  if (count < 1 || count > links[link].mtu || pdu[0] != notification || count < notification_header) {
    violations++;
    return;
  }
  uint32_t value_count = count - notification_header;
  if (batch_count == per_batch || octet_count + value_count > room) abort();
  batch[batch_count++] = (received_value){link, octet_count, le16(pdu + 1), (uint16_t)value_count};
  memcpy(octets + octet_count, pdu + notification_header, value_count);
  octet_count += value_count;
}

static inline void receive_frame(uint32_t link, const uint8_t *frame, uint32_t count) {
  if (le16(frame + 2) != attribute_channel) {
    violations++;
    return;
  }
  receive_pdu(link, frame + l2cap_header, count - l2cap_header);
}

// A fragment of a longer frame.
static void collect(uint32_t link, uint32_t flag, const uint8_t *data, uint32_t count) {
  connection *c = &links[link];
  if (flag == continuing_fragment ? c->received == 0 : c->received != 0) violations++;
  if (flag != continuing_fragment) c->received = 0;
  if (c->received + count > sizeof c->collected) {
    violations++;
    c->received = 0;
    return;
  }
  memcpy(c->collected + c->received, data, count);
  c->received += count;
  if (c->received < l2cap_header) return;
  uint32_t expected = l2cap_header + (uint32_t)le16(c->collected);
  if (c->received < expected) return;
  if (c->received == expected) receive_frame(link, c->collected, expected);
  else violations++;
  c->received = 0;
}

OWN_CALL void receive(const uint8_t *packet, uint32_t count) {
  if (count < h4_and_acl_header || packet[0] != acl_data || count - h4_and_acl_header != le16(packet + 3)) {
    violations++;
    return;
  }
  uint16_t handle_and_flags = le16(packet + 1);
  uint32_t handle = handle_and_flags & 0x0FFF, flag = (handle_and_flags >> 12) & 3;
  if (handle >= most_handles || !place[handle] || handle_and_flags >> 14) {
    violations++;
    return;
  }
  uint32_t link = place[handle], data_count = count - h4_and_acl_header;
  const uint8_t *data = packet + h4_and_acl_header;
  if (flag == first_fragment && !links[link].received && data_count >= l2cap_header &&
      data_count - l2cap_header == le16(data))
    receive_frame(link, data, data_count);
  else
    collect(link, flag, data, data_count);
}

// The end of a batch of packets.
OWN_CALL void received_all(void) {
  for (uint32_t i = 0; i < batch_count; i++)
    observe(&links[batch[i].link], batch[i].handle, octets + batch[i].offset, batch[i].count);
  batch_count = octet_count = 0;
}

static uint64_t receive_all(void *context) {
  static uint8_t packet[h4_and_acl_header + l2cap_header + notification_header + value_octets];
  uint32_t link_count = *(const uint32_t *)context;
  uint8_t *at = packet;
  *at++ = acl_data;
  put16(at, first_fragment << 12);
  put16(at + 2, l2cap_header + notification_header + value_octets);
  put16(at + 4, notification_header + value_octets);
  put16(at + 6, attribute_channel);
  at[8] = notification;
  put16(at + 9, value_handle);
  memset(at + 11, 0x07, value_octets);
  sum = 0;
  uint32_t together = 0;
  for (int round = 0; round < rounds; round++)
    for (uint32_t link = 1; link <= link_count; link++) {
      packet[1] = (uint8_t)link;
      receive(packet, sizeof packet);
      if (++together == per_batch) {
        received_all();
        together = 0;
      }
    }
  received_all();
  return sum;
}

int main(int count, char **argument) {
  uint32_t link_count;
  if (count != 5) return 2;
  if (sscanf(argument[1], "B9.%u", &link_count) != 1 || link_count < 1 || link_count > most_links)
    return fprintf(stderr, "no row %s\n", argument[1]), 2;
  for (uint32_t link = 1; link <= link_count; link++) {
    place[link] = (uint8_t)link;
    links[link] = (connection){.number = (uint16_t)link, .mtu = mtu, .subscribed = {value_handle}, .subscribed_count = 1};
  }
  measure(argument[1], receive_all, &link_count, rounds * link_count, atoi(argument[3]), atoi(argument[4]));
  putchar('\n');
  return violations != 0;
}
