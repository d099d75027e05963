/* c_calls MODEL_DIR: what a call of the C interface costs beside the work that it asks for.
 *
 * A call finds the handle, takes its lock and wraps the tensors. gradus_steps does nothing else
 * than the first two. What a tensor costs is the difference between batches with and without
 * tensors that the model does not look at, by turns, so that whatever else the machine does hits
 * both. Prints JSON: microseconds of a plain call, of a tensor, and of a batch of two.
 */
#define _POSIX_C_SOURCE 199309L
#include <gradus/gradus_c.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { CALLS = 100000, TURNS = 400, OWN = 2, UNUSED = 500, TOKENS = 4 };

static double microseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

static int by_size(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double median(double* values, int count) {
  qsort(values, (size_t)count, sizeof(double), by_size);
  return values[count / 2];
}

static void check(gradus_status status, const gradus_error* error) {
  if (status == GRADUS_OK) return;
  fprintf(stderr, "status %d: %s\n", (int)status, error->text);
  exit(1);
}

static double evaluation(gradus_trainer trainer, const gradus_tensor* batch, size_t count) {
  gradus_error error;
  double loss;
  const double begin = microseconds();
  check(gradus_evaluate(trainer, batch, count, &loss, &error), &error);
  return microseconds() - begin;
}

int main(int argc, char** argv) {
  static char names[UNUSED][16];
  static double few[TURNS], many[TURNS], plain[5];
  static gradus_tensor batch[OWN + UNUSED];
  const int64_t ids[TOKENS] = {1, 2, 3, 4}, sizes[2] = {1, TOKENS};
  gradus_trainer trainer = 0;
  gradus_error error;
  double begin, call, tensor;
  int64_t steps;
  int i, turn;

  if (argc < 2) return 2;
  check(gradus_open(argv[1], "causal-lm", NULL, &trainer, &error), &error);
  for (turn = 0; turn < 5; ++turn) {
    begin = microseconds();
    for (i = 0; i < CALLS; ++i) check(gradus_steps(trainer, &steps, &error), &error);
    plain[turn] = (microseconds() - begin) / CALLS;
  }
  for (i = 0; i < OWN + UNUSED; ++i) {
    const gradus_tensor one = {i == 0 ? "input_ids" : "labels", GRADUS_INT64, 2, sizes, ids};
    batch[i] = one;
    if (i < OWN) continue;
    snprintf(names[i - OWN], sizeof names[0], "unused_%d", i);
    batch[i].name = names[i - OWN];
  }
  for (i = 0; i < 20; ++i) evaluation(trainer, batch, OWN);
  for (i = 0; i < TURNS; ++i) {
    few[i] = evaluation(trainer, batch, OWN);
    many[i] = evaluation(trainer, batch, OWN + UNUSED);
  }
  check(gradus_close(trainer, &error), &error);
  call = median(plain, 5);
  tensor = (median(many, TURNS) - median(few, TURNS)) / UNUSED;
  printf("{\"call\": %.4f, \"tensor\": %.4f, \"batch\": %.4f, \"evaluation\": %.2f}\n", call,
         tensor, call + OWN * tensor, median(few, TURNS));
  return 0;
}
