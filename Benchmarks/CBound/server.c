// The bound of B3: a request in, a response out, at MTU 247, for each kind of request (K0 to K8) and database.
//
//     server B3.K5.300 WORKLOADS REPETITIONS BATCHES     measures
//     server responses WORKLOADS 300 FILE                writes the responses to all requests of the file, in its order:
//                                                        their number, then for each its length and its octets
#include "server.h"

enum { mtu = 247 };

typedef struct {
  corpus requests;
  uint32_t *chosen; // the requests of the row's kind, in the order of the file
  uint32_t count;
} workload;

// `attribute_count` 300 or 3000.
static corpus prepare(const char *folder, uint32_t attribute_count) {
  char name[32];
  snprintf(name, sizeof name, "reqs_%u.bin", attribute_count);
  build(attribute_count / 30);
  return load(folder, name, 1);
}

static uint64_t answer_all(void *context) {
  static uint8_t response[1024];
  const workload *w = context;
  uint64_t sum = 0;
  for (uint32_t i = 0; i < w->count; i++) {
    uint32_t index = w->chosen[i];
    uint32_t count = respond(w->requests.bytes + w->requests.offset[index], w->requests.length[index], response, mtu);
    sum += count + response[0];
  }
  return sum;
}

static int write_responses(const char *folder, uint32_t attribute_count, const char *path) {
  corpus requests = prepare(folder, attribute_count);
  FILE *file = fopen(path, "wb");
  if (!file) return perror(path), 1;
  fwrite(&requests.count, 4, 1, file);
  for (uint32_t i = 0; i < requests.count; i++) {
    uint8_t response[1024];
    uint16_t count = (uint16_t)respond(requests.bytes + requests.offset[i], requests.length[i], response, mtu);
    fwrite(&count, 2, 1, file);
    fwrite(response, 1, count, file);
  }
  if (fclose(file)) return perror(path), 1;
  return 0;
}

int main(int count, char **argument) {
  if (count != 5) return 2;
  const char *id = argument[1], *folder = argument[2];
  if (!strcmp(id, "responses")) return write_responses(folder, (uint32_t)atoi(argument[3]), argument[4]);
  unsigned kind, attribute_count;
  if (sscanf(id, "B3.K%u.%u", &kind, &attribute_count) != 2 || kind > 8 ||
      (attribute_count != 300 && attribute_count != 3000))
    return fprintf(stderr, "no row %s\n", id), 2;
  workload w = {.requests = prepare(folder, attribute_count)};
  w.chosen = calloc(w.requests.count, sizeof *w.chosen);
  for (uint32_t i = 0; i < w.requests.count; i++)
    if (w.requests.kind[i] == kind) w.chosen[w.count++] = i;
  measure(id, answer_all, &w, w.count, atoi(argument[3]), atoi(argument[4]));
  putchar('\n');
}
